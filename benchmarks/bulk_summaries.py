"""500 short summaries through the whole house, beside the engine alone and beside interactive use.

`python -m benchmarks.bulk_summaries [--documents N]`: one summarisation job with an instruction of
600 tokens, on a house with durable commits. The same prompts then go to the same engine process
directly, all at once, and to one that keeps its steps within 50 ms as interactive requests, each in
a prefix cache of its own. Greedy, so that all compute the same tokens. Wall time.
"""

import argparse
import asyncio
import json
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from batch_jobs.summaries.asking import request_body
from batch_jobs.summaries.options import SummaryOptions
from benchmarks.bulk_house import BulkHouse, bulk_house, upload
from benchmarks.engine_client import Driven, drive
from benchmarks.model import loaded_bundle
from benchmarks.report import Row, percentile, print_report
from inference.contracts import Priority
from inference.tokenizer.prompt import ChatMessage, PromptEncoder

DOCUMENTS = 500
DOCUMENT_WORDS = 40
INSTRUCTION_TOKENS = 600
TOKENS_MAX = 32
AT_ONCE = 256
"""As many as the engine lets one key have in its queue and its batch together."""
INTERACTIVE_AT_ONCE = 16
LATENCY_MS = 50
"""Between tokens: the latency target of `benchmarks.curve`."""
POLL_S = 0.25
TIMEOUT_S = 3600
ENDS = frozenset({"completed", "failed", "expired", "cancelled"})
SENTENCES = (
    "Read the whole text before you write anything.",
    "Say what it is about, in one short sentence, in plain words.",
    "Keep names, places and numbers as they are written.",
    "Leave out opinions, greetings and everything that is said twice.",
    "Never add what the text does not say.",
    "If the text has several subjects, name the one that it says most about.",
)
VOCABULARY = (
    "the mill by the river has a wheel of oak that turns a stone when water comes down a channel"
    " from the pond above and farmers bring grain in autumn while bees fly over fields of clover"
    " toward hives near an old wall where children wait for bread that smells of rain and smoke"
)


def instruction(encoder: PromptEncoder) -> str:
    """Some sentences, until they are long enough."""
    said: list[str] = []
    while len(encoder.encode_chat([ChatMessage("user", " ".join(said))])) < INSTRUCTION_TOKENS:
        said.append(SENTENCES[len(said) % len(SENTENCES)])
    return " ".join(said)


def texts(documents: int) -> list[str]:
    """No two begin alike."""
    drawn = random.Random(11)
    return [
        f"{number}: {' '.join(drawn.choices(VOCABULARY.split(), k=DOCUMENT_WORDS))}."
        for number in range(documents)
    ]


def summarised(house: BulkHouse, options: SummaryOptions, documents: Sequence[str]) -> Any:
    """The job as it ended and how many seconds it took, from its creation to its end."""
    with house.client() as client, tempfile.TemporaryDirectory() as name:
        path = Path(name) / "documents.jsonl"
        path.write_text(
            "".join(
                json.dumps({"id": f"d-{number}", "text": text}) + "\n"
                for number, text in enumerate(documents)
            )
        )
        file_id = upload(client, path)
        url = f"{house.house.base_url.removesuffix('/v1')}/api/v1/summaries"
        began_s = time.perf_counter()
        wanted = {
            "input_file_ids": [file_id],
            "model": options.model,
            "instruction": options.instruction,
            "tokens_max": options.tokens_max,
        }
        answer = client.post(url, json=wanted)
        assert answer.status_code == httpx.codes.CREATED, answer.text
        job = answer.json()
        while job["status"] not in ENDS:
            assert time.perf_counter() - began_s < TIMEOUT_S, job
            time.sleep(POLL_S)
            job = client.get(f"{url}/{job['id']}").raise_for_status().json()
        return job, time.perf_counter() - began_s


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bulk_summaries")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    count = parser.parse_args().documents
    bundle = loaded_bundle()
    encoder = PromptEncoder(bundle)
    options = SummaryOptions(bundle.name, instruction(encoder), tokens_max=TOKENS_MAX)
    documents = texts(count)
    prompts = []
    for text in documents:
        [message] = request_body(options, text, merging=False)["messages"]
        prompts.append(encoder.encode_chat([ChatMessage("user", message["content"])]))

    def driven(salt: bytes, at_once: int, priority: Priority, part: int = count) -> Driven:
        return asyncio.run(
            drive(
                house.house.folder.engine_socket,
                bundle,
                prompts[:part],
                tokens_max=TOKENS_MAX,
                at_once=at_once,
                priority=priority,
                salt=salt,
            )
        )

    with bulk_house(bundle, workers=1, stub=False) as house:
        driven(b"warm-up", AT_ONCE, Priority.BATCH, part=INTERACTIVE_AT_ONCE)
        before = driven(b"before", AT_ONCE, Priority.BATCH)
        job, elapsed_s = summarised(house, options, documents)
        after = driven(b"after", AT_ONCE, Priority.BATCH)
        house.running.kill("engine", signal.SIGTERM)
        house.running.start_another(
            "engine", "smooth engine", "--inter-token-target-ms", str(LATENCY_MS)
        )
        interactive = driven(b"interactive", INTERACTIVE_AT_ONCE, Priority.INTERACTIVE)
        said = house.reconcile()
    assert job["documents"]["completed"] == count, job
    tokens = job["tokens"]
    ours = tokens["completion"] / elapsed_s
    offline = (before.completion_tokens + after.completion_tokens) / (
        before.elapsed_s + after.elapsed_s
    )
    rows = [
        Row(
            "summaries, all in all",
            ours,
            "the engine offline",
            offline,
            "tokens/s",
            ">= 0.95",
        ),
        Row(
            "summaries, all in all",
            ours,
            f"interactive, {LATENCY_MS} ms a step",
            interactive.tokens_per_s,
            "tokens/s",
            ">= 1.3",
        ),
        Row(
            "prompt tokens from the cache",
            tokens["cached"],
            "prompt tokens",
            tokens["prompt"],
            "tokens",
            ">= 0.85",
        ),
    ]
    print_report(f"{count} short summaries", rows, threads=1)
    gaps_ms = [gap * 1e3 for gap in interactive.gaps_s]
    print(f"offline {before.tokens_per_s:.1f} before and {after.tokens_per_s:.1f} after; ", end="")
    print(f"tokens generated: ours {tokens['completion']}, offline {before.completion_tokens}; ")
    print(f"interactive: {percentile(gaps_ms, 50):.0f} ms between tokens, ", end="")
    print(f"p95 {percentile(gaps_ms, 95):.0f}; ours took {elapsed_s:.0f} s. {said}")


if __name__ == "__main__":
    main()
