"""What the pages of limits share: names, quotas, and what they say when one is used up.

Called by the pages beside this, and by the page of billing.
"""

from collections.abc import Iterable
from functools import cached_property
from uuid import UUID

import billing.facade
import tenants.facade
from billing.contracts import Quota, QuotaMetric, QuotaScope
from headrace import errors
from headrace.console_kit import formats
from headrace.console_kit.pages import PageView
from headrace.tenant_console.billing.named import Alert
from headrace.tenant_console.limits.meters import is_reached
from headrace.tenant_console.limits.wording import SETTERS, Names, what, whose
from tenants.contracts import Permission

NAMED_MAX = 2_000


class LimitsView(PageView):
    """A page about limits."""

    page = "limits"
    needs = Permission.LIMITS_READ

    @cached_property
    def quotas(self) -> list[Quota]:
        """All in force."""
        return billing.facade.quotas(self.actor)

    @cached_property
    def names(self) -> Names:
        """Of all projects, and of the keys that quotas are for."""
        return names_for(self, self.quotas)

    @cached_property
    def people(self) -> dict[UUID, str]:
        """Addresses of members, for who may know them."""
        if not self.may(Permission.MEMBERS_READ):
            return {}
        members = tenants.facade.list_members(self.actor, rows_max=NAMED_MAX)
        return {one.user_id: one.display_name or one.email for one in members}

    @property
    def may_write(self) -> bool:
        """Whether the viewer may set limits."""
        return self.may(Permission.LIMITS_WRITE)

    @property
    def top_up_href(self) -> str:
        """Where to pay in; '' for who may not."""
        return self.url("billing-top-up") if self.may(Permission.BILLING_WRITE) else ""

    def quota(self, quota_id: UUID) -> Quota:
        """One in force; raises ApiError 404."""
        for one in self.quotas:
            if one.quota_id == quota_id:
                return one
        raise errors.ApiError(404, "No such limit.")

    def setter(self, quota: Quota) -> str:
        """Who set it."""
        known = self.people.get(quota.set_by_id) if quota.set_by_id else None
        return known or SETTERS.get(quota.set_by_kind, "the house")


def names_for(view: PageView, quotas: Iterable[Quota]) -> Names:
    """What the projects and keys of these quotas are called, as far as the viewer may know."""
    projects: dict[UUID, str] = {}
    if view.may(Permission.PROJECTS_READ):
        found = tenants.facade.list_projects(view.actor, with_archived=True, rows_max=NAMED_MAX)
        projects = {one.project_id: one.name for one in found}
    key_ids = {
        one.wanted.scope_id
        for one in quotas
        if one.wanted.scope is QuotaScope.KEY and one.wanted.scope_id is not None
    }
    may_see_keys = bool(key_ids) and view.may(Permission.KEYS_READ)
    keys = tenants.facade.key_names(view.actor, key_ids) if may_see_keys else {}
    return Names(projects, keys)


def quota_alerts(view: PageView, quotas: Iterable[Quota], names: Names) -> list[Alert]:
    """What is said of quotas that refuse requests now."""
    alerts = []
    for one in quotas:
        if not one.wanted.is_hard or not is_reached(one):
            continue
        until = formats.moment_text(one.resets_at, view.zone)
        text = (
            f"{whose(one.wanted, names)}: the limit of {what(one.wanted).lower()} is reached."
            f" Requests are refused until {until}, or until the limit is raised."
        )
        alerts.append(
            Alert(
                text,
                is_urgent=True,
                is_of_money=one.wanted.metric is QuotaMetric.SPEND,
                href=view.url("limit", one.quota_id),
                label="Open the limit",
            )
        )
    return alerts
