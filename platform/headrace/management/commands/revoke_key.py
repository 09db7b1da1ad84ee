"""`manage.py revoke_key SLUG KEY_ID`: a key stops working at once and for good.

Run by the operator, as the housekeeper. Streams that the key opened end within seconds.
"""

from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError

from headrace.management.arguments import HOUSEKEEPER, organization_named
from tenants import facade as tenants


class Command(BaseCommand):
    """Fails, and changes nothing, when the tenant has no such key that still works."""

    help = "Revoke a key of a tenant, for good."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The id is what create_tenant and create_key print; a secret is no argument."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("key_id", type=UUID, help="the key's id (not the key)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Revokes, and looks whether it did."""
        key_id = options["key_id"]
        organization_id = organization_named(options["slug"]).organization_id
        if tenants.revoked_among([key_id]):
            raise CommandError(f"no key {key_id} works: it is unknown, expired or revoked already")
        tenants.revoke_key(organization_id, key_id, using=HOUSEKEEPER)
        if not tenants.revoked_among([key_id]):
            raise CommandError(f"the key {key_id} is not one of {options['slug']}'s")
        self.stdout.write(f"key {key_id} is revoked")
