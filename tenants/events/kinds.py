"""The kinds of events that tenants are told of: the one registry.

Packages above add theirs when Django starts (`register_event_kind`). A kind's data holds ids, names
and amounts, never a secret and never a prompt: it is posted to addresses outside.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tenants.contracts import EventKind, Permission

_SHAPE = re.compile(r"[a-z_]+(\.[a-z_]+)+")


@dataclass(slots=True)
class _Registry:
    kinds: dict[str, EventKind]


_registry = _Registry({})


def register_event_kind(
    name: str, description: str, mail_permission: Permission | None = None
) -> None:
    """Make a kind known; members with `mail_permission` get a mail of each such event.

    Raises ValueError for a malformed name or one that is registered with another meaning.
    """
    kind = EventKind(name, description, mail_permission)
    if not _SHAPE.fullmatch(name) or _registry.kinds.get(name, kind) != kind:
        raise ValueError(f"{name!r} is no event kind that can be registered")
    _registry.kinds[name] = kind


def event_kinds() -> Mapping[str, EventKind]:
    """All that are registered, by name."""
    return MappingProxyType(_registry.kinds)


register_event_kind("key.created", "An API key was made.", Permission.AUDIT_READ)
register_event_kind(
    "key.rotated",
    "An API key was replaced by a new one.",
    Permission.AUDIT_READ,
)
register_event_kind(
    "budget.threshold_reached", "A budget passed one of its thresholds.", Permission.BILLING_READ
)
register_event_kind(
    "balance.low", "The balance fell below its warning level.", Permission.BILLING_READ
)
register_event_kind("topup.succeeded", "A payment came in.", Permission.BILLING_READ)
register_event_kind("recharge.failed", "An automatic payment failed.", Permission.BILLING_READ)
register_event_kind("invoice.issued", "An invoice was issued.", Permission.BILLING_READ)
register_event_kind(
    "endpoint.disabled",
    "A webhook endpoint failed for so long that it was disabled.",
    Permission.WEBHOOKS_WRITE,
)
register_event_kind("endpoint.test", "A test event that a member asked for.")
register_event_kind("export.ready", "An export of the organization's data is ready.")
