"""What a row of the isolation matrix says: a route's door, its acts, and whose things it names.

The rows are in `rows_*.py` beside this; `routes.py` puts them together and says how to add one.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.isolation.sides import Side

Arguments = Mapping[str, Any]  # what a path's converters take: UUIDs and strings
Make = Callable[[Side], Arguments]
Json = dict[str, Any]


class Door(enum.Enum):
    """Who may come in."""

    TENANT = "a member's session, or an admin key of the organization in the path"
    ORGANIZATION_KEY = "an admin key, whose organization it is"
    PROJECT_KEY = "a project's key, for what is its own project's"
    PERSON = "whoever is signed in; nothing of a tenant's"


TENANT, ORGANIZATION_KEY, PROJECT_KEY, PERSON = Door


@dataclass(frozen=True)
class Act:
    """What to send, and the status that its owner gets."""

    body: Json | Callable[[Side, Arguments], Json] | None = None
    status: int = 200
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    file: bytes | None = None
    """Makes the body a form that brings this file."""


def nothing(_side: Side) -> Arguments:
    """For routes without an object in the path."""
    return {}


@dataclass(frozen=True)
class Row:
    """One route: its door, what each of its methods does, and whose things it can be asked for."""

    door: Door
    acts: Mapping[str, Act]
    own: Make = nothing
    deleted: Make | None = None
    sibling: Make | None = None
    takes: frozenset[str] = field(default_factory=frozenset)
    """Fields of FORBIDDEN_FIELDS that this route's bodies do take."""
    limit_max: int = 100
    """Rows of its list that may be asked for at once."""


FORBIDDEN_FIELDS = (
    "id",
    "organization_id",
    "project_id",
    "role",
    "permissions",
    "balance",
    "posted_pico",
    "price",
    "is_staff",
    "is_superuser",
    "secret_hash",
    "cache_salt",
    "service_tier",
    "created_at",
)
"""What nobody may set by naming it in a body."""

UNLISTED: Mapping[str, str] = {
    "accounts/": "the sign-in library's pages, of the person whose session it is",
    "console/": "pages: test_console_matrix.py goes through them",
    "operator/": "pages for staff only: test_operator_matrix.py goes through them",
    "static/": "files of installed packages",
    "stripe/events": "Stripe's door: what its signature does not cover is not read",
    "api/schema": "the same text for everybody",
    "api/docs": "the same text for everybody",
}
"""Routes by their beginning that have nothing of a tenant's, each with the reason."""

TOKEN_ROUTES = {
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/stream/tickets",
}
"""Raw ASGI, by project key: test_token_routes.py goes through them with an engine."""

SOCKETS = {
    "v1/stream",
    "api/v1/summaries/<str:summary_id>/progress",
    "console/<slug:slug>/live",
    "operator/live",
}
"""Channels' routes; tests/headrace/test_websocket.py and test_token_routes.py,
tests/batch_jobs/test_progress_socket.py, and tests/console/test_live_socket.py."""

T = "api/v1/organizations/<uuid:organization_id>/"
K = "v1/organization/"
