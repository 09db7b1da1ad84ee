"""What an import is to make: frozen values between deciding (`plan`) and doing (`carrying_out`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from billing.contracts import QuotaPeriod
from tenants.contracts import NO_LIMITS, KeySettings, MinuteLimits, Role


@dataclass(frozen=True, slots=True)
class QuotaPlan:
    """A limit of spending."""

    amount_pico: int
    period: QuotaPeriod
    is_hard: bool


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """A key whose holder keeps the secret."""

    secret_hash: bytes
    shown: str
    settings: KeySettings
    quotas: tuple[QuotaPlan, ...]


@dataclass(frozen=True, slots=True)
class ProjectPlan:
    """A team, or a person's own keys."""

    name: str
    limits: MinuteLimits = NO_LIMITS
    quotas: tuple[QuotaPlan, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[KeyPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class OrganizationPlan:
    """A tenant; `members` are roles by e-mail address."""

    slug: str
    display_name: str
    limits: MinuteLimits = NO_LIMITS
    quotas: tuple[QuotaPlan, ...] = ()
    members: Mapping[str, Role] = field(default_factory=dict)
    projects: tuple[ProjectPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that does not fit, and what becomes of it."""

    kind: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All of an import."""

    organizations: tuple[OrganizationPlan, ...]
    leftovers: tuple[Leftover, ...]
