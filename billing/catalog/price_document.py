"""A price book as an operator writes it: JSON, prices in units of currency per million tokens.

    {"currency": "USD", "note": "autumn", "prices": {
        "smollm2": {"interactive": {"input": "0.05", "cached_input": "0.005", "output": "0.25"},
                    "batch": {"input": "0.025", "output": "0.125"}}}}

`null` ends a price. Pure; numbers are read as the decimals they are written as, never as floats.
Called by the commands that publish and preview prices.
"""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from billing.contracts import DraftBook, PriceBookInvalid, PriceEntry, ServiceTier, TokenClass
from billing.pricing import parse_per_million

DOCUMENT_CHARS_MAX = 1_000_000
FIELDS = {"currency", "note", "prices"}
CURRENCY_CHARS = 3


def parse_price_document(text: str, organization_id: UUID | None = None) -> DraftBook:
    """The draft that a document describes, of the list or of one tenant.

    Raises PriceBookInvalid, which says where, for anything that is not exactly such a document; a
    price finer than a micro-unit is taken for one per token.
    """
    if len(text) > DOCUMENT_CHARS_MAX:
        raise PriceBookInvalid("the document is too long")
    try:
        document = json.loads(
            text, parse_float=str, parse_int=str, object_pairs_hook=_without_repeats
        )
    except (ValueError, RecursionError) as error:
        raise PriceBookInvalid(f"the document is no JSON: {error}") from error
    _object(document, "the document", FIELDS)
    currency, note = document.get("currency", "USD"), document.get("note", "")
    if not isinstance(currency, str) or len(currency) != CURRENCY_CHARS or not currency.isupper():
        raise PriceBookInvalid("currency: three capital letters")
    if not isinstance(note, str):
        raise PriceBookInvalid("note: a text")
    entries = tuple(_entries(document.get("prices")))
    return DraftBook(entries, currency, note, organization_id)


def _entries(prices: Any) -> Iterator[PriceEntry]:  # JSON of an operator's hand
    for model, tiers in _object(prices, "prices").items():
        for tier, classes in _object(tiers, model, set(ServiceTier)).items():
            where = f"{model}, {tier}"
            for token_class, price in _object(classes, where, set(TokenClass)).items():
                try:
                    micros = None if price is None else parse_per_million(price)
                except (ValueError, AttributeError) as error:
                    raise PriceBookInvalid(f"{where}, {token_class}: {error}") from error
                yield PriceEntry(model, ServiceTier(tier), TokenClass(token_class), micros)


def _object(value: Any, where: str, known: set[Any] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise PriceBookInvalid(f"{where}: an object that is not empty")
    for name in value:
        if known is not None and name not in known:
            raise PriceBookInvalid(f"{where}: unknown {name!r}")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice in one object")
    return found
