"""`manage.py record_payment SLUG NUMBER AMOUNT --reference TEXT`: money that came for an invoice.

Run by the operator, as the housekeeper; `--back` is money that was paid too much and went back.
Running it again with the same reference changes nothing.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import InvoiceConflict, InvoiceNotFound
from headrace.management.arguments import HOUSEKEEPER, credit_pico, organization_named


class Command(BaseCommand):
    """Fails where nothing is due, and for a reference of another payment."""

    help = "Note a payment of an invoice, once per reference."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which invoice, and how much."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("number", type=int, help="of the invoice")
        parser.add_argument("amount", type=credit_pico, help="in the tenant's currency")
        parser.add_argument("--reference", required=True, help="of the bank's, say")
        parser.add_argument("--back", action="store_true", help="it went back")

    def handle(self, *_: Any, **options: Any) -> None:
        """Notes it, what is beyond it as credit, then prints what is still due."""
        organization_id = organization_named(options["slug"]).organization_id
        amount = -options["amount"] if options["back"] else options["amount"]
        try:
            invoice_id = billing.invoice_numbered(organization_id, options["number"], HOUSEKEEPER)
            billing.record_payment(
                organization_id, invoice_id, amount, options["reference"], using=HOUSEKEEPER
            )
        except (InvoiceNotFound, InvoiceConflict, ValueError) as error:
            raise CommandError(str(error)) from error
        document = billing.invoice(organization_id, invoice_id, HOUSEKEEPER)
        due = billing.decimal_string(document.due_pico)
        self.stdout.write(f"{due} {document.currency} are due of invoice {document.number}")
