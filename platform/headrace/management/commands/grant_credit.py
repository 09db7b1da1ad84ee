"""`manage.py grant_credit SLUG AMOUNT --reference TEXT`: prepaid credit, once per reference.

Run by the operator, as the housekeeper. Running it again with the same reference changes nothing.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import CreditConflict, GrantCategory
from headrace.management.arguments import HOUSEKEEPER, credit_pico, moment, organization_named


class Command(BaseCommand):
    """Fails when the reference was used for another amount."""

    help = "Add prepaid credit to a tenant's account, once per reference."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The reference is the operator's: an invoice number, say."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument(
            "amount", type=credit_pico, help="in the tenant's currency, as 5 or 0.02"
        )
        parser.add_argument(
            "--reference", required=True, help="what makes this grant one of a kind"
        )

        parser.add_argument(
            "--paid", action="store_true", help="money that was received, no gift; burned last"
        )
        parser.add_argument("--priority", type=int, default=0, help="lower is burned earlier")
        parser.add_argument("--from", dest="effective_at", type=moment, help="when it begins")
        parser.add_argument("--expires", dest="expires_at", type=moment, help="when it ends")

    def handle(self, *_: Any, **options: Any) -> None:
        """Grants, then prints the balance."""
        organization_id = organization_named(options["slug"]).organization_id
        try:
            billing.grant_credit(
                organization_id,
                options["amount"],
                options["reference"],
                category=GrantCategory.PAID if options["paid"] else GrantCategory.PROMOTIONAL,
                priority=options["priority"],
                effective_at=options["effective_at"],
                expires_at=options["expires_at"],
                using=HOUSEKEEPER,
            )
        except (CreditConflict, ValueError) as error:
            raise CommandError(str(error)) from error
        balance = billing.balance(organization_id, using=HOUSEKEEPER)
        amount = billing.decimal_string(balance.posted_pico)
        self.stdout.write(f"{options['slug']} has {amount} {balance.currency}")
