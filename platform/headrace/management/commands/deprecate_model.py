"""`manage.py deprecate_model MODEL --shutdown-at`: say when a model goes, and what to use instead.

Run by the operator, as the housekeeper. Until then answers carry headers that say so; from then on
requests are refused with the successor's name.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import ModelNotFound
from headrace.management.arguments import HOUSEKEEPER, moment


class Command(BaseCommand):
    """`--reinstate` takes all of it back."""

    help = "Deprecate a model: its last day and its successor."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which model, until when."""
        parser.add_argument("model", help="the model's public name")
        last = parser.add_mutually_exclusive_group(required=True)
        last.add_argument("--shutdown-at", type=moment, help="from then on it is not served")
        last.add_argument("--reinstate", action="store_true", help="it stays after all")
        parser.add_argument("--successor", help="the model to use instead")
        parser.add_argument(
            "--deprecated-at", type=moment, help="since when it is deprecated; now unless given"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it."""
        try:
            offer = billing.set_offer_life(
                options["model"],
                options["shutdown_at"],
                options["successor"],
                options["deprecated_at"],
                using=HOUSEKEEPER,
            )
        except (ModelNotFound, ValueError) as error:
            raise CommandError(str(error)) from error
        if offer.shutdown_at is None:
            self.stdout.write(f"{offer.public_id} is for sale")
        else:
            advice = f"; {offer.successor} succeeds it" if offer.successor else ""
            until = f"{offer.shutdown_at:%Y-%m-%d %H:%M:%S %Z}"
            self.stdout.write(f"{offer.public_id} is served until {until}{advice}")
