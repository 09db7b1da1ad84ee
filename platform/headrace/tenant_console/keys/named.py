"""What the pages of keys share: names of projects and accounts, models for sale, one list each.

Reads through facades as the viewer. Called by the pages beside this.
"""

from functools import cached_property
from uuid import UUID

import billing.facade
import tenants.facade
from headrace.console_kit.pages import PageView
from headrace.tenant_console.keys.states import KeyState, state_of
from tenants.contracts import KeyInfo, ProjectInfo, ServiceAccount

PROJECTS_MAX = 2_000
ACCOUNTS_MAX = 2_000
"""Of an organization, archived and disabled ones with them, whose names are shown."""


class KeysView(PageView):
    """A page about keys."""

    page = "keys"

    @cached_property
    def all_projects(self) -> dict[UUID, ProjectInfo]:
        """Archived ones too."""
        found = tenants.facade.list_projects(self.actor, with_archived=True, rows_max=PROJECTS_MAX)
        return {one.project_id: one for one in found}

    @cached_property
    def accounts(self) -> dict[UUID, ServiceAccount]:
        """Disabled ones too."""
        found = tenants.facade.list_service_accounts(self.actor, rows_max=ACCOUNTS_MAX)
        return {one.service_account_id: one for one in found}

    @cached_property
    def closed_ids(self) -> frozenset[UUID]:
        """Projects and accounts whose keys do not work any more."""
        archived = (one.project_id for one in self.all_projects.values() if one.archived_at)
        disabled = (one.service_account_id for one in self.accounts.values() if one.disabled_at)
        return frozenset([*archived, *disabled])

    @property
    def open_projects(self) -> list[ProjectInfo]:
        """Those that take requests."""
        return [one for one in self.all_projects.values() if one.archived_at is None]

    @cached_property
    def models(self) -> list[str]:
        """Ids of what is for sale here."""
        sold = billing.facade.models_for_sale(self.organization_id)
        return sorted({quote.offer.public_id for _, quote in sold})

    def state(self, key: KeyInfo) -> KeyState:
        """Whether a key works now."""
        return state_of(key, self.now, self.closed_ids)

    def project_name(self, project_id: UUID | None) -> str:
        """Of any project."""
        found = self.all_projects.get(project_id) if project_id else None
        return found.name if found else ""

    def account_name(self, account_id: UUID | None) -> str:
        """Of any service account."""
        found = self.accounts.get(account_id) if account_id else None
        return found.name if found else ""
