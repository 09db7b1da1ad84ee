"""The sockets of this process that people opened by their session, and who is asked about again.

One look for all of them together, every LIVE_CHECK_S, as long as there are any. Belongs to one
event loop. Held by the runtime; the sockets sit down here and get up again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from headrace.gateway.database import in_database
from headrace.sign_in.sittings import Sitting, ended_among


@dataclass(frozen=True, slots=True)
class _Seat:
    sitting: Sitting
    signed_out: Callable[[], None]
    barred: Callable[[], None]


class WatchedSittings:
    """Who sits, by their socket."""

    def __init__(self) -> None:
        self._seats: dict[object, _Seat] = {}

    def __len__(self) -> int:
        """How many sit."""
        return len(self._seats)

    def of(self, user_id: UUID) -> int:
        """How many seats one person has."""
        return sum(seat.sitting.user_id == user_id for seat in self._seats.values())

    def sit(
        self,
        socket: object,
        sitting: Sitting,
        signed_out: Callable[[], None],
        barred: Callable[[], None],
    ) -> None:
        """From now on one of the two is called when they may be here no more."""
        self._seats[socket] = _Seat(sitting, signed_out, barred)

    def leave(self, socket: object) -> None:
        """Gives the seat back, if there is one."""
        self._seats.pop(socket, None)

    async def look(self) -> None:
        """Asks about all; raises DatabaseError, and then nobody is sent away."""
        seats = list(self._seats.values())
        if not seats:
            return
        ended, barred = await in_database(ended_among, {seat.sitting for seat in seats})
        for seat in seats:
            if seat.sitting in ended:
                seat.signed_out()
            elif seat.sitting in barred:
                seat.barred()
