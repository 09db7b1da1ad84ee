"""`manage.py create_key SLUG`: another key of a tenant, in a project of its own.

Run by the operator, as the housekeeper. Prints the key's secret, which nobody can read later.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from headrace.management.arguments import HOUSEKEEPER, label, organization_named
from tenants import facade as tenants

NAME_DEFAULT = "key"


class Command(BaseCommand):
    """Other keys of the tenant keep working."""

    help = "Create a key of a tenant, in a project of its own. Prints the key once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose, and what it is for."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument(
            "--name", type=label, default=NAME_DEFAULT, help="of the key and its project"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Creates, then prints."""
        organization_id = organization_named(options["slug"]).organization_id
        project_id = tenants.create_project(organization_id, options["name"], using=HOUSEKEEPER)
        key = tenants.issue_key(organization_id, project_id, options["name"], using=HOUSEKEEPER)
        self.stdout.write(f"key id {key.key_id}\nkey {key.secret}")
