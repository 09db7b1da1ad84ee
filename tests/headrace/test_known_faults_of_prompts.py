"""Prompts of models that want a begin-of-sequence token: one stands there, never two, whoever
writes it: the tokenizer for plain text, the template for a chat."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tokenizers.processors import TemplateProcessing

from billing.contracts import Offer
from headrace.gateway.admission.measuring import measure
from headrace.gateway.openai.chat_request import parse_chat_request
from headrace.gateway.openai.completions_request import parse_completions_request
from headrace.gateway.orders import Order
from inference.contracts import ModelLimits
from inference.tokenizer.build import build_bundle
from inference.tokenizer.prompt import PromptEncoder
from tests.inference.tokenizer.toy_vocabularies import byte_level_tokenizer, write_model_folder

BEGIN = byte_level_tokenizer().token_to_id("<|begin|>")
LIMITS = ModelLimits(
    context_tokens_max=64, pool_tokens=1000, vocab_size=300, embedding_dimensions=8
)
OFFER = Offer(uuid4(), "m", "M", "o", 64, 40, datetime.now(UTC))
WRITES_IT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
LEAVES_IT = "{% for m in messages %}{{ m.content }}{% endfor %}"


def encoder(folder: Path, template: str) -> PromptEncoder:
    """Of a model whose settings and whose tokenizer both ask for the token."""
    tokenizer = byte_level_tokenizer()
    tokenizer.post_processor = TemplateProcessing("<|begin|> $A", None, [("<|begin|>", BEGIN)])
    settings = {"bos_token": "<|begin|>", "add_bos_token": True, "chat_template": template}
    write_model_folder(folder / "weights", tokenizer, tokenizer_config=settings)
    return PromptEncoder(build_bundle(folder / "weights", folder, "toy"))


def begins(encoder: PromptEncoder, order: Order) -> list[list[int]]:
    """Where in each prompt of an order the token stands."""
    measured = asyncio.run(measure(encoder, order, OFFER, LIMITS))
    return [
        [place for place, token_id in enumerate(prompt) if token_id == BEGIN]
        for prompt in measured.prompts
    ]


@pytest.mark.parametrize(
    "content",
    ["an an", "<|begin|>an", [{"type": "text", "text": "an"}, {"type": "text", "text": "a"}]],
)
@pytest.mark.parametrize(("template", "places"), [(WRITES_IT, [0]), (LEAVES_IT, [])])
def test_a_chat_begins_as_its_template_has_it(
    tmp_path: Path, template: str, places: list[int], content: Any
) -> None:
    order = parse_chat_request(
        {"model": "m", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    )

    assert begins(encoder(tmp_path, template), order) == [places]


@pytest.mark.parametrize(
    ("prompt", "places"),
    [
        ("an an", [[0]]),
        (["an", "<|begin|>an"], [[0], [0]]),
        # Ids are taken as they are: who sends them has written the token or means none.
        ([[5, 6], [BEGIN, 5]], [[], [0]]),
    ],
)
def test_plain_text_begins_with_it_once(
    tmp_path: Path, prompt: Any, places: list[list[int]]
) -> None:
    order = parse_completions_request({"model": "m", "prompt": prompt, "max_tokens": 4})

    assert begins(encoder(tmp_path, WRITES_IT), order) == places
