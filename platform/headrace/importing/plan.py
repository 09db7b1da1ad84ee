"""What an import would make, decided from LiteLLM's rows alone: a pure function of them.

An organization of theirs becomes one of ours, its teams become projects; a team without one becomes
an organization of its own, so that nobody sees more than before. What has no place here, or would
widen what a key may do, is left out and named. Called by the import command.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from headrace.importing import records
from headrace.importing.blueprint import (
    KeyPlan,
    Leftover,
    OrganizationPlan,
    Plan,
    ProjectPlan,
    QuotaPlan,
)
from headrace.importing.naming import NAME_CHARS_MAX, name_of, slug_of, told_apart
from headrace.importing.records import Budget
from headrace.importing.source import Row, Tables
from tenants.contracts import NO_LIMITS, KeyScope, KeySettings, Role

DASHBOARD_TEAM = "litellm-dashboard"
"""Their own interface's sessions are keys of this team."""
UNASSIGNED = "unassigned"
"""The id of the organization for keys that belong to no team."""
ALL_MODELS = frozenset({"all-proxy-models", "*"})
TEAMS_MODELS = "all-team-models"
ROUTE_SCOPES: Mapping[str, frozenset[KeyScope]] = {
    "llm_api_routes": frozenset(KeyScope),
    "openai_routes": frozenset(KeyScope),
    "/chat/completions": frozenset({KeyScope.CHAT}),
    "/completions": frozenset({KeyScope.COMPLETIONS}),
    "/embeddings": frozenset({KeyScope.EMBEDDINGS}),
    "/models": frozenset({KeyScope.MODELS}),
    "/files": frozenset({KeyScope.FILES}),
    "/batches": frozenset({KeyScope.BATCHES}),
}
NOT_CARRIED = ("config", "permissions", "router_settings", "model_max_budget", "aliases")


def plan_import(tables: Tables, now: datetime) -> Plan:
    """Decide what becomes of each row."""
    return _Planner(tables, now).plan()


class _Planner:
    def __init__(self, tables: Tables, now: datetime) -> None:
        self._now = now
        self._leftovers: list[Leftover] = []
        rows = {name: list(given) for name, given in tables.items()}
        self._organizations = _by(rows.get("LiteLLM_OrganizationTable", []), "organization_id")
        self._teams = _by(rows.get("LiteLLM_TeamTable", []), "team_id")
        self._users = _by(rows.get("LiteLLM_UserTable", []), "user_id")
        self._budgets = _by(rows.get("LiteLLM_BudgetTable", []), "budget_id")
        self._team_aliases = {
            str(row.get("id")): records.mapping(row, "aliases")
            or records.mapping(row, "model_aliases")
            for row in rows.get("LiteLLM_ModelTable", [])
        }
        self._memberships = rows.get("LiteLLM_OrganizationMembership", [])
        self._tokens = rows.get("LiteLLM_VerificationToken", [])
        self._models = rows.get("LiteLLM_ProxyModelTable", [])
        self._end_users = rows.get("LiteLLM_EndUserTable", [])

    def plan(self) -> Plan:
        """Organizations in a stable order, so that two runs say the same."""
        keys = self._keys_by_home()
        teams_of: dict[str, list[str]] = defaultdict(list)
        for team_id, team in self._teams.items():
            if team_id != DASHBOARD_TEAM:
                teams_of[records.text(team, "organization_id")].append(team_id)
        plans = [
            self._organization(one, teams_of.get(one, []), keys)
            for one in sorted(self._organizations)
        ]
        # A team whose organization is missing stands alone, as one without does.
        strays = [
            team_id
            for home, team_ids in teams_of.items()
            if home not in self._organizations
            for team_id in team_ids
        ]
        plans += [self._lone_team(team_id, keys) for team_id in sorted(strays)]
        unassigned = {place: found for place, found in keys.items() if place[0] == UNASSIGNED}
        if unassigned:
            projects = self._personal_projects(unassigned)
            name = "Keys without a team"
            plans.append(OrganizationPlan(slug_of(UNASSIGNED, name), name, projects=projects))
        self._other_leftovers()
        return Plan(tuple(plans), tuple(self._leftovers))

    # --- organizations and projects -----------------------------------------------------------

    def _organization(
        self, organization_id: str, team_ids: Sequence[str], keys: "_Homes"
    ) -> OrganizationPlan:
        row = self._organizations[organization_id]
        name = name_of(records.text(row, "organization_alias"), organization_id)
        held = self._budgets.get(records.text(row, "budget_id"))
        budget = records.budget(held) if held is not None else None
        projects = [self._team_project(team_id, keys) for team_id in sorted(team_ids)]
        own = {place: found for place, found in keys.items() if place[0] == organization_id}
        return OrganizationPlan(
            slug=slug_of(organization_id, name),
            display_name=name,
            limits=budget.limits if budget is not None else NO_LIMITS,
            quotas=self._quotas("organization", name, budget),
            members=self._organization_members(organization_id, team_ids),
            projects=told_apart([*projects, *self._personal_projects(own)]),
        )

    def _lone_team(self, team_id: str, keys: "_Homes") -> OrganizationPlan:
        project = self._team_project(team_id, keys)
        return OrganizationPlan(
            slug=slug_of(team_id, project.name),
            display_name=project.name,
            members=self._team_members(team_id, admin=Role.OWNER),
            projects=(project,),
        )

    def _team_project(self, team_id: str, keys: "_Homes") -> ProjectPlan:
        team = self._teams[team_id]
        name = name_of(records.text(team, "team_alias"), team_id)
        budget = records.budget(team)
        found = keys.get(("team", team_id), [])
        if records.flag(team, "blocked") and found:
            self._leave("team", name, f"blocked: its {len(found)} keys are not imported")
            found = []
        for setting in ("model_max_budget", "router_settings", "object_permission_id", "policies"):
            if records.mapping(team, setting) or records.texts(team, setting):
                self._leave("team", name, f"{setting} has no counterpart")
        aliases = self._team_aliases.get(str(team.get("model_id")), {})
        models = records.texts(team, "models")
        return ProjectPlan(
            name=name,
            limits=budget.limits,
            quotas=self._quotas("team", name, budget),
            aliases={str(alias): str(model) for alias, model in aliases.items()},
            keys=tuple(filter(None, (self._key(row, models) for row in found))),
        )

    def _personal_projects(self, homes: "_Homes") -> tuple[ProjectPlan, ...]:
        """Keys without a team: a project for each person who has some."""
        projects = []
        for (_, user_id), rows in sorted(homes.items()):
            user = self._users.get(user_id, {})
            name = name_of(
                records.text(user, "user_alias") or records.text(user, "user_email"),
                user_id or "nobody",
            )
            budget = records.budget(user)
            models = records.texts(user, "models")
            projects.append(
                ProjectPlan(
                    name=f"Keys of {name}"[:NAME_CHARS_MAX],
                    limits=budget.limits,
                    quotas=self._quotas("user", name, budget),
                    keys=tuple(filter(None, (self._key(row, models) for row in rows))),
                )
            )
        return told_apart(projects)

    # --- people -------------------------------------------------------------------------------

    def _organization_members(
        self, organization_id: str, team_ids: Sequence[str]
    ) -> Mapping[str, Role]:
        members: dict[str, Role] = {}
        for team_id in team_ids:
            # Here a team is one project of several, and roles are of the whole organization.
            _raise(members, self._team_members(team_id, admin=Role.DEVELOPER))
        for row in self._memberships:
            if records.text(row, "organization_id") != organization_id:
                continue
            theirs = records.text(row, "user_role")
            role = Role.OWNER if theirs == "org_admin" else _role(theirs)
            address = self._address(records.text(row, "user_id"), "")
            if address:
                _raise(members, {address: role})
        return members

    def _team_members(self, team_id: str, admin: Role) -> Mapping[str, Role]:
        members: dict[str, Role] = {}
        for one in records.objects(self._teams[team_id], "members_with_roles"):
            user_id = records.text(one, "user_id")
            address = self._address(user_id, records.text(one, "user_email"))
            if address:
                theirs = records.text(self._users.get(user_id, {}), "user_role")
                role = admin if records.text(one, "role") == "admin" else _role(theirs)
                _raise(members, {address: role})
        return members

    def _address(self, user_id: str, given: str) -> str:
        address = records.text(self._users.get(user_id, {}), "user_email") or given
        if "@" in address and len(address) <= 254:
            return address.lower()
        self._leave("user", user_id or "unnamed", "no e-mail address: nobody to sign in")
        return ""

    # --- keys ---------------------------------------------------------------------------------

    def _keys_by_home(self) -> "_Homes":
        """Tokens by where they go: ("team", id), or (organization or UNASSIGNED, user)."""
        homes: _Homes = defaultdict(list)
        for row in sorted(self._tokens, key=lambda one: records.text(one, "token")):
            team_id, user_id = records.text(row, "team_id"), records.text(row, "user_id")
            if team_id == DASHBOARD_TEAM:
                continue
            if team_id in self._teams:
                homes["team", team_id].append(row)
                continue
            organization_id = records.text(row, "organization_id")
            home = organization_id if organization_id in self._organizations else UNASSIGNED
            homes[home, user_id].append(row)
        return homes

    def _key(self, row: Row, models_around: Sequence[str]) -> KeyPlan | None:
        shown = records.text(row, "key_name")
        name = name_of(records.text(row, "key_alias"), shown or records.text(row, "token")[:12])
        secret_hash, expires_at = records.key_hash(row), records.moment(row, "expires")
        scopes = self._scopes(row)
        models = _allowed(records.texts(row, "models"), models_around)
        refusal = (
            "its token is not a SHA-256"
            if secret_hash is None
            else "blocked"
            if records.flag(row, "blocked")
            else "expired"
            if expires_at is not None and expires_at <= self._now
            else "its routes are not ours"
            if not scopes
            else "it may use no model"
            if models is not None and not models
            else ""
        )
        if refusal or secret_hash is None:
            self._leave("key", name, f"{refusal}: not imported")
            return None
        for setting in NOT_CARRIED:
            if records.mapping(row, setting):
                self._leave("key", name, f"{setting} has no counterpart")
        shared = self._budgets.get(records.text(row, "budget_id"))
        budget = records.budget(row)
        if budget.max_pico is None and shared is not None:
            budget = records.budget(shared)
        settings = KeySettings(
            name=name,
            scopes=scopes,
            models=models,
            expires_at=expires_at,
            limits=budget.limits,
        )
        return KeyPlan(secret_hash, shown, settings, self._quotas("key", name, budget))

    def _scopes(self, row: Row) -> frozenset[KeyScope]:
        routes = records.texts(row, "allowed_routes")
        if not routes:
            return frozenset(KeyScope)
        known = [ROUTE_SCOPES.get(route.removeprefix("/v1"), frozenset()) for route in routes]
        return frozenset().union(*known)

    # --- money and the rest -------------------------------------------------------------------

    def _quotas(self, kind: str, name: str, budget: Budget | None) -> tuple[QuotaPlan, ...]:
        if budget is None or (budget.max_pico is None and budget.soft_pico is None):
            return ()
        if budget.period is None:
            period = f"per {budget.duration}" if budget.duration else "for ever"
            self._leave(kind, name, f"a budget {period}: ours are per day or month")
            return ()
        amounts = ((budget.max_pico, True), (budget.soft_pico, False))
        return tuple(
            QuotaPlan(amount, budget.period, hard) for amount, hard in amounts if amount is not None
        )

    def _other_leftovers(self) -> None:
        for row in self._models:
            name = records.text(row, "model_name")
            self._leave("model", name, "models and prices are set here by hand: see --model")
        for user_id, user in sorted(self._users.items()):
            if records.text(user, "user_role") in ("proxy_admin", "proxy_admin_viewer"):
                self._leave("user", user_id, "an operator there: operators are made here by hand")
        if self._end_users:
            self._leave(
                "end users", str(len(self._end_users)), "budgets of end users: not imported"
            )

    def _leave(self, kind: str, name: str, why: str) -> None:
        leftover = Leftover(kind, name, why)
        if leftover not in self._leftovers:
            self._leftovers.append(leftover)


_Homes = dict[tuple[str, str], list[Row]]
_RANK = {role: rank for rank, role in enumerate((Role.VIEWER, Role.DEVELOPER, Role.OWNER))}


def _by(rows: Sequence[Row], name: str) -> Mapping[str, Row]:
    return {records.text(row, name): row for row in rows if records.text(row, name)}


def _role(theirs: str) -> Role:
    return Role.VIEWER if theirs == "internal_user_viewer" else Role.DEVELOPER


def _raise(members: dict[str, Role], given: Mapping[str, Role]) -> None:
    for address, role in given.items():
        if _RANK[role] > _RANK.get(members.get(address, Role.VIEWER), 0) or address not in members:
            members[address] = role


def _allowed(own: Sequence[str], around: Sequence[str]) -> frozenset[str] | None:
    """Models that both the key and its team, or person, may use; None is all."""
    theirs = None if not around or ALL_MODELS & set(around) else frozenset(around)
    if not own or TEAMS_MODELS in own or ALL_MODELS & set(own):
        return theirs
    return frozenset(own) if theirs is None else frozenset(own) & theirs
