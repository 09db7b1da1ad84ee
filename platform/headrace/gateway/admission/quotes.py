"""Prices in force, remembered for a second: one look-up less on every request."""

import time
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import quote as percent_encoded
from uuid import UUID

import billing.facade
from billing.contracts import ModelNotFound, ModelRetired, Offer, Quote, ServiceTier
from headrace import errors
from headrace.gateway.database import in_database

QUOTE_TTL_S = 1.0
QUOTES_MAX = 4_096


class QuoteCache:
    """Prices in force, at most `QUOTE_TTL_S` old."""

    def __init__(self) -> None:
        self._quotes: dict[tuple[UUID, UUID, str, ServiceTier], tuple[float, Quote]] = {}

    async def quote(
        self, organization_id: UUID, project_id: UUID, model: str, tier: ServiceTier
    ) -> Quote:
        """The unit prices of what a project means by a model's name; raises ApiError 404."""
        key = (organization_id, project_id, model, tier)
        hit = self._quotes.get(key)
        if hit is not None and hit[0] > time.monotonic():
            return hit[1]
        try:
            quote = await in_database(
                billing.facade.quote, organization_id, project_id, model, tier
            )
        except ModelRetired as error:
            raise errors.model_retired(model, error.successor) from None
        except ModelNotFound:
            raise errors.model_not_found(model) from None
        if len(self._quotes) >= QUOTES_MAX:
            self._quotes.clear()
        self._quotes[key] = (time.monotonic() + QUOTE_TTL_S, quote)
        return quote


def life_headers(offer: Offer) -> dict[str, str]:
    """What tells clients that a model will go: RFC 9745 and RFC 8594; none for one that stays."""
    headers = {}
    if offer.deprecated_at is not None:
        headers["deprecation"] = f"@{int(offer.deprecated_at.timestamp())}"
    if offer.shutdown_at is not None:
        headers["sunset"] = http_date(offer.shutdown_at)
    if offer.successor is not None:
        path = f"/v1/models/{percent_encoded(offer.successor, safe='/:')}"
        headers["link"] = f'<{path}>; rel="successor-version"'
    return headers


def http_date(moment: datetime) -> str:
    """A moment as HTTP headers write it."""
    return format_datetime(moment.astimezone(UTC), usegmt=True)
