"""`manage.py credit_note SLUG NUMBER AMOUNT --reason --reference`: take back part of an invoice.

Run by the operator, as the housekeeper. The amount is net, its tax goes with it; the invoice itself
stays as it is. Running it again with the same reference finds the same note.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import InvoiceConflict, InvoiceNotFound
from headrace.management.arguments import HOUSEKEEPER, credit_pico, label, organization_named


class Command(BaseCommand):
    """Fails for more than is left of the invoice."""

    help = "Issue a credit note for an invoice, once per reference."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which invoice, how much, and why."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("number", type=int, help="of the invoice")
        parser.add_argument("amount", type=credit_pico, help="net, in whole cents")
        parser.add_argument("--reason", type=label, required=True, help="told on the note")
        parser.add_argument("--reference", required=True, help="what makes it one of a kind")

    def handle(self, *_: Any, **options: Any) -> None:
        """Issues it, then prints its number and total."""
        organization_id = organization_named(options["slug"]).organization_id
        try:
            note = billing.credit_note(
                organization_id,
                billing.invoice_numbered(organization_id, options["number"], HOUSEKEEPER),
                options["amount"],
                options["reason"],
                options["reference"],
                using=HOUSEKEEPER,
            )
        except (InvoiceNotFound, InvoiceConflict, ValueError) as error:
            raise CommandError(str(error)) from error
        total = billing.decimal_string(note.total_pico)
        self.stdout.write(f"credit note {note.number} of {total} {note.currency}")
