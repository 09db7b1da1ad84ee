"""A payment provider for tests: it notes what it is asked, and pays when it is told to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from uuid import UUID

from billing.contracts import StartedTopUp, TopUp
from billing.credit import topups
from billing.facade import note_payment, use_payment_provider


@dataclass
class Till:
    """What was begun and charged, by top-up."""

    begun: list[UUID] = field(default_factory=list)
    charged: list[UUID] = field(default_factory=list)

    def begin(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """A page to pay on."""
        self.begun.append(top_up.top_up_id)
        note_payment(top_up.organization_id, top_up.top_up_id, f"pay_{top_up.top_up_id.hex}")
        return StartedTopUp(top_up, f"https://pay.example/{top_up.top_up_id}")

    def resume(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        """The same page."""
        return StartedTopUp(top_up, f"https://pay.example/{top_up.top_up_id}")

    def charge(self, top_up: TopUp) -> None:
        """A payment by the method on file."""
        self.charged.append(top_up.top_up_id)


@contextmanager
def open_till() -> Iterator[Till]:
    """The provider of a test; the one before comes back after it."""
    before = topups._port.provider
    till = Till()
    use_payment_provider(till)
    try:
        yield till
    finally:
        use_payment_provider(before)
