"""`manage.py publish_prices FILE`: a new version of the price book, for everybody or one tenant.

Run by the operator, as the housekeeper. Prices change now or later, never in the past; what looks
like a slip is refused unless accepted.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import ModelNotFound, PriceBookInvalid, PricesSuspicious
from headrace.management.arguments import HOUSEKEEPER, moment, operators_name
from headrace.management.price_files import draft_of


class Command(BaseCommand):
    """The file is JSON with prices per million tokens; docs/prices.md shows one."""

    help = "Publish a price book from a JSON file of prices per million tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which prices, for whom, from when on."""
        parser.add_argument("file", help="the price book; - is standard input")
        parser.add_argument("--tenant", help="the slug of the only tenant it is for")
        parser.add_argument("--effective-at", type=moment, help="when it begins; now unless given")
        parser.add_argument(
            "--accept-warnings", action="store_true", help="publish what looks like a slip too"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Publishes, or says what is wrong or looks odd."""
        draft = draft_of(options["file"], options["tenant"])
        try:
            book = billing.publish_book(
                draft,
                operators_name(),
                options["effective_at"],
                accept_warnings=options["accept_warnings"],
                using=HOUSEKEEPER,
            )
        except PricesSuspicious as error:
            for warning in error.warnings:
                self.stderr.write(f"Warning: {warning}")
            raise CommandError("nothing was published; --accept-warnings publishes it") from error
        except (ModelNotFound, PriceBookInvalid) as error:
            raise CommandError(str(error)) from error
        for warning in book.warnings:
            self.stderr.write(f"Warning: {warning}")
        for entry in draft.entries:
            price = entry.price_micros_per_mtok
            shown = "no price" if price is None else billing.display_price(price, draft.currency)
            self.stdout.write(f"{entry.public_id}: {entry.tier} {entry.token_class}: {shown}")
        whose = options["tenant"] or "the list"
        self.stdout.write(
            f"version {book.version} of {whose} holds from"
            f" {book.effective_at:%Y-%m-%d %H:%M:%S %Z} ({len(book.price_ids)} new prices)"
        )
