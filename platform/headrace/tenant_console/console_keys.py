"""The key that pays for the jobs which members make in the console.

One for each project, of a service account of its own, made when it is first needed. Nobody has its
secret: it cannot be used from elsewhere. It is seen, limited and revoked like any other key. Called
by the pages of jobs.
"""

from uuid import UUID

import tenants.facade
from tenants.contracts import Actor, KeySettings

NAME = "Console"
"""Of the account and of its key."""


def console_key(actor: Actor, project_id: UUID) -> UUID:
    """The project's; raises TenantObjectNotFound for a project that is not here, TenantConflict
    for one that is archived, PermissionDenied for the first use by somebody who makes no keys."""
    return tenants.facade.key_of_service_account(actor, project_id, KeySettings(NAME))
