"""GGUF files read as the checkpoints they were made from, or are refused by name."""

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from inference.weights.checkpoint import CheckpointInvalid
from inference.weights.gguf_file import GgufFile, unpermuted
from tests.inference.models.stepping import load_on_cpu
from tests.inference.models.toy_gguf import ToyShape, toy_tensors, write_toy

TOY = ToyShape()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "toy.gguf"


def test_the_shape_of_the_model_is_read(path: Path) -> None:
    write_toy(path, TOY)

    config = GgufFile(path).config

    assert (config.heads, config.kv_heads, config.head_size) == (4, 2, 16)
    assert (config.layers, config.hidden_size, config.vocab_size) == (2, 64, 96)
    assert config.rope_theta == 10_000.0
    assert config.norm_epsilon == pytest.approx(1e-5)


def test_heads_come_back_in_the_original_order(path: Path) -> None:
    originals = toy_tensors(TOY)
    write_toy(path, TOY)
    checkpoint = GgufFile(path)

    for name, original in originals.items():
        assert torch.equal(checkpoint.tensor(name), original), name


def test_unpermuting_puts_pairs_half_a_head_apart() -> None:
    stored = torch.tensor([[0.0], [2.0], [1.0], [3.0], [4.0], [6.0], [5.0], [7.0]])

    assert unpermuted(stored, heads=2).flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_rows_that_make_no_heads_are_refused() -> None:
    with pytest.raises(CheckpointInvalid, match="do not divide"):
        unpermuted(torch.zeros(6, 1), heads=4)


@pytest.mark.parametrize(
    ("kind", "error"),
    [("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 0.01), ("Q5_1", 0.03), ("Q4_0", 0.1)],
)
def test_narrow_formats_are_widened(path: Path, kind: str, error: float) -> None:
    original = toy_tensors(TOY)["model.layers.0.mlp.up_proj.weight"]
    write_toy(path, TOY, kind=gguf.GGMLQuantizationType[kind])

    widened = GgufFile(path).tensor("model.layers.0.mlp.up_proj.weight")

    assert widened.dtype == torch.float32
    assert 0 < (widened - original).abs().max() < error


def test_an_unknown_tensor_is_refused(path: Path) -> None:
    write_toy(path, TOY, extra={"blk.0.attn_sinks.weight": np.zeros(4, dtype=np.float32)})

    with pytest.raises(CheckpointInvalid, match="attn_sinks"):
        GgufFile(path)


@pytest.mark.parametrize("name", ["attn_q.bias", "attn_q_norm.weight"])
def test_a_tensor_of_another_family_is_refused(path: Path, name: str) -> None:
    write_toy(path, TOY, extra={f"blk.0.{name}": np.zeros(64, dtype=np.float32)})

    with pytest.raises(CheckpointInvalid, match="no use for"):
        load_on_cpu(GgufFile(path))


def test_a_tensor_of_a_layer_too_many_is_refused(path: Path) -> None:
    write_toy(path, TOY, extra={"blk.7.attn_norm.weight": np.zeros(64, dtype=np.float32)})

    with pytest.raises(CheckpointInvalid, match="no use for"):
        load_on_cpu(GgufFile(path))


def test_a_missing_tensor_is_named(path: Path) -> None:
    write_toy(path, TOY, leave_out="blk.1.ffn_down.weight")

    with pytest.raises(CheckpointInvalid, match=r"layers\.1\.mlp\.down_proj"):
        load_on_cpu(GgufFile(path))


def test_a_tensor_of_another_shape_is_named(path: Path) -> None:
    write_toy(
        path,
        TOY,
        leave_out="output_norm.weight",
        extra={"output_norm.weight": np.zeros(63, dtype=np.float32)},
    )

    with pytest.raises(CheckpointInvalid, match=r"model\.norm\.weight is \(63,\)"):
        load_on_cpu(GgufFile(path))


def test_an_unknown_architecture_is_refused(path: Path) -> None:
    write_toy(path, TOY, architecture="mamba")

    with pytest.raises(CheckpointInvalid, match="'mamba' is not one of: llama, mistral"):
        load_on_cpu(GgufFile(path))


def test_an_unknown_rope_scaling_is_refused(path: Path) -> None:
    write_toy(path, TOY, rope_scaling="longrope", metadata={"llama.rope.scaling.factor": 4})

    with pytest.raises(CheckpointInvalid, match="longrope"):
        GgufFile(path)


def test_an_unknown_part_of_a_rope_scaling_is_refused(path: Path) -> None:
    write_toy(path, TOY, rope_scaling="yarn", metadata={"llama.rope.scaling.attn_factor": 2})

    with pytest.raises(CheckpointInvalid, match="attn_factor"):
        GgufFile(path)


def test_two_rope_scalings_at_once_are_refused(path: Path) -> None:
    divisors = np.ones(8, dtype=np.float32)
    write_toy(path, TOY, rope_scaling="linear", extra={"rope_freqs.weight": divisors})

    with pytest.raises(CheckpointInvalid, match="rope_freqs"):
        GgufFile(path)


def test_rope_divisors_for_another_head_are_refused(path: Path) -> None:
    write_toy(path, TOY, extra={"rope_freqs.weight": np.ones(5, dtype=np.float32)})

    with pytest.raises(CheckpointInvalid, match="5 RoPE divisors"):
        load_on_cpu(GgufFile(path))


def test_the_context_ends_with_the_sliding_window(path: Path) -> None:
    write_toy(path, TOY, metadata={"llama.attention.sliding_window": 48})

    assert GgufFile(path).config.context_tokens_max == 48


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("split.count", 2, "one part of several"),
        ("llama.attention.value_length", 32, "different size"),
        ("llama.rope.dimension_count", 8, "RoPE on 8"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    path: Path, key: str, value: int, message: str
) -> None:
    write_toy(path, TOY, metadata={key: value})

    with pytest.raises(CheckpointInvalid, match=message):
        GgufFile(path)


def test_a_file_cut_short_is_refused(path: Path) -> None:
    write_toy(path, TOY)
    whole = path.read_bytes()
    for length in (0, 3, 20, 300, 700):
        path.write_bytes(whole[:length])

        with pytest.raises(CheckpointInvalid):
            GgufFile(path)


def test_weights_cut_short_are_refused(path: Path) -> None:
    write_toy(path, TOY)
    path.write_bytes(path.read_bytes()[:-2000])

    with pytest.raises(CheckpointInvalid):
        load_on_cpu(GgufFile(path))


def test_absurd_counts_and_lengths_are_refused(path: Path) -> None:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0))
    with pytest.raises(CheckpointInvalid, match="more entries"):
        GgufFile(path)

    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + b"key")
    with pytest.raises(CheckpointInvalid, match="ends inside"):
        GgufFile(path)


def test_another_file_is_refused(path: Path) -> None:
    path.write_bytes(b"PK\x03\x04" + b"\x00" * 100)

    with pytest.raises(CheckpointInvalid, match="not a GGUF"):
        GgufFile(path)
