"""The tables of tenants: people, keys.

Every table with an `organization_id` is under row-level security (sql/), and the composite foreign
keys there keep a project's key inside its organization. Used inside `tenants` only; others see
`tenants.contracts`.
"""

from tenants.models.keys import ApiKey
from tenants.models.people import Membership, OrganizationRow, Project, Role, User

__all__ = ["ApiKey", "Membership", "OrganizationRow", "Project", "Role", "User"]
