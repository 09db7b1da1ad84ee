"""`manage.py set_tax SLUG LABEL PERCENT`: the tax on a tenant's invoices, and the days to pay them.

Run by the operator, as the housekeeper. Documents that are issued keep theirs.
"""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import PICO
from headrace.management.arguments import HOUSEKEEPER, label, organization_named

PPM_PER_PERCENT = 10_000


def tax_ppm(text: str) -> int:
    """A percentage such as 19 or 7.7, in parts per million."""
    try:
        ppm, finer = divmod(billing.parse_decimal(text) * PPM_PER_PERCENT, PICO)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no percentage") from error
    if finer:
        raise ArgumentTypeError(f"{text} has more than four decimals")
    return ppm


class Command(BaseCommand):
    """Says what the next invoice will bear."""

    help = "Set the tax on a tenant's invoices."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Who, and what."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("label", type=label, help="as in VAT")
        parser.add_argument("percent", type=tax_ppm, help="as in 19 or 7.7")
        parser.add_argument("--days", type=int, default=14, help="to pay; 14 unless given")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it and prints it."""
        organization_id = organization_named(options["slug"]).organization_id
        try:
            billing.set_tax(
                organization_id,
                options["label"],
                options["percent"],
                options["days"],
                using=HOUSEKEEPER,
            )
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"{options['slug']} pays {options['label']} of {options['percent']} millionths"
            f" within {options['days']} days"
        )
