"""A Hugging Face folder becomes a bundle and runs, or is refused once it was altered."""

from pathlib import Path

import pytest

from inference.engine.computing.runner import load_runner
from inference.engine.step import Runner
from inference.tokenizer.build import build_bundle
from inference.tokenizer.bundle import Bundle
from inference.tokenizer.prompt import ChatMessage, PromptEncoder
from inference.weights.checkpoint import CheckpointInvalid
from inference.weights.open_checkpoint import open_checkpoint
from tests.inference.engine.computing.decoding import Decoding, decode
from tests.inference.models.stepping import greedy, load_on_cpu
from tests.inference.models.toy_families import Toy, write_folder
from tests.inference.tokenizer.toy_vocabularies import TEMPLATE, byte_level_tokenizer

TOY = Toy("qwen3", 5, {"model_type": "qwen3", "vocab_size": 300, "head_dim": 32})


@pytest.fixture
def toy_bundle(tmp_path: Path) -> Bundle:
    write_folder(tmp_path / "weights", TOY, shards=2)
    (tmp_path / "weights" / "tokenizer.json").write_text(byte_level_tokenizer().to_str())
    (tmp_path / "weights" / "chat_template.jinja").write_text(TEMPLATE)
    return build_bundle(tmp_path / "weights", tmp_path, "toy")


def load(bundle: Bundle) -> Runner:
    return load_runner(bundle, pool_tokens=256, threads=1, device="cpu", weight_format="float32")


def test_it_answers_as_the_model_does(toy_bundle: Bundle) -> None:
    prompt = PromptEncoder(toy_bundle).encode_chat([ChatMessage("user", "What is 1234?")])
    decoding = Decoding(uncomputed=list(prompt), blocks=list(range(4)), limit=12)

    decode(load(toy_bundle), [decoding])

    model = load_on_cpu(open_checkpoint(toy_bundle.folder / "weights"))
    assert [decoding.output] == greedy(model, [prompt], 12)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"]
)
def test_altered_weights_are_refused(toy_bundle: Bundle, name: str) -> None:
    with (toy_bundle.folder / "weights" / name).open("ab") as file:
        file.write(b" ")

    with pytest.raises(CheckpointInvalid, match="not the weights this bundle was built from"):
        load(toy_bundle)
