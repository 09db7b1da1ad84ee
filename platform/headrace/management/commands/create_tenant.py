"""`manage.py create_tenant SLUG`: a tenant with its account, a first project and a first key.

Run by the operator, as the housekeeper. Prints the key's secret, which nobody can read later.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import IntegrityError

from billing import facade as billing
from headrace.management.arguments import HOUSEKEEPER, credit_pico, limit, slug
from tenants import facade as tenants

PROJECT = "default"
FIRST_CREDIT = "create_tenant"


class Command(BaseCommand):
    """Changes nothing when the slug is taken."""

    help = "Create a tenant: organization, account, project and key. Prints the key once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Limits that are not given are the defaults of `tenants.facade.create_organization`."""
        parser.add_argument("slug", type=slug, help="its short name, in lower case")
        parser.add_argument("--credit", type=credit_pico, metavar="USD", help="prepaid credit")
        parser.add_argument("--requests-per-minute", type=limit, metavar="N")
        parser.add_argument("--tokens-per-minute", type=limit, metavar="N")
        parser.add_argument("--daily-tokens", type=limit, metavar="N", help="per local day")

    def handle(self, *_: Any, **options: Any) -> None:
        """Creates, then prints."""
        limits = {
            "requests_per_minute_max": options["requests_per_minute"],
            "tokens_per_minute_max": options["tokens_per_minute"],
        }
        name = options["slug"]
        try:
            organization = tenants.create_organization(
                name,
                name,
                using=HOUSEKEEPER,
                **{key: value for key, value in limits.items() if value is not None},
            )
        except IntegrityError as error:
            raise CommandError(f"there is a tenant {name!r} already") from error
        organization_id = organization.organization_id
        billing.open_account(organization_id, organization.currency, using=HOUSEKEEPER)
        if options["daily_tokens"] is not None:
            billing.set_daily_tokens(organization_id, options["daily_tokens"], using=HOUSEKEEPER)
        if options["credit"] is not None:
            billing.grant_credit(
                organization_id, options["credit"], FIRST_CREDIT, using=HOUSEKEEPER
            )
        project_id = tenants.create_project(organization_id, PROJECT, using=HOUSEKEEPER)
        key = tenants.issue_key(organization_id, project_id, PROJECT, using=HOUSEKEEPER)
        self.stdout.write(f"tenant {name} ({organization_id})")
        self.stdout.write(f"key id {key.key_id}\nkey {key.secret}")
