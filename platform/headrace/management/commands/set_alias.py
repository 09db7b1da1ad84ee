"""`manage.py set_alias TENANT NAME MODEL`: let a tenant's name mean a model, or no more.

Run by the operator, as the housekeeper; tenants do it themselves through the API.
"""

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import AliasExists, AliasInvalid
from headrace.management.arguments import HOUSEKEEPER, organization_named
from tenants.facade import operator_of


class Command(BaseCommand):
    """An alias that exists is changed to mean the model."""

    help = "Let a name mean a model, for one tenant or one of its projects."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose name, and for what."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("name", help="what its clients ask for, such as gpt-4o-mini")
        parser.add_argument("model", help="the model that is served")
        parser.add_argument("--project", type=UUID, help="the id of the only project it is for")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets it."""
        actor = operator_of(organization_named(options["slug"]).organization_id)
        try:
            alias = billing.set_alias(
                actor, options["name"], options["model"], options["project"], using=HOUSEKEEPER
            )
        except (AliasInvalid, AliasExists) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{options['slug']}: {alias.name} means {alias.public_id}")
