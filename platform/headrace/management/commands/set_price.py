"""`manage.py set_price MODEL CLASS MICROS`: what a class of tokens costs from now on.

Run by the operator, as the housekeeper. Requests already held keep the price they were quoted.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import (
    DraftBook,
    ModelNotFound,
    PriceBookInvalid,
    PriceEntry,
    PricesUnchanged,
    ServiceTier,
    TokenClass,
)
from headrace.management.arguments import HOUSEKEEPER, moment, operators_name, organization_named


class Command(BaseCommand):
    """A price book of one entry. Setting the price in force again changes nothing."""

    help = "Set a price of a model, in millionths of a currency unit per million tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which price, and how high."""
        parser.add_argument("model", help="the model's public name")
        parser.add_argument(
            "token_class", metavar="class", help="input, cached_input, cache_write or output"
        )
        parser.add_argument("micros", type=int, help="millionths of a unit per million tokens")
        parser.add_argument(
            "--tier",
            type=ServiceTier,
            choices=list(ServiceTier),
            default=ServiceTier.INTERACTIVE,
            help="interactive unless given",
        )
        parser.add_argument("--currency", default="USD", help="USD unless given")
        parser.add_argument("--tenant", help="the slug of the only tenant it is for")
        parser.add_argument("--effective-at", type=moment, help="when it begins; now unless given")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it, shows it both ways, and warns of what looks like a slip."""
        model, micros, currency = options["model"], options["micros"], options["currency"]
        tier: ServiceTier = options["tier"]
        tenant = options["tenant"]
        organization_id = organization_named(tenant).organization_id if tenant else None
        try:
            token_class = TokenClass(options["token_class"])
            entry = PriceEntry(model, tier, token_class, micros)
            book = billing.publish_book(
                DraftBook((entry,), currency, organization_id=organization_id),
                operators_name(),
                options["effective_at"],
                accept_warnings=True,
                using=HOUSEKEEPER,
            )
        except PricesUnchanged:
            book = None
        except (ModelNotFound, PriceBookInvalid, ValueError) as error:
            raise CommandError(str(error)) from error
        for warning in book.warnings if book else ():
            self.stderr.write(f"Warning: {warning}")
        price = billing.display_price(micros, currency)
        since = f" from {book.effective_at:%Y-%m-%d %H:%M:%S %Z}" if book else ", as before"
        self.stdout.write(f"{model}: {tier} {token_class} tokens cost {price}{since}")
