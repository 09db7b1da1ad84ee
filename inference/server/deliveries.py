"""Finishes on their way: into the journal, to a client that settles them, until acknowledged.

Each goes first to the connection that carried its request; if that dies unacknowledged, at once to
another one, and to any that opens later. Whatever stays unacknowledged is repeated. Nothing is sent
before it is durable, and the compute thread never waits for the disk. Owned by the server, lives on
the event loop.
"""

import asyncio
import logging
import time
from dataclasses import dataclass, replace

from inference.contracts import Finish, FinishReason
from inference.server.connection import Connection
from inference.server.journal import Journal

logger = logging.getLogger(__name__)

RESEND_S = 5.0
"""How long a client may take to settle before the same finish is sent again."""


@dataclass(slots=True)
class _Delivery:
    finish: Finish
    owner: Connection | None
    durable: bool
    carrier: Connection | None = None
    sent_at_s: float = 0.0


class Deliveries:
    """All finishes without acknowledgement, those replayed from the journal included."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._deliveries = {
            request_id: _Delivery(finish, owner=None, durable=True)
            for request_id, finish in journal.unacknowledged.items()
        }
        self._connections: list[Connection] = []
        self._unsynced: list[str] = []
        self._wake = asyncio.Event()
        self.all_acknowledged = asyncio.Event()
        self._note_count()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._deliveries

    def __len__(self) -> int:
        return len(self._deliveries)

    def add(self, finish: Finish, owner: Connection) -> None:
        """Takes over a finish of a request that `owner` carried."""
        if owner.closed:
            finish = _peer_lost(finish, owner)
        self._deliveries[finish.request_id] = _Delivery(finish, owner, durable=False)
        self._unsynced.append(finish.request_id)
        self._note_count()
        self._wake.set()

    def acknowledge(self, request_ids: list[str]) -> None:
        """Forgets settled finishes; unknown ids are ignored, they were acknowledged before."""
        for request_id in self._journal.acknowledge(request_ids):
            del self._deliveries[request_id]
        self._note_count()

    def connection_opened(self, connection: Connection) -> None:
        """Sends the newcomer every finish that no live connection holds."""
        self._connections.append(connection)
        for delivery in self._deliveries.values():
            if delivery.carrier is None:
                self._send(delivery)

    def connection_closed(self, connection: Connection) -> None:
        """Passes on what the dead connection held; what it never wrote ends as PEER_LOST."""
        if connection in self._connections:
            self._connections.remove(connection)
        for request_id, delivery in self._deliveries.items():
            if delivery.owner is connection and request_id in connection.sent:
                delivery.finish = _peer_lost(delivery.finish, connection)
                delivery.durable = False
                delivery.carrier = None
                self._unsynced.append(request_id)
                self._wake.set()
            elif connection in (delivery.carrier, delivery.owner):
                delivery.carrier = None
                self._send(delivery)

    async def run(self) -> None:
        """Journals and sends what was added, and repeats what is overdue; raises JournalError."""
        resend_at_s = time.monotonic() + RESEND_S
        while True:
            try:
                async with asyncio.timeout(max(resend_at_s - time.monotonic(), 0.0)):
                    await self._wake.wait()
            except TimeoutError:
                self._resend_overdue()
                resend_at_s = time.monotonic() + RESEND_S
            self._wake.clear()
            if self._unsynced:
                await self._journal_and_send()

    async def _journal_and_send(self) -> None:
        batch, self._unsynced = self._unsynced, []
        recorded = {i: self._deliveries[i].finish for i in batch if i in self._deliveries}
        self._journal.record(recorded.values())
        await asyncio.to_thread(self._journal.sync)
        self._journal.compact_if_due()
        for request_id, finish in recorded.items():
            delivery = self._deliveries.get(request_id)
            # Replaced meanwhile: its connection died, and the new version is in the next batch.
            if delivery is not None and delivery.finish is finish:
                delivery.durable = True
                self._send(delivery)

    def _resend_overdue(self) -> None:
        due_s = time.monotonic() - RESEND_S
        for delivery in self._deliveries.values():
            if delivery.sent_at_s <= due_s:
                self._send(delivery)

    def _send(self, delivery: _Delivery) -> None:
        """To the owner while it lives, else to the next of the live connections in turn."""
        carrier = delivery.owner
        # A dying owner: what it was sent is known only when `connection_closed` says so.
        is_dying = carrier is not None and carrier.closed and carrier in self._connections
        if is_dying or not delivery.durable:
            return
        if carrier is None or carrier.closed:
            if not self._connections:
                delivery.carrier = None
                return
            carrier = self._connections.pop(0)
            self._connections.append(carrier)
        delivery.carrier = carrier
        delivery.sent_at_s = time.monotonic()
        carrier.deliver(delivery.finish)

    def _note_count(self) -> None:
        if self._deliveries:
            self.all_acknowledged.clear()
        else:
            self.all_acknowledged.set()


def _peer_lost(finish: Finish, owner: Connection) -> Finish:
    """However the request ended, its client never got that end: `sent` is what it had got."""
    sent = owner.sent.get(finish.request_id, finish.sent)
    return replace(finish, reason=FinishReason.PEER_LOST, sent=sent)
