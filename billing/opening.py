"""Opening the account of an organization that its founder just made: prepaid, at zero.

Runs as role `app`, inside the organization's scope; the operator opens others by `open_account`.
"""

from django.db import connections

from billing.models import LedgerKind


def open_own_account() -> None:
    """Ledger accounts and a balance of 0 for the open scope's organization; again changes nothing.

    Raises DatabaseError outside a scope.
    """
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT billing_open_own_account(%s)", [LedgerKind.values])
