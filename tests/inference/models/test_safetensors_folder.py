"""Hugging Face folders are read as they are, or refused by name."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.weights.checkpoint import CheckpointInvalid
from inference.weights.open_checkpoint import open_checkpoint
from inference.weights.rope_scaling import Llama3Scaling, YarnScaling
from tests.inference.models.stepping import load_on_cpu
from tests.inference.models.toy_families import TOYS, Toy, family_tensors, write_folder

LLAMA2, LLAMA3, QWEN2_YARN = (
    next(toy for toy in TOYS if toy.name == name) for name in ("llama2", "llama3", "qwen2-yarn")
)
INDEX = "model.safetensors.index.json"


def changed(toy: Toy, **fields: Any) -> Toy:  # any field of a config.json
    return dataclasses.replace(toy, config=toy.config | fields)


def rewrite_index(folder: Path, old: str, new: str) -> None:
    index = folder / INDEX
    index.write_text(index.read_text().replace(old, new))


def test_shards_are_one_model(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA2, shards=3)

    checkpoint = open_checkpoint(tmp_path)

    assert checkpoint.names() == family_tensors(LLAMA2).keys()
    for name, tensor in family_tensors(LLAMA2).items():
        assert torch.equal(checkpoint.tensor(name), tensor)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats_are_widened(tmp_path: Path, dtype: torch.dtype) -> None:
    write_folder(tmp_path, LLAMA2, dtype=dtype)

    tensor = open_checkpoint(tmp_path).tensor("model.norm.weight")

    assert tensor.dtype == torch.float32
    assert torch.equal(tensor, family_tensors(LLAMA2)["model.norm.weight"].to(dtype).float())


def test_rope_scalings_are_read_in_both_spellings(tmp_path: Path) -> None:
    write_folder(tmp_path / "old", LLAMA3)
    new = {key: value for key, value in LLAMA3.config.items() if not key.startswith("rope")}
    new["rope_parameters"] = LLAMA3.config["rope_scaling"] | {"rope_theta": 5_000.0}
    write_folder(tmp_path / "new", dataclasses.replace(LLAMA3, config=new))

    configs = [open_checkpoint(tmp_path / name).config for name in ("old", "new")]

    assert configs[0] == configs[1]
    assert configs[0].rope_scaling == Llama3Scaling(8.0, 1.0, 4.0, 64)
    assert configs[0].rope_theta == 5_000.0


def test_yarn_is_read_in_its_old_spelling(tmp_path: Path) -> None:
    write_folder(tmp_path, QWEN2_YARN)

    assert open_checkpoint(tmp_path).config.rope_scaling == YarnScaling(4.0, 64)


@pytest.mark.parametrize(
    ("fields", "context"),
    [
        ({"model_type": "mistral", "sliding_window": 32}, 32),
        ({"model_type": "mistral", "max_position_embeddings": 32768}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, 256),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, 256),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True}, 32),
        ({"model_type": "qwen3", "sliding_window": 32, "layer_types": ["full_attention"]}, 256),
        ({"model_type": "qwen3", "sliding_window": 32, "layer_types": ["sliding_attention"]}, 32),
    ],
)
def test_the_context_ends_with_the_sliding_window(
    tmp_path: Path, fields: dict[str, Any], context: int
) -> None:
    write_folder(tmp_path, changed(LLAMA2, **fields))

    assert open_checkpoint(tmp_path).config.context_tokens_max == context


def test_a_head_beside_a_tied_one_is_ignored(tmp_path: Path) -> None:
    tensors = family_tensors(LLAMA3)
    other_head = {"lm_head.weight": torch.zeros(1)}
    write_folder(tmp_path, LLAMA3, tensors=tensors | other_head)

    assert open_checkpoint(tmp_path).names() == tensors.keys()


def test_stored_rotary_frequencies_are_ignored(tmp_path: Path) -> None:
    tensors = family_tensors(LLAMA2)
    derived = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}
    write_folder(tmp_path, LLAMA2, tensors=tensors | derived)

    assert open_checkpoint(tmp_path).names() == tensors.keys()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized by another tool"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ({"rope_scaling": {"type": "linear"}}, "'linear'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}}, "mscale"),
        ({"num_key_value_heads": 3}, "4 heads do not share 3"),
        ({"head_dim": 15}, "rotary pairs"),
        ({"hidden_size": 0}, "not positive"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_a_configuration_it_would_have_to_guess_at_is_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    write_folder(tmp_path, LLAMA2)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA2.fields | fields))

    with pytest.raises(CheckpointInvalid, match=message):
        open_checkpoint(tmp_path)


def test_an_unknown_architecture_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, changed(LLAMA2, model_type="mamba"))

    with pytest.raises(CheckpointInvalid, match="'mamba' is not one of: llama, mistral"):
        load_on_cpu(open_checkpoint(tmp_path))


def test_an_unknown_tensor_is_refused(tmp_path: Path) -> None:
    extra = {"model.layers.0.mlp.gate_proj.bias": torch.zeros(96)}
    write_folder(tmp_path, LLAMA2, tensors=family_tensors(LLAMA2) | extra)

    with pytest.raises(CheckpointInvalid, match=r"no use for .*gate_proj\.bias"):
        load_on_cpu(open_checkpoint(tmp_path))


def test_a_head_that_is_neither_stored_nor_tied_is_refused(tmp_path: Path) -> None:
    write_folder(
        tmp_path, changed(LLAMA3, tie_word_embeddings=False), tensors=family_tensors(LLAMA3)
    )

    with pytest.raises(CheckpointInvalid, match="does not tie it"):
        open_checkpoint(tmp_path)


def test_integers_are_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA2, dtype=torch.int8)

    with pytest.raises(CheckpointInvalid, match="not a float"):
        load_on_cpu(open_checkpoint(tmp_path))


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/x.safetensors", "a/b.safetensors"]
)
def test_an_index_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    write_folder(folder, LLAMA2, shards=2)
    shutil.copy(folder / "model-00001-of-00002.safetensors", tmp_path / "outside.safetensors")
    rewrite_index(folder, "model-00001-of-00002.safetensors", name)

    with pytest.raises(CheckpointInvalid, match="not a file of this folder"):
        open_checkpoint(folder)


def test_an_index_that_says_something_else_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA2, shards=2)
    rewrite_index(tmp_path, '"lm_head.weight"', '"lm_tail.weight"')

    with pytest.raises(CheckpointInvalid, match="not the tensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00002.safetensors"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, LLAMA2, shards=2)
    (tmp_path / name).unlink()

    with pytest.raises(CheckpointInvalid, match=name):
        open_checkpoint(tmp_path)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA2)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(CheckpointInvalid, match=r"model\.safetensors"):
        open_checkpoint(tmp_path)
