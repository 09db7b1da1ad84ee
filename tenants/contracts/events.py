"""What other packages see of webhooks: the part of `tenants.contracts` that is about events."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tenants.contracts import InvalidValue, LimitReached, TenantObjectNotFound


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """An address that events are posted to; no kinds is all kinds. Its secret is never here."""

    endpoint_id: UUID
    url: str
    description: str
    kinds: tuple[str, ...]
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewWebhookEndpoint:
    """An endpoint and its secret, shown to its owner this once."""

    endpoint: WebhookEndpoint
    secret: str


@dataclass(frozen=True, slots=True)
class WebhookAttempt:
    """One try: `status_code` is what was answered, `error` why nothing was."""

    attempt: int
    started_at: datetime
    latency_ms: int
    status_code: int | None
    error: str
    answer_start: str


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """One event on its way to one endpoint: pending, delivered or failed; newest attempt first."""

    delivery_id: UUID
    endpoint_id: UUID
    event_id: UUID
    kind: str
    state: str
    attempts: int
    created_at: datetime
    next_at: datetime | None
    delivered_at: datetime | None
    log: tuple[WebhookAttempt, ...] = ()


class WebhookUrlRefused(InvalidValue):
    """Events are not posted there; the text says why, and its owner may read it."""

    def __init__(self, why: str) -> None:
        super().__init__("url", f"The URL cannot receive events: {why}.")
        self.why = why


class EventKindUnknown(InvalidValue):
    """No such kind of events."""

    def __init__(self, kind: str) -> None:
        super().__init__("kinds", f"There is no event kind {kind[:64]!r}.")


class WebhookNotFound(TenantObjectNotFound):
    """No such endpoint or delivery in this organization."""


class TooManyWebhooks(LimitReached):
    """The organization has as many endpoints, or deliveries on their way, as it may."""

    def __init__(self, message: str) -> None:
        super().__init__("webhooks", message)
