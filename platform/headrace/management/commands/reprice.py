"""`manage.py reprice --from --to --model`: correct past charges by a price book.

Run by the operator, as the housekeeper. Posts correction entries and edits nothing; running it
again corrects nothing twice. What a dearer price asks beyond a hold or a balance is written off.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import PriceBookInvalid, Repriced
from headrace.management.arguments import HOUSEKEEPER, moment, operators_name, organization_named
from tenants.facade import organization_slugs


class Command(BaseCommand):
    """A dry run shows the same sums, but for what a balance would not cover."""

    help = "Correct the charges of a model's past usage by a price book."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which usage, by which prices, and why."""
        parser.add_argument("--model", required=True, help="the model that was served")
        parser.add_argument("--from", dest="start_at", type=moment, required=True)
        parser.add_argument("--to", dest="end_at", type=moment, required=True)
        parser.add_argument("--reason", required=True, help="kept with each correction")
        parser.add_argument(
            "--book", type=int, help="the version; the newest that prices the model unless given"
        )
        parser.add_argument("--tenant", help="by this tenant's own book, for it alone")
        parser.add_argument("--dry-run", action="store_true", help="write nothing")

    def handle(self, *_: Any, **options: Any) -> None:
        """Corrects tenant by tenant, each in transactions of its own, and prints the sums."""
        tenant = options["tenant"]
        names = organization_slugs(HOUSEKEEPER)
        would = "would be " if options["dry_run"] else ""
        events = 0
        try:
            for moved in billing.reprice(
                options["model"],
                options["start_at"],
                options["end_at"],
                options["reason"],
                operators_name(),
                version=options["book"],
                organization_id=organization_named(tenant).organization_id if tenant else None,
                dry_run=options["dry_run"],
                using=HOUSEKEEPER,
            ):
                events += moved.events
                name = names.get(moved.organization_id, str(moved.organization_id))
                self.stdout.write(f"{name}: {_shown(moved, would)}")
        except PriceBookInvalid as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{events} events {would}corrected")


def _shown(moved: Repriced, would: str) -> str:
    return (
        f"{moved.events} events {would}corrected:"
        f" {billing.decimal_string(moved.charged_pico)} charged,"
        f" {billing.decimal_string(moved.given_back_pico)} given back,"
        f" {billing.decimal_string(moved.written_off_pico)} written off"
    )
