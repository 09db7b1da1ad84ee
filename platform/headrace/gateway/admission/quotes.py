"""Prices in force, remembered for a second: one look-up less on every request."""

import time
from uuid import UUID

import billing.facade
from billing.contracts import ModelNotFound, Quote, ServiceTier
from headrace import errors
from headrace.gateway.database import in_database

QUOTE_TTL_S = 1.0
QUOTES_MAX = 4_096


class QuoteCache:
    """Prices in force, at most `QUOTE_TTL_S` old."""

    def __init__(self) -> None:
        self._quotes: dict[tuple[UUID, str, ServiceTier], tuple[float, Quote]] = {}

    async def quote(self, organization_id: UUID, model: str, tier: ServiceTier) -> Quote:
        """The unit prices of a model for a tenant; raises ApiError 404."""
        key = (organization_id, model, tier)
        hit = self._quotes.get(key)
        if hit is not None and hit[0] > time.monotonic():
            return hit[1]
        try:
            quote = await in_database(billing.facade.quote, organization_id, model, tier)
        except ModelNotFound:
            raise errors.model_not_found(model) from None
        if len(self._quotes) >= QUOTES_MAX:
            self._quotes.clear()
        self._quotes[key] = (time.monotonic() + QUOTE_TTL_S, quote)
        return quote
