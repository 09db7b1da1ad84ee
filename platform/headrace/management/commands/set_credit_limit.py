"""`manage.py set_credit_limit SLUG AMOUNT`: let a tenant pay on account, up to an amount.

Run by the operator, as the housekeeper; 0 is prepaid again. Refuses a limit below what is owed or
held already.
"""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import AccountMissing, CreditLimitTooLow
from headrace.management.arguments import HOUSEKEEPER, credit_pico, organization_named


def limit_pico(text: str) -> int:
    """An amount, or 0."""
    try:
        return 0 if billing.parse_decimal(text) == 0 else credit_pico(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


class Command(BaseCommand):
    """Changes nothing where it is refused."""

    help = "Let a tenant's balance go below zero, on account."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who, and how far."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("amount", type=limit_pico, help="in the tenant's currency; 0 for none")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it and prints it."""
        organization_id = organization_named(options["slug"]).organization_id
        try:
            billing.set_credit_limit(organization_id, options["amount"], using=HOUSEKEEPER)
        except (AccountMissing, CreditLimitTooLow) as error:
            raise CommandError(str(error)) from error
        amount = billing.decimal_string(options["amount"])
        self.stdout.write(f"{options['slug']} may owe {amount}")
