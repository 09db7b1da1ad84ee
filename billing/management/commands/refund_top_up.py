"""`manage.py refund_top_up ORGANIZATION TOP_UP AMOUNT --reference TEXT`: money back by Stripe.

Run by the operator, as the housekeeper. Running it again with the same reference gives nothing
more, and sends what could not be sent before. With `--already-paid-back` the books alone are told.
"""

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from billing.contracts import BillingError
from billing.credit.topups import top_up
from billing.pricing import decimal_string, parse_decimal
from billing.stripe_sync.refunds import HOUSEKEEPER, note_paid_back, refund


class Command(BaseCommand):
    """Fails for more than is left of what was paid."""

    help = "Give back part of a top-up that is not spent, once per reference."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Ids as the API shows them; the reference is the operator's."""
        parser.add_argument("organization", type=UUID)
        parser.add_argument("top_up", type=UUID)
        parser.add_argument("amount", help="in the tenant's currency, as 5 or 0.02")
        way = parser.add_mutually_exclusive_group(required=True)
        way.add_argument("--reference", help="what makes this refund one of a kind")
        way.add_argument(
            "--already-paid-back",
            action="store_true",
            help="the money went back without us, by a dispute: once per top-up, books alone",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Refunds, then prints what was given back of the top-up so far."""
        organization_id, top_up_id = options["organization"], options["top_up"]
        try:
            amount_pico = parse_decimal(options["amount"])
            if options["already_paid_back"]:
                note_paid_back(organization_id, top_up_id, amount_pico)
            else:
                refund(organization_id, top_up_id, amount_pico, options["reference"])
        except (BillingError, ValueError) as error:
            raise CommandError(str(error)) from error
        given = top_up(organization_id, top_up_id, HOUSEKEEPER)
        amount = decimal_string(given.refunded_pico)
        self.stdout.write(f"{amount} {given.currency} given back of top-up {top_up_id}")
