"""Carrying an import out: each organization in one transaction, keys and limits together.

Running it again changes nothing that is there already: organizations are found by their slug,
projects by name, people by address, keys by their hash. Acts as the operator. Called by the
import command.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.contrib.auth import get_user_model

import billing.facade
import tenants.facade
from billing.contracts import (
    Alias,
    AliasInvalid,
    QuotaInvalid,
    QuotaMetric,
    QuotaScope,
    QuotaWanted,
)
from headrace.importing.blueprint import (
    KeyPlan,
    Leftover,
    OrganizationPlan,
    Plan,
    ProjectPlan,
    QuotaPlan,
)
from tenants.contracts import (
    NO_LIMITS,
    Actor,
    InvalidValue,
    ProjectInfo,
    TenantConflict,
)

HOUSEKEEPER_ALIAS = "housekeeper"


@dataclass(slots=True)
class Outcome:
    """What was made; what was there already is not counted."""

    organizations: int = 0
    projects: int = 0
    members: int = 0
    keys: int = 0
    keys_here_already: int = 0
    quotas: int = 0
    aliases: int = 0
    leftovers: list[Leftover] = field(default_factory=list)


def carry_out(
    plan: Plan, models: Mapping[str, str], credit_limit_pico: int | None = None
) -> Outcome:
    """Make what the plan says; `models` are names of theirs and what they mean here.

    An organization that cannot be made whole is left out whole, and named among the leftovers.
    """
    outcome = Outcome()
    for organization in plan.organizations:
        _Organization(organization, models, outcome, credit_limit_pico).make()
    return outcome


class _Organization:
    def __init__(
        self,
        plan: OrganizationPlan,
        models: Mapping[str, str],
        outcome: Outcome,
        credit_limit_pico: int | None,
    ) -> None:
        self._plan = plan
        self._models = models
        self._outcome = outcome
        self._credit_limit_pico = credit_limit_pico
        self._named: set[tuple[UUID | None, str]] = set()

    def make(self) -> None:
        """Everything in it, or nothing but its empty shell."""
        plan = self._plan
        organization_id = self._find_or_found()
        actor = tenants.facade.operator_of(organization_id)
        standing = {project.name: project.project_id for project in _projects(actor)}
        self._named = {(alias.project_id, alias.name) for alias in _aliases(actor)}
        counted = Outcome()
        try:
            with tenants.facade.tenant_scope(organization_id, HOUSEKEEPER_ALIAS):
                for quota in plan.quotas:
                    self._set_quota(actor, quota, QuotaScope.ORGANIZATION, None, counted)
                for project in plan.projects:
                    self._project(actor, project, standing, counted)
                self._aliases(actor, self._models, None, counted)
                self._members(organization_id, counted)
        except (InvalidValue, TenantConflict, QuotaInvalid) as error:
            self._outcome.leftovers.append(
                Leftover("organization", plan.display_name, f"nothing of it imported: {error}")
            )
            return
        _add(self._outcome, counted)

    def _find_or_found(self) -> UUID:
        found = tenants.facade.organization_by_slug(self._plan.slug, HOUSEKEEPER_ALIAS)
        if found is not None:
            return found.organization_id
        made = tenants.facade.create_organization(self._plan.slug, self._plan.display_name)
        billing.facade.open_account(made.organization_id)
        if self._credit_limit_pico is not None:
            billing.facade.set_credit_limit(made.organization_id, self._credit_limit_pico)
        if self._plan.limits != NO_LIMITS:
            tenants.facade.set_organization_limits(made.organization_id, self._plan.limits)
        self._outcome.organizations += 1
        return made.organization_id

    def _project(
        self, actor: Actor, plan: ProjectPlan, standing: Mapping[str, UUID], counted: Outcome
    ) -> None:
        project_id = standing.get(plan.name)
        if project_id is None:
            project_id = tenants.facade.create_project(
                actor.organization_id, plan.name, HOUSEKEEPER_ALIAS, limits=plan.limits
            )
            counted.projects += 1
        for quota in plan.quotas:
            self._set_quota(actor, quota, QuotaScope.PROJECT, project_id, counted)
        self._aliases(actor, plan.aliases, project_id, counted)
        for key in plan.keys:
            self._key(actor, key, project_id, counted)

    def _key(self, actor: Actor, plan: KeyPlan, project_id: UUID, counted: Outcome) -> None:
        models = plan.settings.models
        if models is not None:
            # A list of theirs goes on to hold for what its names mean here.
            models |= {self._models[name] for name in models if name in self._models}
        try:
            key_id = tenants.facade.import_key(
                actor.organization_id,
                project_id,
                replace(plan.settings, models=models),
                plan.secret_hash,
                plan.shown,
            )
        except InvalidValue as error:
            counted.leftovers.append(
                Leftover("key", plan.settings.name, f"not imported: {error.param}: {error}")
            )
            return
        if key_id is None:
            counted.keys_here_already += 1
            return
        counted.keys += 1
        for quota in plan.quotas:
            self._set_quota(actor, quota, QuotaScope.KEY, key_id, counted)

    def _set_quota(
        self,
        actor: Actor,
        quota: QuotaPlan,
        scope: QuotaScope,
        scope_id: UUID | None,
        counted: Outcome,
    ) -> None:
        wanted = QuotaWanted(
            scope,
            QuotaMetric.SPEND,
            quota.period,
            quota.amount_pico,
            scope_id=scope_id,
            is_hard=quota.is_hard,
        )
        standing = billing.facade.quotas(actor, HOUSEKEEPER_ALIAS)
        if not any(_same(one.wanted, wanted) for one in standing):
            billing.facade.set_quota(actor, wanted, HOUSEKEEPER_ALIAS)
            counted.quotas += 1

    def _aliases(
        self,
        actor: Actor,
        wanted: Mapping[str, str],
        project_id: UUID | None,
        counted: Outcome,
    ) -> None:
        for name, model in sorted(wanted.items()):
            meant = self._models.get(model, model)
            if name == meant or (project_id, name) in self._named:
                continue
            try:
                billing.facade.create_alias(actor, name, meant, project_id, using=HOUSEKEEPER_ALIAS)
                counted.aliases += 1
            except AliasInvalid as error:
                counted.leftovers.append(Leftover("model", name, f"not {meant} here: {error}"))

    def _members(self, organization_id: UUID, counted: Outcome) -> None:
        memberships_of = tenants.facade.memberships_of
        users = get_user_model().objects.db_manager(HOUSEKEEPER_ALIAS)
        for address, role in sorted(self._plan.members.items()):
            user = users.filter(email__iexact=address).first()
            if user is None:
                # Without a password: the first sign-in is by "forgot password".
                user = users.create_user(email=address)
            standing = {one.organization.organization_id for one in memberships_of(user.pk)}
            if organization_id not in standing:
                tenants.facade.add_member(organization_id, user.pk, role)
                counted.members += 1


def _projects(actor: Actor) -> Sequence[ProjectInfo]:
    """All of them, page by page."""
    found: list[ProjectInfo] = []
    after: UUID | None = None
    while page := tenants.facade.list_projects(actor, with_archived=True, after=after):
        found += page
        after = page[-1].project_id
    return found


def _aliases(actor: Actor) -> Sequence[Alias]:
    """All of them, page by page."""
    found: list[Alias] = []
    after: UUID | None = None
    while page := billing.facade.aliases(actor, after=after):
        found += page
        after = page[-1].alias_id
    return found


def _same(one: QuotaWanted, other: QuotaWanted) -> bool:
    """A quota that somebody has changed since it was imported is theirs."""
    return (one.scope, one.scope_id, one.metric, one.period, one.is_hard) == (
        other.scope,
        other.scope_id,
        other.metric,
        other.period,
        other.is_hard,
    )


def _add(total: Outcome, some: Outcome) -> None:
    for name in ("projects", "members", "keys", "keys_here_already", "quotas", "aliases"):
        setattr(total, name, getattr(total, name) + getattr(some, name))
    total.leftovers += some.leftovers
