"""A small LiteLLM database, written by hand in its schema, and the secrets behind its keys."""

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

Dump = dict[str, list[dict[str, Any]]]


def hashed(secret: str) -> str:
    """As LiteLLM stores a key."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class LiteLlm:
    """The dump of one test: every id, address and secret in it is its own."""

    mark: str
    tables: Dump

    def secret(self, name: str) -> str:
        """The secret behind the key of that name."""
        return f"sk-{name}-{self.mark}"

    def address(self, name: str) -> str:
        """A person's address."""
        return f"{name}.{self.mark}@example.net"


def litellm_dump() -> LiteLlm:
    """An organization with two teams, a team of its own, people, keys of all kinds, budgets."""
    mark = uuid4().hex[:10]
    dump = LiteLlm(mark, {})
    day = {"budget_duration": "1d"}

    def user(name: str, role: str, **more: Any) -> dict[str, Any]:
        return {
            "user_id": f"{name}-{mark}",
            "user_email": dump.address(name),
            "user_role": role,
            "password": "scrypt:never-read",
            **more,
        }

    def key(name: str, **more: Any) -> dict[str, Any]:
        secret = dump.secret(name)
        return {
            "token": hashed(secret),
            "key_name": f"sk-...{secret[-4:]}",
            "key_alias": name,
            "models": [],
            "aliases": {},
            "metadata": {},
            **more,
        }

    def member(name: str, role: str = "user") -> dict[str, str]:
        return {"user_id": f"{name}-{mark}", "role": role}

    org, research, sales, lone = (f"{one}-{mark}" for one in ("org", "research", "sales", "lone"))
    dump.tables.update(
        LiteLLM_BudgetTable=[
            {
                "budget_id": f"b1-{mark}",
                "max_budget": 1000.5,
                "soft_budget": 800,
                "budget_duration": "30d",
                "rpm_limit": 300,
            },
            {"budget_id": f"b2-{mark}", "max_budget": 0.1, **day},
        ],
        LiteLLM_OrganizationTable=[
            {
                "organization_id": org,
                "organization_alias": f"Acme {mark}",
                "budget_id": f"b1-{mark}",
                "models": [],
            }
        ],
        LiteLLM_OrganizationMembership=[
            {"user_id": f"olga-{mark}", "organization_id": org, "user_role": "org_admin"}
        ],
        LiteLLM_TeamTable=[
            {
                "team_id": research,
                "team_alias": "Research",
                "organization_id": org,
                "members_with_roles": [member("ann", "admin"), member("vic")],
                "models": ["gpt-4o-mini", "small"],
                "max_budget": 12.345678901234,
                "rpm_limit": 60,
                "tpm_limit": 100000,
                "model_id": 7,
                **day,
            },
            {
                "team_id": sales,
                "team_alias": "Sales",
                "organization_id": org,
                "members_with_roles": [],
                "max_budget": 5.0,
                "budget_duration": "7d",
                "models": [],
            },
            {
                "team_id": lone,
                "team_alias": f"Lone {mark}",
                "members_with_roles": [member("lea", "admin"), member("nobody")],
                "models": [],
            },
            {
                "team_id": f"blocked-{mark}",
                "team_alias": f"Blocked {mark}",
                "blocked": True,
                "members_with_roles": [],
                "models": [],
            },
        ],
        LiteLLM_ModelTable=[{"id": 7, "aliases": {"best": "small"}}],
        LiteLLM_UserTable=[
            user("olga", "internal_user"),
            user("ann", "internal_user"),
            user("vic", "internal_user_viewer"),
            user("lea", "internal_user"),
            user("pat", "proxy_admin", max_budget=3, **day),
            {"user_id": f"nobody-{mark}", "user_email": None, "user_role": "internal_user"},
        ],
        LiteLLM_VerificationToken=[
            key("research", team_id=research, max_budget=1.0, rpm_limit=10, **day),
            key(
                "narrow",
                team_id=research,
                models=["small", "other"],
                allowed_routes=["/embeddings"],
            ),
            key("shared", team_id=sales, budget_id=f"b2-{mark}"),
            key("lone", team_id=lone, expires="2100-01-01T00:00:00"),
            key("own", user_id=f"pat-{mark}"),
            key("blocked", team_id=lone, blocked=True),
            key("expired", team_id=lone, expires="2020-01-01T00:00:00"),
            key("admin", team_id=lone, allowed_routes=["management_routes"]),
            key("of-blocked", team_id=f"blocked-{mark}"),
            key("session", team_id="litellm-dashboard"),
            {"token": f"plain-{mark}", "key_alias": "plain", "team_id": lone, "models": []},
        ],
        LiteLLM_ProxyModelTable=[
            {"model_id": "m1", "model_name": "gpt-4o-mini", "litellm_params": {"api_key": "k"}}
        ],
    )
    return dump
