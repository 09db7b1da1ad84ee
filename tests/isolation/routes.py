"""The isolation matrix: every route there is, and how to ask it for somebody else's things.

A route nobody listed fails test_route_matrix.py. To list one, add a row to ROWS under its full
route, as urls.py spells it:

    "api/v1/organizations/<uuid:organization_id>/things/<uuid:thing_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "x"}), "DELETE": Act(status=204)},
        own=thing, deleted=deleted_thing, sibling=thing_of_sibling)

`own` makes a fresh object on a side (through its facade, as `side.actor`) and returns the path's
arguments beyond `organization_id`; it is called for acme's 200, for globex's 404 and for each
method. `deleted` returns those of an object that is gone, `sibling` those that name an object of
the second project by way of the first; both must be 404. What has neither leaves them out.
The body of an act may be a function of the side and the arguments that `own` made.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

import billing.facade
import tenants.facade
from billing.contracts import HoldRequest, ServiceTier, UsageCounts
from headrace.gateway.request_ids import public_request_id
from tenants.facade import keep_exchange
from tenants.models import Export
from tenants.retention.exports import write_due_export
from tests.billing.cast import make_offer, used
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
    "accounts/": "the sign-in library's pages: of the person whose session it is, and no ids",
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

SOCKETS = {"v1/stream"}
"""Channels' routes; tests/headrace/test_websocket.py and test_token_routes.py."""

T = "api/v1/organizations/<uuid:organization_id>/"
K = "v1/organization/"


def webhook(side: Side) -> Arguments:
    """An endpoint; the ones before it go, for a side may have twenty."""
    for earlier in tenants.facade.webhook_endpoints(side.actor):
        tenants.facade.delete_webhook_endpoint(side.actor, earlier.endpoint_id)
    made = tenants.facade.create_webhook_endpoint(side.actor, "https://hooks.example.com/in")
    return {"webhook_id": made.endpoint.endpoint_id}


def deleted_webhook(side: Side) -> Arguments:
    """An endpoint that was removed."""
    arguments = webhook(side)
    tenants.facade.delete_webhook_endpoint(side.actor, arguments["webhook_id"])
    return arguments


def delivery(side: Side) -> Arguments:
    """A delivery to an endpoint of its own."""
    sent = tenants.facade.send_test_event(side.actor, webhook(side)["webhook_id"])
    return {"delivery_id": sent.delivery_id}


def deleted_delivery(side: Side) -> Arguments:
    """A delivery that went with its endpoint."""
    to = webhook(side)
    sent = tenants.facade.send_test_event(side.actor, to["webhook_id"])
    tenants.facade.delete_webhook_endpoint(side.actor, to["webhook_id"])
    return {"delivery_id": sent.delivery_id}


WEBHOOK_ROWS = {
    T + "event_kinds": Row(TENANT, {"GET": Act()}),
    T + "webhooks": Row(
        TENANT,
        {"GET": Act(), "POST": Act({"url": "https://hooks.example.com/new"}, 201)},
    ),
    T + "webhooks/<uuid:webhook_id>": Row(
        TENANT,
        {"GET": Act(), "PATCH": Act({"enabled": False}), "DELETE": Act(status=204)},
        own=webhook,
        deleted=deleted_webhook,
    ),
    T + "webhooks/<uuid:webhook_id>/secret": Row(
        TENANT, {"POST": Act(status=201)}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhooks/<uuid:webhook_id>/test": Row(
        TENANT, {"POST": Act(status=202)}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhooks/<uuid:webhook_id>/deliveries": Row(
        TENANT, {"GET": Act()}, own=webhook, deleted=deleted_webhook
    ),
    T + "webhook_deliveries/<uuid:delivery_id>": Row(
        TENANT, {"GET": Act()}, own=delivery, deleted=deleted_delivery
    ),
    T + "webhook_deliveries/<uuid:delivery_id>/replay": Row(
        TENANT, {"POST": Act(status=202)}, own=delivery, deleted=deleted_delivery
    ),
}


def exports_written(_side: Side, _arguments: Arguments) -> Json:
    """No body, once no export is pending."""
    while write_due_export(datetime.now(UTC)):
        pass
    return {}


def export(side: Side) -> Arguments:
    """An export that is ready."""
    exports_written(side, {})
    asked = tenants.facade.request_export(side.actor)
    exports_written(side, {})
    return {"export_id": asked.export_id}


def deleted_export(side: Side) -> Arguments:
    """An export that has expired."""
    arguments = export(side)
    Export.objects.using("housekeeper").filter(id=arguments["export_id"]).update(
        expires_at=datetime.now(UTC)
    )
    return arguments


def kept_request(side: Side) -> Arguments:
    """A request whose prompt is kept."""
    request_id = uuid4()
    keep_exchange(side.organization_id, side.project_id, request_id, b"{}", b"{}", 1)
    return {"request_id": public_request_id(request_id)}


def forgotten_request(side: Side) -> Arguments:
    """A request whose prompt was kept until now."""
    request_id = uuid4()
    keep_exchange(side.organization_id, side.project_id, request_id, b"{}", b"{}", 0)
    return {"request_id": public_request_id(request_id)}


RETENTION_ROWS = {
    T + "exports": Row(TENANT, {"GET": Act(), "POST": Act(exports_written, 202)}),
    T + "exports/<uuid:export_id>": Row(TENANT, {"GET": Act()}, own=export, deleted=deleted_export),
    T + "exports/<uuid:export_id>/content": Row(
        TENANT, {"GET": Act()}, own=export, deleted=deleted_export
    ),
    T + "requests/<str:request_id>/exchange": Row(
        TENANT, {"GET": Act()}, own=kept_request, deleted=forgotten_request
    ),
    T + "deletion": Row(TENANT, {"POST": Act(status=201)}),
    # The right token would end the side; tests/headrace/test_erasure.py gives it.
    T + "deletion/confirmation": Row(
        TENANT, {"POST": Act({"token": "wrong", "slug": "wrong"}, 400)}
    ),
}


def settled_by(organization_id: UUID, project_id: UUID, key_id: UUID) -> Arguments:
    """A request that ended, at no charge."""
    model = make_offer("free-in-the-matrix", 0, 0, 0)
    request = HoldRequest(
        request_id=uuid7(),
        organization_id=organization_id,
        project_id=project_id,
        key_id=key_id,
        quote=billing.facade.quote(organization_id, project_id, model, ServiceTier.INTERACTIVE),
        model_asked=model,
        prompt_tokens=1,
        output_tokens_max=1,
    )
    [outcome] = billing.facade.hold([request])
    assert outcome.refusal is None, outcome
    billing.facade.settle([used(request, UsageCounts(1, 0, 1))])
    return {"request_id": f"req_{request.request_id.hex}"}


def request(side: Side) -> Arguments:
    """One of the first project's."""
    return settled_by(side.organization_id, side.project_id, side.key_id)


def request_of_sibling(side: Side) -> Arguments:
    """One of the second project's."""
    key = tenants.facade.issue_key(
        side.organization_id, side.sibling_project_id, "matrix", using="housekeeper"
    )
    return settled_by(side.organization_id, side.sibling_project_id, key.key_id)


A_DAY = Act(query="start_time=2026-05-04&end_time=2026-05-05")
USAGE_ROWS = {
    T + "usage": Row(TENANT, {"GET": A_DAY}),
    T + "usage.csv": Row(TENANT, {"GET": A_DAY}),
    T + "requests": Row(TENANT, {"GET": Act()}),
    T + "requests/<str:request_id>": Row(TENANT, {"GET": Act()}, own=request),
    K + "usage/completions": Row(ORGANIZATION_KEY, {"GET": A_DAY}),
    K + "usage/embeddings": Row(ORGANIZATION_KEY, {"GET": A_DAY}),
    K + "costs": Row(ORGANIZATION_KEY, {"GET": A_DAY}),
    "v1/usage/requests/<str:request_id>": Row(
        PROJECT_KEY, {"GET": Act()}, own=request, sibling=request_of_sibling
    ),
}

PERSON_ROWS = {
    "api/v1/me": Row(PERSON, {"GET": Act()}),
    "api/v1/organizations": Row(
        PERSON,
        {"POST": Act(lambda *_: {"display_name": f"New {uuid4().hex[:8]}"}, 201)},
    ),
}

ROWS: dict[str, Row] = {**USAGE_ROWS, **PERSON_ROWS, **WEBHOOK_ROWS, **RETENTION_ROWS}
