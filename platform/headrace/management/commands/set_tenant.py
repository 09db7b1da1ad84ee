"""`manage.py set_tenant SLUG`: what of a tenant is the operator's to set.

Run by the operator, as the housekeeper. A suspended tenant's members may look and pay, its keys
infer nothing; a closed one is gone for everybody. Open streams end within seconds.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from headrace.management.arguments import HOUSEKEEPER, limit, organization_named
from tenants import facade as tenants
from tenants.contracts import NO_LIMITS, MinuteLimits, OrganizationStatus

LIMITS = {
    "requests_max": "--requests-per-minute",
    "tokens_max": "--tokens-per-minute",
    "input_tokens_max": "--input-tokens-per-minute",
    "output_tokens_max": "--output-tokens-per-minute",
    "concurrent_max": "--concurrent-requests",
}


class Command(BaseCommand):
    """What is not given stays as it is."""

    help = "Suspend, reactivate or close a tenant, or set its minute limits."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which settings."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("--status", type=OrganizationStatus, choices=list(OrganizationStatus))
        for name, option in LIMITS.items():
            parser.add_argument(option, dest=name, type=limit, metavar="N")

    def handle(self, *_: Any, **options: Any) -> None:
        """Sets them."""
        organization_id = organization_named(options["slug"]).organization_id
        limits = MinuteLimits(**{name: options[name] for name in LIMITS})
        if limits == NO_LIMITS and options["status"] is None:
            raise CommandError("nothing to set: see --help")
        if limits != NO_LIMITS:
            tenants.set_organization_limits(organization_id, limits, using=HOUSEKEEPER)
        if options["status"] is not None:
            tenants.set_organization_status(organization_id, options["status"], using=HOUSEKEEPER)
        self.stdout.write(f"{options['slug']} is set")
