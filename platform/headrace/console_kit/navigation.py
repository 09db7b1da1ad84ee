"""Where everything is: the pages of both consoles, in the order of the rail.

Pure: says which entries somebody with these permissions sees. A page that is not here is not in
the rail; tests and screenshots walk this list. Called by `pages`.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tenants.contracts import Permission


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the rail: the name of its route, what it is called, and who may see it."""

    route: str
    title: str
    icon: str
    needs: Permission
    group: str = ""


TENANT: tuple[Entry, ...] = (
    Entry("overview", "Overview", "home", Permission.USAGE_READ),
    Entry("usage", "Usage", "chart-bar", Permission.USAGE_READ),
    Entry("jobs", "Jobs", "stack-2", Permission.JOBS_READ),
    Entry("playground", "Playground", "message", Permission.PLAYGROUND),
    Entry("keys", "API keys", "key", Permission.KEYS_READ, "Manage"),
    Entry("limits", "Limits", "gauge", Permission.LIMITS_READ, "Manage"),
    Entry("billing", "Billing", "credit-card", Permission.BILLING_READ, "Manage"),
    Entry("team", "Team", "users", Permission.MEMBERS_READ, "Manage"),
    Entry("webhooks", "Webhooks", "webhook", Permission.WEBHOOKS_READ, "Manage"),
    Entry("audit", "Audit log", "history", Permission.AUDIT_READ, "Manage"),
    Entry("settings", "Settings", "settings", Permission.ORGANIZATION_READ, "Manage"),
)


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """A page of the operator's rail: for staff, whatever their memberships."""

    route: str
    title: str
    icon: str


OPERATOR: tuple[OperatorEntry, ...] = (
    OperatorEntry("fleet", "Fleet", "server"),
    OperatorEntry("models", "Models and prices", "tag"),
    OperatorEntry("tenants", "Tenants", "building"),
    OperatorEntry("money", "Money", "coin"),
    OperatorEntry("system", "System", "activity"),
)


def seen_by(permissions: Collection[Permission]) -> tuple[Entry, ...]:
    """The tenant's pages that somebody who may do this can open."""
    return tuple(entry for entry in TENANT if entry.needs in permissions)
