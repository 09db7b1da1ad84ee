"""The kinds of events that tenants are told of: the one registry.

Packages above add theirs when Django starts (`register_event_kind`). A kind's data holds ids, names
and amounts, never a secret and never a prompt: it is posted to addresses outside.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tenants.contracts import EventKind

_SHAPE = re.compile(r"[a-z_]+(\.[a-z_]+)+")

OWNERS = frozenset({"owner", "admin"})
PAYERS = frozenset({"owner", "billing"})


@dataclass(slots=True)
class _Registry:
    kinds: dict[str, EventKind]


_registry = _Registry({})


def register_event_kind(
    name: str, description: str, mail_roles: frozenset[str] = frozenset(), mail_kind: str = ""
) -> None:
    """Make a kind known; members of `mail_roles` get a mail of each such event.

    `mail_kind` names the mail's template, by default the kind's own. Raises ValueError for a
    malformed name or one that is registered with another meaning.
    """
    kind = EventKind(name, description, mail_roles, mail_kind or name)
    if not _SHAPE.fullmatch(name) or _registry.kinds.get(name, kind) != kind:
        raise ValueError(f"{name!r} is no event kind that can be registered")
    _registry.kinds[name] = kind


def event_kinds() -> Mapping[str, EventKind]:
    """All that are registered, by name."""
    return MappingProxyType(_registry.kinds)


register_event_kind("key.created", "An API key was made.", OWNERS)
register_event_kind("key.rotated", "An API key was replaced by another.", OWNERS)
register_event_kind(
    "budget.threshold_reached", "A budget passed one of its thresholds.", OWNERS | PAYERS
)
register_event_kind("balance.low", "The balance fell below its warning level.", PAYERS)
register_event_kind("topup.succeeded", "A payment was added to the balance.", PAYERS)
register_event_kind("recharge.failed", "An automatic payment failed.", PAYERS)
register_event_kind("invoice.issued", "An invoice was issued.", PAYERS)
register_event_kind(
    "endpoint.disabled", "A webhook endpoint failed for so long that it was disabled.", OWNERS
)
register_event_kind("endpoint.test", "A test event, asked for by a member.")
register_event_kind("export.ready", "An export of the organization's data is ready.")
