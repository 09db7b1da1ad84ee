"""Each family answers as its reference in transformers does, from either format of weights."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.models.loader import FAMILIES
from inference.weights.open_checkpoint import open_checkpoint
from tests.inference.models.stepping import greedy, load_on_cpu
from tests.inference.models.toy_families import (
    TOYS,
    Toy,
    family_tensors,
    write_family_gguf,
    write_folder,
)

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:  # the rows of a JSON file
    raw = json.loads((REPOSITORY / "tests/goldens/families_greedy.json").read_text())
    rows: list[dict[str, Any]] = raw["cases"]
    return rows


def test_every_family_has_a_toy() -> None:
    assert {toy.config["model_type"] for toy in TOYS} == set(FAMILIES)


@pytest.mark.parametrize("write", [write_folder, write_family_gguf], ids=["safetensors", "gguf"])
@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_greedy_answers_are_those_of_the_reference(
    tmp_path: Path, cases: list[dict[str, Any]], toy: Toy, write: Callable[[Path, Toy], None]
) -> None:
    chosen = [case for case in cases if case["toy"] == toy.name]
    write(tmp_path / "weights", toy)
    model = load_on_cpu(open_checkpoint(tmp_path / "weights"))

    outputs = greedy(model, [case["prompt_ids"] for case in chosen], len(chosen[0]["output_ids"]))

    assert [len(case["prompt_ids"]) for case in chosen] == [1, 6, 33, 80]
    assert outputs == [case["output_ids"] for case in chosen]


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_both_formats_hold_the_same_model(tmp_path: Path, toy: Toy) -> None:
    write_folder(tmp_path / "folder", toy)
    write_family_gguf(tmp_path / "file", toy)
    folder, file = open_checkpoint(tmp_path / "folder"), open_checkpoint(tmp_path / "file")

    assert folder.names() == file.names() == family_tensors(toy).keys()
    for name in folder.names():
        assert torch.equal(folder.tensor(name), file.tensor(name)), name
