"""Who pays for usage: the model of the order in which grants are burned, and of their end.

Pure; sql/0006_credit.sql is what runs, and a property test holds the two together. Since the set of
grants changes only behind a burn, it never shows how late that burn came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from billing.contracts import GrantCategory

NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant in force; `age` orders those that agree in everything else, oldest first."""

    age: int
    category: GrantCategory
    priority: int
    remaining_pico: int
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Burned:
    """The grants afterwards, in the order given, and what nothing paid for."""

    grants: tuple[Grant, ...]
    owed_pico: int


def burn_order(grants: Sequence[Grant]) -> list[Grant]:
    """Promotional first, then lower priority, earlier expiry (never is last), age."""
    return sorted(
        grants,
        key=lambda grant: (
            grant.category is GrantCategory.PAID,
            grant.priority,
            grant.expires_at or NEVER,
            grant.age,
        ),
    )


def burn(grants: Sequence[Grant], owed_pico: int) -> Burned:
    """Let the grants pay what is owed, each as far as it reaches."""
    remaining = {grant.age: grant.remaining_pico for grant in grants}
    for grant in burn_order(grants):
        part = min(max(owed_pico, 0), grant.remaining_pico)
        remaining[grant.age] -= part
        owed_pico -= part
    return Burned(
        tuple(replace(grant, remaining_pico=remaining[grant.age]) for grant in grants), owed_pico
    )


def expire(grants: Sequence[Grant], free_pico: int, moment: datetime) -> tuple[Grant, ...]:
    """End what has expired by `moment`, of the credit that no open hold reserves."""
    remaining = {grant.age: grant.remaining_pico for grant in grants}
    due = [grant for grant in grants if grant.expires_at is not None and grant.expires_at <= moment]
    for grant in sorted(due, key=lambda grant: (grant.expires_at or NEVER, grant.age)):
        part = min(max(free_pico, 0), grant.remaining_pico)
        remaining[grant.age] -= part
        free_pico -= part
    return tuple(replace(grant, remaining_pico=remaining[grant.age]) for grant in grants)
