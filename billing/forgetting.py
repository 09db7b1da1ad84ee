"""Removing the names of end users from the books, which keep every sum.

A name becomes `(forgotten)` in holds, usage events, quotas and rollups by the SQL functions of
sql/0011_forgetting.sql; it is never undone. Runs as the housekeeper. Called when an
organization is erased, and by `manage.py forget_end_user`.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import connections

from billing.contracts import END_USER_LENGTH_MAX
from billing.retry import VICTIMS_AND_LATE, again, call
from tenants.facade import forget_end_user_traces, operator_of, record_audit, tenant_scope

HOUSEKEEPER = "housekeeper"
END_USER_TAG = "user"


def forget_end_users(organization_id: UUID) -> None:
    """Forget every end user and every tag's values of the organization; lift its quotas.

    Idempotent.
    """
    again(lambda: _forget(organization_id, None, None), VICTIMS_AND_LATE)
    _forget_voided(organization_id, None, None)


def forget_end_user(organization_id: UUID, name: str, tags: Sequence[str] = ()) -> int:
    """Forget one end user, and the name as a value of these tags; how many requests named it.

    Kept prompts of those requests, events that name the end user with their mail, and exports go
    too; a quota for this end user alone is lifted. A name that nobody has is no error. Raises
    ValueError for a name that no request can carry.
    """
    if not 0 < len(name) <= END_USER_LENGTH_MAX:
        raise ValueError(f"an end user has 1 to {END_USER_LENGTH_MAX} characters")

    among = [END_USER_TAG, *tags]

    def once() -> int:
        with tenant_scope(organization_id, HOUSEKEEPER):
            requests = _forget(organization_id, name, among)
            forget_end_user_traces(organization_id, name, requests, HOUSEKEEPER)
            # Whom, is what the log must not say.
            record_audit(
                operator_of(organization_id),
                "end_user.forgotten",
                "organization",
                organization_id,
                {"requests": len(requests)},
                HOUSEKEEPER,
            )
        return len(requests)

    return again(once, VICTIMS_AND_LATE) + _forget_voided(organization_id, name, among)


def _forget(organization_id: UUID, name: str | None, tags: list[str] | None) -> Sequence[UUID]:
    with connections[HOUSEKEEPER].cursor() as cursor:
        cursor.execute("SELECT billing_forget_end_users(%s, %s, %s)", [organization_id, name, tags])
        requests: Sequence[UUID] = cursor.fetchone()[0]
    return requests


def _forget_voided(organization_id: UUID, name: str | None, tags: list[str] | None) -> int:
    sql = "SELECT billing_forget_voided_holds(%s, %s, %s)"
    [(holds,)] = call(sql, [organization_id, name, tags], HOUSEKEEPER)
    return int(holds)
