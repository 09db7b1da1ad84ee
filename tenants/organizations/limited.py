"""Whose requests of a minute are bounded: the organization, its projects and its keys, together.

Reads only; the gateway enforces. Called by the console and its live parts.
"""

from django.db.models import Q
from django.db.models.functions import Now

from tenants.contracts import Actor, MinuteLimited, OrganizationNotFound, Permission
from tenants.models import ApiKey, OrganizationRow, Project
from tenants.organizations.accounts import limits_of
from tenants.organizations.minute_limits import limits_from_json
from tenants.scope import tenant_scope

LIMITED_MAX = 100
"""Projects, and keys, of one answer: those that were made last."""


def minute_limited(actor: Actor) -> list[MinuteLimited]:
    """The organization, then projects and keys in use that have limits of their own.

    Raises PermissionDenied.
    """
    actor.require(Permission.LIMITS_READ)
    with tenant_scope(actor.organization_id):
        organization = OrganizationRow.objects.filter(id=actor.organization_id).first()
        if organization is None:
            raise OrganizationNotFound("no such organization")
        projects = Project.objects.filter(archived_at=None).exclude(limits={})
        keys = ApiKey.objects.filter(
            Q(revoke_at=None) | Q(revoke_at__gt=Now()),
            Q(expires_at=None) | Q(expires_at__gt=Now()),
            revoked_at=None,
            project__archived_at=None,
        ).exclude(limits={}, end_user_limits={})
        return [
            MinuteLimited("organization", organization.id, limits_of(organization)),
            *(
                MinuteLimited("project", row.id, limits_from_json(row.limits))
                for row in projects.order_by("-id")[:LIMITED_MAX]
            ),
            *(
                MinuteLimited(
                    "key",
                    row.id,
                    limits_from_json(row.limits),
                    limits_from_json(row.end_user_limits),
                )
                for row in keys.order_by("-id")[:LIMITED_MAX]
            ),
        ]
