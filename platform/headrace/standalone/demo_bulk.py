"""The bulk half of the demo: a folder of texts summarised, and a batch by the stock client.

Both are programs that ship with the repository, run as anybody would run them. Called by
`demo_story`; a step that does not come out as promised fails an assertion.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from billing.facade import decimal_string
from headrace.standalone.data_folder import REPOSITORY
from headrace.standalone.processes import House, set_up_environment

TEXTS = REPOSITORY / "samples" / "texts"
SHOWN_TEXT = "declaration-1-of-rights.txt"
SUMMARY_TOKENS_MAX = 48
PROGRAM_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Bulk:
    """What the steps need: the house, a tenant's key, and what its interactive tokens cost."""

    house: House
    model: str
    key: str
    interactive_micros_per_mtok: Mapping[str, int]


def summarise_a_folder(bulk: Bulk) -> None:
    """Through files, the worker and the pump, on the same pipeline at batch priority and price."""
    output = bulk.house.folder.temporary / "demo-summaries.jsonl"
    _run(
        bulk,
        *(str(REPOSITORY / "manage.py"), "summarize", str(TEXTS), "--model", bulk.model),
        *("--tokens-max", str(SUMMARY_TOKENS_MAX), "--yes", "--output", str(output)),
    )
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert {row["custom_id"] for row in rows} == {path.name for path in TEXTS.iterdir()}
    assert all(row["status"] == "done" for row in rows), "each text has its summary"
    row = next(row for row in rows if row["custom_id"] == SHOWN_TEXT)
    print(f"   {SHOWN_TEXT}: {row['summary'].strip()}")
    print(
        f"   {row['prompt_tokens']} input tokens ({row['cached_tokens']} cached),"
        f" {row['completion_tokens']} output tokens: charge {row['charge']} USD"
    )
    if not row["prompt_tokens"]:
        print("   unchanged since an earlier run of this demo, so it was not computed again")
        return
    interactive_pico = _interactive_pico(bulk, row)
    saved = 1 - int(row["charge_pico"]) / interactive_pico
    print(f"   interactive it would be {decimal_string(interactive_pico)} USD: {saved:.0%} saved")
    assert 0 < int(row["charge_pico"]) < interactive_pico, "the batch price is lower"


def run_a_batch(bulk: Bulk) -> None:
    """OpenAI's files and batches, by its own client."""
    _run(bulk, str(REPOSITORY / "samples" / "batch.py"))


def _run(bulk: Bulk, *arguments: str) -> None:
    """A program, seen as it runs."""
    sys.stdout.flush()
    environment = {
        "OPENAI_BASE_URL": bulk.house.base_url,
        "OPENAI_API_KEY": bulk.key,
        "XDG_CACHE_HOME": str(bulk.house.folder.temporary),  # nothing is left outside
    }
    subprocess.run(
        [sys.executable, *arguments],
        env=set_up_environment(bulk.house) | environment,
        timeout=PROGRAM_TIMEOUT_S,
        check=True,
    )


def _interactive_pico(bulk: Bulk, row: Mapping[str, Any]) -> int:  # JSON
    """What a row's tokens would have cost somebody who waits for the answer."""
    prices, cached = bulk.interactive_micros_per_mtok, int(row["cached_tokens"])
    return int(
        (row["prompt_tokens"] - cached) * prices["input"]
        + cached * prices["cached_input"]
        + row["completion_tokens"] * prices["output"]
    )
