"""Every block format of GGUF is read as its specification says, number by number."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from inference.weights.checkpoint import CheckpointInvalid
from inference.weights.gguf_file import GgufFile
from tests.inference.models.ggml_blocks import HALF_SCALES_AT, READERS
from tests.inference.models.toy_gguf import ToyShape, write_toy

TOY = ToyShape()
ROWS, COLUMNS = 8, 512


def random_blocks(kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """[ROWS, bytes] of valid blocks: any bits, but scales that are ordinary numbers."""
    generator = np.random.default_rng(kind.value)
    numbers_each, bytes_each = gguf.GGML_QUANT_SIZES[kind]
    if numbers_each == 1:
        floats = generator.standard_normal((ROWS, COLUMNS)).astype(np.float32)
        return np.ascontiguousarray(gguf.quantize(floats, kind)).view(np.uint8)
    count = ROWS * COLUMNS // numbers_each
    blocks = generator.integers(0, 256, (count, bytes_each), dtype=np.uint8)
    for block in blocks:
        for at in HALF_SCALES_AT.get(kind.name, (0,)):
            scale = struct.pack("<e", generator.uniform(-2, 2))
            block[at : at + 2] = np.frombuffer(scale, np.uint8)
    return blocks.reshape(ROWS, -1)


@pytest.mark.parametrize("name", READERS)
def test_blocks_are_read_as_specified(tmp_path: Path, name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    blocks = random_blocks(kind)
    write_toy(
        tmp_path / "toy.gguf",
        TOY,
        leave_out="blk.0.ffn_up.weight",
        packed={"blk.0.ffn_up.weight": (blocks, kind)},
    )
    size = gguf.GGML_QUANT_SIZES[kind][1]
    raw = blocks.tobytes()
    expected = [x for at in range(0, len(raw), size) for x in READERS[name](raw[at : at + size])]

    tensor = GgufFile(tmp_path / "toy.gguf").tensor("model.layers.0.mlp.up_proj.weight")

    assert tensor.shape == (ROWS, COLUMNS)
    assert torch.allclose(tensor.flatten(), torch.tensor(expected), rtol=1e-6, atol=1e-6)
    assert tensor.std() > 0.1


def test_numbers_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    write_toy(
        tmp_path / "toy.gguf",
        TOY,
        leave_out="output_norm.weight",
        extra={"output_norm.weight": np.ones(64, dtype=np.int32)},
    )

    with pytest.raises(CheckpointInvalid, match="I32"):
        GgufFile(tmp_path / "toy.gguf").tensor("model.norm.weight")
