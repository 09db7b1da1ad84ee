"""Reading a price book that an operator wrote, for the commands that preview and publish it."""

import sys
from pathlib import Path

from django.core.management.base import CommandError

from billing import facade as billing
from billing.contracts import DraftBook, PriceBookInvalid
from headrace.management.arguments import organization_named

STANDARD_INPUT = "-"


def draft_of(file: str, tenant: str | None) -> DraftBook:
    """The draft in a file (- is standard input), for the list or for one tenant (by slug).

    Raises CommandError for a file that cannot be read or says no prices, and an unknown tenant.
    """
    organization_id = organization_named(tenant).organization_id if tenant else None
    try:
        text = (
            sys.stdin.read() if file == STANDARD_INPUT else Path(file).read_text(encoding="utf-8")
        )
        return billing.parse_price_document(text, organization_id)
    except (OSError, UnicodeDecodeError, PriceBookInvalid) as error:
        raise CommandError(f"{file}: {error}") from error
