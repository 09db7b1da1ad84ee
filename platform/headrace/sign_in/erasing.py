"""What the sign-in library knows of people who are being forgotten: addresses, factors, accounts.

Called when an organization is erased, for members who belong to no other one. Their sessions name
a user who is no longer active, and open nothing.
"""

from collections.abc import Sequence
from uuid import UUID

from django.db import connections

HOUSEKEEPER_ALIAS = "housekeeper"
_TABLES = ("mfa_authenticator", "socialaccount_socialaccount", "account_emailaddress")


def forget_people(organization_id: UUID, persons: Sequence[UUID]) -> None:
    """Deletes their rows; idempotent."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        for table in _TABLES:
            cursor.execute(
                f"DELETE FROM {table} WHERE user_id = ANY(%s::uuid[])",  # noqa: S608 - our names
                [list(persons)],
            )
