"""`manage.py invite_member SLUG EMAIL`: how a tenant's first people get in.

Run by the operator. Prints the link that the mail holds too; whoever follows it signs up with that
address. Members invite others themselves, through the API.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from headrace.management.arguments import organization_named
from tenants import facade as tenants
from tenants.contracts import InvalidValue, Role, TenantConflict


class Command(BaseCommand):
    """An earlier invitation of the address is withdrawn."""

    help = "Invite a person to a tenant. Prints the link once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whom, where to, as what."""
        parser.add_argument("slug", help="the tenant")
        parser.add_argument("email", help="the person's address")
        parser.add_argument(
            "--role", type=Role, choices=list(Role), default=Role.OWNER, help="owner unless given"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Invites, then prints."""
        actor = tenants.operator_of(organization_named(options["slug"]).organization_id)
        try:
            issued = tenants.invite(actor, options["email"], options["role"])
        except (InvalidValue, TenantConflict) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"until {issued.invitation.expires_at:%Y-%m-%d %H:%M} UTC")
        self.stdout.write(f"link {issued.link}")
