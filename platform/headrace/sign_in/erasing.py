"""What the sign-in library knows of people who are being forgotten: addresses, factors, accounts.

Called when an account is ended. Its sessions name a user who is no longer active, and open nothing.
"""

from uuid import UUID

from django.db import connections

HOUSEKEEPER_ALIAS = "housekeeper"
_TABLES = ("mfa_authenticator", "socialaccount_socialaccount", "account_emailaddress")


def forget_person(user_id: UUID) -> None:
    """Deletes the rows of a person, in the open transaction."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        for table in _TABLES:
            cursor.execute(
                f"DELETE FROM {table} WHERE user_id = %s",  # noqa: S608 - our names
                [user_id],
            )
