"""`manage.py forget_end_user SLUG NAME [--tag TAG]`: one end user of a tenant's removed on request.

Run by the operator, as the housekeeper. For good; a name that is not there is no error, and one
that comes again with a later request is forgotten by running it again.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.facade import forget_end_user
from headrace.management.arguments import organization_named


class Command(BaseCommand):
    """Sums, invoices and the ledger stay as they are."""

    help = "Take an end user's name out of requests, usage, limits, events and kept prompts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose end user, and which tags may carry the name too."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("name", help="as the tenant sends it: safety_identifier or user")
        parser.add_argument(
            "--tag", action="append", default=[], help="a tag with the name as a value; repeatable"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Forgets, then says how many requests carried the name."""
        organization_id = organization_named(options["slug"]).organization_id
        try:
            requests = forget_end_user(organization_id, options["name"], options["tag"])
        except ValueError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"forgotten in {requests} requests of {options['slug']}")
