"""What the inference tests share: the real model's bundle and the reference answers to it."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from inference.tokenizer.bundle import Bundle, load_bundle

REPOSITORY = Path(__file__).resolve().parents[2]
MARGIN_EXACT = 1e-3
"""Below this gap between the two best logits, another order of additions may pick the other one."""


@dataclass(frozen=True, slots=True)
class Golden:
    """One prompt and the greedy answer of the transformers reference."""

    prompt: str
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    argmax_margin: tuple[float, ...]
    text: str

    def agrees(self, output_ids: list[int]) -> bool:
        """Whether `output_ids` is this answer, up to the first choice that rounding could flip."""
        for index, expected in enumerate(self.output_ids):
            if index >= len(output_ids):
                return False
            if output_ids[index] != expected:
                return self.argmax_margin[index] < MARGIN_EXACT
        return len(output_ids) == len(self.output_ids)


@pytest.fixture(scope="session")
def bundle(bundle_folder: Path) -> Bundle:
    """The loaded bundle."""
    return load_bundle(bundle_folder)


@pytest.fixture(scope="session")
def goldens() -> list[Golden]:
    """Twenty greedy answers in float32."""
    raw = json.loads((REPOSITORY / "tests/goldens/smollm2_greedy.json").read_text())
    return [
        Golden(
            prompt=case["prompt"],
            prompt_ids=tuple(case["prompt_ids"]),
            output_ids=tuple(case["output_ids"]),
            argmax_margin=tuple(case["argmax_margin"]),
            text=case["text"],
        )
        for case in raw["cases"]
    ]
