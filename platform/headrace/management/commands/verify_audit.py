"""`manage.py verify_audit [SLUG]`: whether anybody changed an audit log.

Run by the operator, as the housekeeper. Prints each log's last hash: kept elsewhere, it shows even
whoever may rewrite a whole log.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from headrace.management.arguments import HOUSEKEEPER, organization_named
from tenants import facade as tenants


class Command(BaseCommand):
    """Exits non-zero when an entry is changed, missing or moved."""

    help = "Walk the audit log of a tenant, or of all, from its first entry to its last."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose log."""
        parser.add_argument("slug", nargs="?", help="the tenant; all unless given")

    def handle(self, *_: Any, **options: Any) -> None:
        """Walks and reports."""
        if options["slug"]:
            names = {organization_named(options["slug"]).organization_id: options["slug"]}
        else:
            names = tenants.organization_slugs(HOUSEKEEPER)
        broken = 0
        for organization_id, slug in sorted(names.items(), key=lambda item: item[1]):
            verdict = tenants.verify_audit_chain(organization_id, using=HOUSEKEEPER)
            broken += verdict.fault is not None
            state = verdict.fault or f"whole, ends in {verdict.head.hex()}"
            self.stdout.write(f"{slug}: {verdict.entries} entries, {state}")
        if broken:
            raise CommandError(f"{broken} audit logs were tampered with")
