"""What the fake remembers: objects by kind, its clock, and the events they caused.

Everything lives in memory; a file may carry it across restarts. Must never be shared between
processes. Called by the handlers, one at a time, on the event loop's thread.
"""

import copy
import json
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from billing.stripe_sync.fake.faults import invalid, missing

Json = dict[str, Any]  # an object as the API shows it
API_VERSION = "2026-10-28.endive"
OBJECTS_MAX = 100_000
"""Objects of one kind; the oldest are forgotten past it."""
ID_BYTES = 12
PAGE_DEFAULT = 10
PAGE_MAX = 100


class Store:
    """One Stripe account in test mode."""

    def __init__(self, file: Path | None = None, public_url: str = "http://127.0.0.1") -> None:
        self.public_url = public_url
        """Where a browser finds the hosted pages."""
        self.kinds: dict[str, dict[str, Json]] = {}
        self.clock_offset_s = 0
        self.replies: dict[str, Json] = {}
        """Idempotency keys and what they were answered."""
        self.on_event: Callable[[Json], None] = lambda event: None
        self.request: Json = {"id": None, "idempotency_key": None}
        self._sequence = 0
        self._file = file
        if file is not None and file.exists():
            saved = json.loads(file.read_text(encoding="utf-8"))
            self.kinds, self.replies = saved["kinds"], saved["replies"]
            self.clock_offset_s, self._sequence = saved["clock_offset_s"], saved["sequence"]

    def now(self) -> int:
        """Unix seconds by the fake's own clock."""
        return int(time.time()) + self.clock_offset_s

    def save(self) -> None:
        """Writes the file, where there is one, in one step."""
        if self._file is None:
            return
        draft = self._file.with_suffix(".draft")
        saved = {
            "kinds": self.kinds,
            "replies": self.replies,
            "clock_offset_s": self.clock_offset_s,
            "sequence": self._sequence,
        }
        draft.write_text(json.dumps(saved), encoding="utf-8")
        draft.replace(self._file)

    def new_id(self, prefix: str) -> str:
        """An id of Stripe's shape; ids of one process sort by their making."""
        self._sequence += 1
        return f"{prefix}_{self._sequence:08x}{secrets.token_hex(ID_BYTES)}"

    def add(self, kind: str, made: Json) -> Json:
        """Keeps a new object."""
        objects = self.kinds.setdefault(kind, {})
        objects[made["id"]] = made
        while len(objects) > OBJECTS_MAX:
            del objects[next(iter(objects))]
        return made

    def all(self, kind: str) -> Iterator[Json]:
        """Newest first, as lists are."""
        return reversed(self.kinds.get(kind, {}).values())

    def find(self, kind: str, object_id: str) -> Json | None:
        """The object, or None."""
        return self.kinds.get(kind, {}).get(object_id)

    def get(self, kind: str, object_id: str, param: str = "id") -> Json:
        """The object; raises Fault naming the parameter that named it."""
        found = self.find(kind, object_id)
        if found is None:
            raise missing(
                kind.replace("_", " ").replace("payment method", "PaymentMethod"), object_id, param
            )
        return found

    def emit(self, type_: str, about: Json, previous: Json | None = None) -> Json:
        """Records an event about an object as it is now, and has it delivered."""
        data: Json = {"object": copy.deepcopy(about)}
        if previous is not None:
            data["previous_attributes"] = previous
        event = self.add(
            "event",
            {
                "id": self.new_id("evt"),
                "object": "event",
                "api_version": API_VERSION,
                "created": self.now(),
                "data": data,
                "livemode": False,
                "pending_webhooks": 0,
                "request": dict(self.request),
                "type": type_,
            },
        )
        self.on_event(event)
        return event


def page(
    objects: Iterator[Json], url: str, limit: int | None, after: str | None, before: str | None
) -> Json:
    """One page of a list that runs newest first. Raises Fault for a limit out of bounds."""
    limit = PAGE_DEFAULT if limit is None else limit
    if not 1 <= limit <= PAGE_MAX:
        raise invalid(f"Invalid limit: must be between 1 and {PAGE_MAX}", "limit")
    every = list(objects)
    ids = [each["id"] for each in every]
    if after is not None:
        if after not in ids:
            raise missing("object", after, "starting_after")
        every = every[ids.index(after) + 1 :]
    elif before is not None:
        if before not in ids:
            raise missing("object", before, "ending_before")
        every = every[: ids.index(before)]
        return {
            "object": "list",
            "url": url,
            "has_more": len(every) > limit,
            "data": every[-limit:],
        }
    return {"object": "list", "url": url, "has_more": len(every) > limit, "data": every[:limit]}


def all_of(objects: list[Json], url: str) -> Json:
    """A list that is embedded whole in another object."""
    return {"object": "list", "url": url, "has_more": False, "data": objects}
