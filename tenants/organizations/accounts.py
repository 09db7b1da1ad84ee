"""Organizations: making and finding them, their settings, their status.

Members set what is theirs to set; currency, status and the organization's own minute limits are
the operator's, who acts as the housekeeper. Never touches keys or money.
"""

import re
import zoneinfo
from collections.abc import Collection
from functools import cache
from uuid import UUID

from django.db import connections
from uuid_utils.compat import uuid7

from tenants.audit import record_audit
from tenants.contracts import (
    Actor,
    InvalidValue,
    MinuteLimits,
    Organization,
    OrganizationNotFound,
    OrganizationSettings,
    OrganizationStatus,
    Permission,
    SecondFactorMissing,
)
from tenants.keys.settings import checked_display_name
from tenants.models import OrganizationRow
from tenants.organizations.minute_limits import limits_to_json
from tenants.people.permissions import operator_of
from tenants.scope import APP_ALIAS, tenant_scope

REQUESTS_PER_MINUTE_MAX = 600
TOKENS_PER_MINUTE_MAX = 1_000_000
CONCURRENT_REQUESTS_MAX = 64
COST_TAGS_MAX = 16
PROMPTS_KEPT_DAYS_MAX = 365
_COST_TAG = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Unset:
    """Says that a setting stays, where None is a value of its own."""


UNSET = _Unset()


def create_organization(
    slug: str,
    display_name: str,
    currency: str = "USD",
    *,
    requests_per_minute_max: int = REQUESTS_PER_MINUTE_MAX,
    tokens_per_minute_max: int = TOKENS_PER_MINUTE_MAX,
    concurrent_requests_max: int = CONCURRENT_REQUESTS_MAX,
    time_zone: str = "UTC",
    using: str = "housekeeper",
) -> Organization:
    """A new tenant, without projects. Raises IntegrityError when the slug is taken."""
    organization_id = uuid7()
    with tenant_scope(organization_id, using):
        OrganizationRow.objects.using(using).create(
            id=organization_id,
            slug=slug,
            display_name=display_name,
            currency=currency,
            requests_per_minute_max=requests_per_minute_max,
            tokens_per_minute_max=tokens_per_minute_max,
            concurrent_requests_max=concurrent_requests_max,
            time_zone=checked_time_zone(time_zone),
        )
        operator = operator_of(organization_id)
        record_audit(operator, "organization.created", "organization", organization_id, using=using)
    return Organization(organization_id, slug, display_name, currency)


def organization_slugs(using: str = "housekeeper") -> dict[UUID, str]:
    """What every organization is called, for an operator to read."""
    return dict(OrganizationRow.objects.using(using).values_list("id", "slug"))


def organization_by_slug(slug: str, using: str = APP_ALIAS) -> Organization | None:
    """The tenant of this slug, whoever asks: processes resolve a name before they open a scope."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT id, slug, display_name, currency FROM tenants_organization_by_slug(%s)", [slug]
        )
        row = cursor.fetchone()
    return None if row is None else Organization(*row)


def read_organization(actor: Actor) -> OrganizationSettings:
    """The actor's organization; raises OrganizationNotFound where it is gone."""
    actor.require(Permission.ORGANIZATION_READ)
    with tenant_scope(actor.organization_id):
        return _settings(_row(actor.organization_id, APP_ALIAS))


def update_organization(
    actor: Actor,
    *,
    display_name: str | None = None,
    time_zone: str | None = None,
    cost_tags: Collection[str] | None = None,
    cache_per_project: bool | None = None,
    second_factor_required: bool | None = None,
    prompts_kept_days: int | _Unset | None = UNSET,
) -> OrganizationSettings:
    """Set what is given; raises InvalidValue that names the setting.

    `prompts_kept_days` None keeps no prompts, UNSET leaves it as it is. Raises SecondFactorMissing
    where `second_factor_required` is set by whoever has none.
    """
    actor.require(Permission.ORGANIZATION_WRITE)
    given: dict[str, object] = {}
    if display_name is not None:
        given["display_name"] = checked_display_name(display_name)
    if time_zone is not None:
        given["time_zone"] = checked_time_zone(time_zone)
    if cost_tags is not None:
        given["cost_tags"] = _checked_tags(cost_tags)
    if cache_per_project is not None:
        given["cache_per_project"] = cache_per_project
    if second_factor_required is not None:
        if not actor.has_second_factor:
            raise SecondFactorMissing("Only a member who has a second factor may set this.")
        given["second_factor_required"] = second_factor_required
    if not isinstance(prompts_kept_days, _Unset):
        given["prompts_kept_days"] = _checked_days(prompts_kept_days)
    with tenant_scope(actor.organization_id):
        row = _row(actor.organization_id, APP_ALIAS, lock=True)
        changed = {name: value for name, value in given.items() if getattr(row, name) != value}
        if changed:
            OrganizationRow.objects.filter(id=row.id).update(**changed)
            details = {
                name: {"from": getattr(row, name), "to": value} for name, value in changed.items()
            }
            record_audit(actor, "organization.updated", "organization", row.id, details)
        return _settings(_row(actor.organization_id, APP_ALIAS))


def set_organization_status(
    organization_id: UUID,
    status: OrganizationStatus,
    using: str = "housekeeper",
    *,
    operator: Actor | None = None,
) -> None:
    """Suspend, reactivate or close a tenant, as the operator; its keys feel it at once.

    `operator` is who of them, for the audit log. Raises OrganizationNotFound.
    """
    with tenant_scope(organization_id, using):
        row = _row(organization_id, using, lock=True)
        before = row.status
        if before != status.value:
            OrganizationRow.objects.using(using).filter(id=row.id).update(status=status.value)
            record_audit(
                operator or operator_of(organization_id),
                f"organization.{'reactivated' if status == 'active' else status.value}",
                "organization",
                row.id,
                {"from": before},
                using,
            )


def set_organization_limits(
    organization_id: UUID,
    limits: MinuteLimits,
    using: str = "housekeeper",
    *,
    operator: Actor | None = None,
) -> None:
    """The organization's own minute limits, as the operator; those of None keep their value.

    `operator` is who of them, for the audit log. Raises InvalidValue, OrganizationNotFound.
    """
    columns = {_LIMIT_COLUMNS[name]: value for name, value in limits_to_json(limits).items()}
    with tenant_scope(organization_id, using):
        row = _row(organization_id, using, lock=True)
        before = {name: getattr(row, name) for name in columns}
        OrganizationRow.objects.using(using).filter(id=row.id).update(**columns)
        record_audit(
            operator or operator_of(organization_id),
            "limit.changed",
            "organization",
            row.id,
            {"from": before, "to": columns},
            using,
        )


_LIMIT_COLUMNS = {
    "requests_max": "requests_per_minute_max",
    "tokens_max": "tokens_per_minute_max",
    "input_tokens_max": "input_tokens_per_minute_max",
    "output_tokens_max": "output_tokens_per_minute_max",
    "concurrent_max": "concurrent_requests_max",
}


@cache
def _time_zones() -> frozenset[str]:
    """Names that Python and PostgreSQL read alike: not the machine's own, `localtime`."""
    with connections[APP_ALIAS].cursor() as cursor:
        cursor.execute("SELECT name FROM pg_timezone_names")
        known = {str(name) for (name,) in cursor.fetchall()}
    return frozenset((zoneinfo.available_timezones() & known) - {"localtime", "Factory"})


def checked_time_zone(name: str) -> str:
    """An IANA name; raises InvalidValue."""
    if name != "UTC" and name not in _time_zones():
        raise InvalidValue("time_zone", "not the name of an IANA time zone, as Europe/Amsterdam")
    return name


def _checked_tags(tags: Collection[str]) -> list[str]:
    if len(tags) > COST_TAGS_MAX or not all(_COST_TAG.fullmatch(tag) for tag in tags):
        raise InvalidValue(
            "cost_tags", f"at most {COST_TAGS_MAX} names of letters, digits, dots and hyphens"
        )
    return sorted(set(tags))


def _checked_days(days: int | None) -> int | None:
    if days is not None and not 1 <= days <= PROMPTS_KEPT_DAYS_MAX:
        raise InvalidValue("prompts_kept_days", f"1 to {PROMPTS_KEPT_DAYS_MAX} days, or null")
    return days


def _row(organization_id: UUID, using: str, *, lock: bool = False) -> OrganizationRow:
    rows = OrganizationRow.objects.using(using)
    if lock:
        rows = rows.select_for_update(no_key=True)
    row = rows.filter(id=organization_id).first()
    if row is None:
        raise OrganizationNotFound("no such organization")
    return row


def limits_of(row: OrganizationRow) -> MinuteLimits:
    """The organization's own."""
    return MinuteLimits(**{name: getattr(row, column) for name, column in _LIMIT_COLUMNS.items()})


def _settings(row: OrganizationRow) -> OrganizationSettings:
    return OrganizationSettings(
        organization_id=row.id,
        slug=row.slug,
        display_name=row.display_name,
        currency=row.currency,
        status=OrganizationStatus(row.status),
        time_zone=row.time_zone,
        limits=limits_of(row),
        cost_tags=tuple(row.cost_tags),
        cache_per_project=row.cache_per_project,
        second_factor_required=row.second_factor_required,
        prompts_kept_days=row.prompts_kept_days,
        created_at=row.created_at,
    )
