"""Quotas: what an organization, a project, a key or an end user may use in a day or a month.

They live in PostgreSQL and are enforced inside the hold; setting one here counts the window that
runs, so nothing used before goes free. Minute limits are the gateway's, on Redis. Called by the
management API and by operators.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import IntegrityError, connections

from billing.contracts import (
    END_USER_LENGTH_MAX,
    Quota,
    QuotaInvalid,
    QuotaMetric,
    QuotaNotFound,
    QuotaPeriod,
    QuotaScope,
    QuotaSubject,
    QuotaWanted,
)
from billing.retry import again
from tenants.contracts import Actor, ActorKind, Permission
from tenants.facade import fits_a_subject, record_audit, strangers_among, tenant_scope

QUOTAS_MAX = 100
"""Quotas of one organization: each hold looks at all of them."""
SUBJECTS_SHOWN_MAX = 20
"""End users shown of a quota that each of them has."""
AMOUNT_MAX = 10**30
RECIPIENTS_MAX = 10

Result = TypeVar("Result")


def quotas(actor: Actor, using: str = "default") -> list[Quota]:
    """The organization's quotas, oldest first. Raises PermissionDenied."""
    actor.require(Permission.LIMITS_READ)
    with tenant_scope(actor.organization_id, using):
        return _in_force(actor.organization_id, using)


def set_quota(actor: Actor, wanted: QuotaWanted, using: str = "default") -> Quota:
    """Put a quota in force, in place of the one for the same scope, metric and period.

    Soft ones of several amounts stand side by side. Raises PermissionDenied, QuotaInvalid, and
    QuotaNotFound when the organization has no such project or key.
    """
    actor.require(Permission.LIMITS_WRITE)
    _check(wanted)
    return _in_scope(actor, using, lambda: _put(actor, wanted, using))


def change_quota(
    actor: Actor, quota_id: UUID, wanted: QuotaWanted, using: str = "default"
) -> Quota:
    """Give a quota another amount or other recipients; all else of `wanted` is what it is.

    Raises as `set_quota` does, QuotaNotFound for any other, and QuotaInvalid when a soft one of
    that amount stands already.
    """
    actor.require(Permission.LIMITS_WRITE)
    _check(wanted)
    return _in_scope(actor, using, lambda: _put(actor, wanted, using, quota_id))


def replace_quotas(
    actor: Actor, wanted: Sequence[QuotaWanted], using: str = "default"
) -> list[Quota]:
    """Make these the organization's quotas, all of them or, when one cannot be, none.

    Raises as `set_quota` does, and QuotaInvalid when two are for the same thing.
    """
    actor.require(Permission.LIMITS_WRITE)
    for one in wanted:
        _check(one)
    if len({_same_thing(one) for one in wanted}) < len(wanted):
        raise QuotaInvalid("two limits are for the same thing", "quotas")

    def work() -> list[Quota]:
        kept = {_put(actor, one, using).quota_id for one in wanted}
        if len(kept) < len(wanted):
            raise QuotaInvalid("two limits are for keys of one line of rotations", "quotas")
        for standing in _in_force(actor.organization_id, using):
            if standing.quota_id not in kept:
                _lift(actor, standing.quota_id, using)
        return _in_force(actor.organization_id, using)

    return _in_scope(actor, using, work)


def lift_quota(actor: Actor, quota_id: UUID, using: str = "default") -> None:
    """Take a quota out of force. Raises PermissionDenied, and QuotaNotFound for none in force."""
    actor.require(Permission.LIMITS_WRITE)
    _in_scope(actor, using, lambda: _lift(actor, quota_id, using))


def set_daily_tokens(
    organization_id: UUID, tokens_max: int | None, using: str = "housekeeper"
) -> None:
    """Limit the organization's prompt and output tokens per local day; None lifts the limit.

    The operator's short cut. Raises QuotaInvalid for a negative limit.
    """
    actor = Actor(ActorKind.OPERATOR, None, organization_id, frozenset(Permission))
    wanted = QuotaWanted(
        QuotaScope.ORGANIZATION, QuotaMetric.TOKENS, QuotaPeriod.DAY, tokens_max or 0
    )
    if tokens_max is not None:
        set_quota(actor, wanted, using)
        return
    for standing in quotas(actor, using):
        if _same_thing(standing.wanted) == _same_thing(wanted):
            with suppress(QuotaNotFound):  # somebody else was quicker
                lift_quota(actor, standing.quota_id, using)


def _in_scope(actor: Actor, using: str, work: Callable[[], Result]) -> Result:
    def once() -> Result:
        with tenant_scope(actor.organization_id, using):
            return work()

    return again(once)


def _put(actor: Actor, wanted: QuotaWanted, using: str, standing_id: UUID | None = None) -> Quota:
    try:
        with connections[using].cursor() as cursor:
            cursor.execute(
                # A key's quota is that of its line, which its first key names.
                "SELECT billing_set_quota(%s, %s, %s, coalesce(tenants_key_line(%s), %s)"
                f"{', %s' * 11})",
                [
                    actor.organization_id,
                    standing_id,
                    wanted.scope.value,
                    wanted.scope_id,
                    wanted.scope_id,
                    wanted.end_user,
                    wanted.metric.value,
                    wanted.period.value,
                    wanted.limit_amount,
                    wanted.is_hard,
                    wanted.counts_cached,
                    list(wanted.recipients),
                    wanted.subject_prefix,
                    actor.kind.value,
                    actor.actor_id,
                    QUOTAS_MAX,
                ],
            )
            (quota_id,) = cursor.fetchone()
    except IntegrityError as error:
        constraint = error.__cause__.diag.constraint_name  # type: ignore[union-attr]  # psycopg's
        if constraint == "billing_quota_policy_of":
            raise QuotaNotFound(f"the organization has no such {wanted.scope.value}") from None
        if constraint == "billing_quota_policies_max":
            raise QuotaInvalid(
                f"an organization has at most {QUOTAS_MAX} limits", "quotas"
            ) from None
        if constraint == "billing_quota_policy_soft_apart":
            raise QuotaInvalid("a limit of this amount stands already", "limit") from None
        raise
    if quota_id is None:
        raise QuotaNotFound("no such limit")
    if strangers_among(wanted.recipients, using):
        raise QuotaInvalid("a recipient must be a member of the organization", "recipients")
    record_audit(
        actor,
        "limit.changed",
        "quota",
        quota_id,
        {
            "scope": wanted.scope.value,
            "scope_id": str(wanted.scope_id) if wanted.scope_id else None,
            "metric": wanted.metric.value,
            "period": wanted.period.value,
            "limit": str(wanted.limit_amount),
            "hard": wanted.is_hard,
        },
        using,
    )
    return next(
        quota for quota in _in_force(actor.organization_id, using) if quota.quota_id == quota_id
    )


def _lift(actor: Actor, quota_id: UUID, using: str) -> None:
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT billing_lift_quota(%s, %s)", [actor.organization_id, quota_id])
        (lifted,) = cursor.fetchone()
    if not lifted:
        raise QuotaNotFound("no such limit")
    record_audit(actor, "limit.lifted", "quota", quota_id, using=using)


def _same_thing(wanted: QuotaWanted) -> tuple[object, ...]:
    return (
        wanted.scope,
        wanted.scope_id,
        wanted.end_user,
        wanted.metric,
        wanted.period,
        wanted.is_hard,
        None if wanted.is_hard else wanted.limit_amount,
    )


def _check(wanted: QuotaWanted) -> None:
    if not 0 <= wanted.limit_amount <= AMOUNT_MAX:
        raise QuotaInvalid(f"a limit must be 0 to {AMOUNT_MAX}", "limit")
    has_id = wanted.scope in (QuotaScope.PROJECT, QuotaScope.KEY)
    if has_id != (wanted.scope_id is not None):
        raise QuotaInvalid("scopes project and key, and only they, take an id", "scope_id")
    if wanted.end_user and wanted.scope is not QuotaScope.END_USER:
        raise QuotaInvalid("only scope end_user takes an end user", "end_user")
    if len(wanted.end_user) > END_USER_LENGTH_MAX:
        raise QuotaInvalid(f"an end user has at most {END_USER_LENGTH_MAX} characters", "end_user")
    if len(wanted.recipients) > RECIPIENTS_MAX:
        raise QuotaInvalid(f"a limit has at most {RECIPIENTS_MAX} recipients", "recipients")
    if not fits_a_subject(wanted.subject_prefix):
        raise QuotaInvalid("a subject holds no address on the web", "subject_prefix")


_POLICIES = """
    SELECT p.id, p.scope, p.scope_id, p.end_user, p.metric, p.period, p.limit_amount, p.is_hard,
           p.counts_cached, p.recipients, p.subject_prefix, p.time_zone,
           date_trunc(p.period, now(), p.time_zone) AS window_start,
           billing_window_end(date_trunc(p.period, now(), p.time_zone), p.period, p.time_zone)
               AS resets_at,
           p.set_at, p.set_by_kind, p.set_by_id
      FROM billing_quota_policy p
     WHERE p.organization_id = %s AND p.lifted_at IS NULL ORDER BY p.id"""
_COUNTERS = """
    SELECT s.policy_id, s.subject, s.used_amount, s.held_amount
      FROM (SELECT c.*, row_number() OVER (
                       PARTITION BY c.policy_id ORDER BY c.used_amount DESC, c.subject) AS place
              FROM billing_quota_policy p JOIN billing_quota_counter c
                ON c.policy_id = p.id
               AND c.window_start = date_trunc(p.period, now(), p.time_zone)
             WHERE p.organization_id = %s AND p.lifted_at IS NULL
               AND p.end_user IN ('', c.subject)) AS s
     WHERE s.place <= %s ORDER BY s.policy_id, s.place"""


def _in_force(organization_id: UUID, using: str) -> list[Quota]:
    subjects: dict[UUID, list[QuotaSubject]] = defaultdict(list)
    with connections[using].cursor() as cursor:
        cursor.execute(_COUNTERS, [organization_id, SUBJECTS_SHOWN_MAX])
        for quota_id, end_user, used, held in cursor.fetchall():
            subjects[quota_id].append(QuotaSubject(end_user, int(used), int(held)))
        cursor.execute(_POLICIES, [organization_id])
        columns = [column.name for column in cursor.description]
        rows = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    return [_quota(row, subjects[row["id"]]) for row in rows]


def _quota(row: Mapping[str, Any], subjects: Sequence[QuotaSubject]) -> Quota:
    window_start: datetime = row["window_start"]
    return Quota(
        quota_id=row["id"],
        wanted=QuotaWanted(
            scope=QuotaScope(row["scope"]),
            metric=QuotaMetric(row["metric"]),
            period=QuotaPeriod(row["period"]),
            limit_amount=int(row["limit_amount"]),
            scope_id=row["scope_id"],
            end_user=row["end_user"],
            is_hard=row["is_hard"],
            counts_cached=row["counts_cached"],
            recipients=tuple(row["recipients"]),
            subject_prefix=row["subject_prefix"],
        ),
        time_zone=row["time_zone"],
        window_start=window_start,
        resets_at=row["resets_at"],
        subjects=tuple(subjects),
        set_at=row["set_at"],
        set_by_kind=row["set_by_kind"],
        set_by_id=row["set_by_id"],
    )
