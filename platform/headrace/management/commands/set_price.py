"""`manage.py set_price MODEL CLASS MICROS`: what a class of tokens costs from now on.

Run by the operator, as the housekeeper. Requests already held keep the price they were quoted.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import ModelNotFound, ServiceTier
from headrace.management.arguments import HOUSEKEEPER


class Command(BaseCommand):
    """Setting the price in force again changes nothing."""

    help = "Set a price of a model, in millionths of a US dollar per million tokens."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which price, and how high."""
        parser.add_argument("model", help="the model's public name")
        parser.add_argument("token_class", metavar="class", help="input, cached_input or output")
        parser.add_argument("micros", type=int, help="millionths of a dollar per million tokens")
        parser.add_argument(
            "--tier",
            type=ServiceTier,
            choices=list(ServiceTier),
            default=ServiceTier.INTERACTIVE,
            help="interactive unless given",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it."""
        model, token_class, micros = options["model"], options["token_class"], options["micros"]
        tier: ServiceTier = options["tier"]
        try:
            billing.set_price(model, tier, token_class, micros, using=HOUSEKEEPER)
        except (ModelNotFound, ValueError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{model}: {tier} {token_class} tokens cost {micros} micros per million")
