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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from django.db import connections
from uuid_utils.compat import uuid7

import billing.facade
import tenants.facade
from billing.contracts import (
    HoldRequest,
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
    ServiceTier,
    UsageCounts,
)
from billing.invoices.closing import close_period
from billing.invoices.periods import month_of
from headrace.gateway.request_ids import public_request_id
from tenants.contracts import KeySettings, Permission, Role
from tenants.facade import keep_exchange
from tenants.models import Export
from tenants.retention.exports import write_due_export
from tests.billing.cast import make_offer, used
from tests.headrace.door import new_user
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


def alias(side: Side) -> Arguments:
    """An alias of the organization."""
    model = make_offer("named-in-the-matrix", 1, 1, 1)
    made = billing.facade.create_alias(side.actor, f"alias-{uuid4().hex}", model)
    return {"alias_id": made.alias_id}


def deleted_alias(side: Side) -> Arguments:
    """An alias that was removed."""
    arguments = alias(side)
    billing.facade.delete_alias(side.actor, arguments["alias_id"])
    return arguments


def new_alias(_side: Side, _arguments: Arguments) -> Json:
    """A name nobody has."""
    model = make_offer("named-in-the-matrix", 1, 1, 1)
    return {"name": f"alias-{uuid4().hex}", "model": model}


CATALOG_ROWS = {
    T + "models": Row(TENANT, {"GET": Act()}),
    T + "prices": Row(TENANT, {"GET": Act()}),
    T + "aliases": Row(
        TENANT,
        {"GET": Act(), "POST": Act(new_alias, 201)},
        takes=frozenset({"project_id"}),
    ),
    T + "aliases/<uuid:alias_id>": Row(
        TENANT,
        {
            "GET": Act(),
            "PATCH": Act({"model": "named-in-the-matrix"}),
            "DELETE": Act(status=204),
        },
        own=alias,
        deleted=deleted_alias,
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


SPEND = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.SPEND, QuotaPeriod.MONTH, 10**12)
SPEND_LIMIT: Json = {"threshold_amount": 500, "currency": "USD", "interval": "month"}


def spend_alert_body(_side: Side, _arguments: Arguments) -> Json:
    """An alert at an amount that no other alert has."""
    channel = {"type": "email", "recipients": ["money@example.com"]}
    return {
        **SPEND_LIMIT,
        "threshold_amount": uuid4().int % 10**12,
        "notification_channel": channel,
    }


def new_spend_alert(side: Side, project_id: UUID | None) -> Arguments:
    """An alert; the ones before it go, for an organization has a bounded number of limits."""
    for earlier in billing.facade.quotas(side.actor):
        billing.facade.lift_quota(side.actor, earlier.quota_id)
    scope = QuotaScope.PROJECT if project_id else QuotaScope.ORGANIZATION
    wanted = replace(SPEND, scope=scope, scope_id=project_id, is_hard=False)
    return {"alert_id": billing.facade.set_quota(side.actor, wanted).quota_id}


def spend_alert(side: Side) -> Arguments:
    """An alert of the organization's spend."""
    return new_spend_alert(side, None)


def lifted_spend_alert(side: Side) -> Arguments:
    """An alert that was lifted."""
    arguments = spend_alert(side)
    billing.facade.lift_quota(side.actor, arguments["alert_id"])
    return arguments


def spend_limit(side: Side) -> Arguments:
    """A limit of the organization's spend."""
    billing.facade.set_quota(side.actor, SPEND)
    return {}


def spend_limit_of_project(side: Side) -> Arguments:
    """A limit of the first project's spend."""
    wanted = replace(SPEND, scope=QuotaScope.PROJECT, scope_id=side.project_id)
    billing.facade.set_quota(side.actor, wanted)
    return {"project_id": side.project_id}


def spend_alert_of_project(side: Side) -> Arguments:
    """An alert of the first project's spend."""
    return {"project_id": side.project_id, **new_spend_alert(side, side.project_id)}


def spend_alert_by_sibling(side: Side) -> Arguments:
    """The same alert by way of the other project."""
    return {"project_id": side.sibling_project_id, **new_spend_alert(side, side.project_id)}


def rate_limit(side: Side) -> Arguments:
    """The first project's."""
    return {"project_id": side.project_id, "rate_limit_id": side.project_id}


def rate_limit_by_sibling(side: Side) -> Arguments:
    """The first project's by way of the other project."""
    return {"project_id": side.sibling_project_id, "rate_limit_id": side.project_id}


def first_project(side: Side) -> Arguments:
    """It alone."""
    return {"project_id": side.project_id}


ALERT_ACTS = {"GET": Act(), "POST": Act(spend_alert_body), "DELETE": Act()}
LIMIT_ACTS = {"GET": Act(), "POST": Act(SPEND_LIMIT), "DELETE": Act()}
LIMITS_ROWS = {
    T + "limits": Row(TENANT, {"GET": Act(), "PUT": Act({"quotas": []})}),
    K + "spend_limit": Row(ORGANIZATION_KEY, LIMIT_ACTS, own=spend_limit),
    K + "spend_alerts": Row(ORGANIZATION_KEY, {"GET": Act(), "POST": Act(spend_alert_body)}),
    K + "spend_alerts/<uuid:alert_id>": Row(
        ORGANIZATION_KEY, ALERT_ACTS, own=spend_alert, deleted=lifted_spend_alert
    ),
    K + "projects/<uuid:project_id>/spend_limit": Row(
        ORGANIZATION_KEY, LIMIT_ACTS, own=spend_limit_of_project
    ),
    K + "projects/<uuid:project_id>/spend_alerts": Row(
        ORGANIZATION_KEY, {"GET": Act(), "POST": Act(spend_alert_body)}, own=first_project
    ),
    K + "projects/<uuid:project_id>/spend_alerts/<uuid:alert_id>": Row(
        ORGANIZATION_KEY, ALERT_ACTS, own=spend_alert_of_project, sibling=spend_alert_by_sibling
    ),
    K + "projects/<uuid:project_id>/rate_limits": Row(
        ORGANIZATION_KEY, {"GET": Act()}, own=first_project
    ),
    K + "projects/<uuid:project_id>/rate_limits/<uuid:rate_limit_id>": Row(
        ORGANIZATION_KEY,
        {"POST": Act({"max_requests_per_1_minute": 100})},
        own=rate_limit,
        sibling=rate_limit_by_sibling,
    ),
}


def member(side: Side) -> Arguments:
    """A viewer who has just joined."""
    user_id = new_user()
    tenants.facade.add_member(side.organization_id, user_id, Role.VIEWER)
    return {"user_id": user_id}


def former_member(side: Side) -> Arguments:
    """Somebody who is gone."""
    arguments = member(side)
    tenants.facade.remove_member(side.actor, arguments["user_id"])
    return arguments


def new_address() -> str:
    """An address nobody has."""
    return f"{uuid4().hex[:12]}@example.com"


def invitation(side: Side) -> Arguments:
    """An open invitation."""
    issued = tenants.facade.invite(side.actor, new_address(), Role.VIEWER)
    return {"invitation_id": issued.invitation.invitation_id}


def project(side: Side) -> Arguments:
    """A new project."""
    return {"project_id": tenants.facade.open_project(side.actor, "matrix").project_id}


def service_account(side: Side) -> Arguments:
    """A service account of the first project."""
    made = tenants.facade.create_service_account(side.actor, side.project_id, "matrix")
    return {"service_account_id": made.service_account_id}


def account_of_project(side: Side) -> Arguments:
    """The same, with its project."""
    return {"project_id": side.project_id, **service_account(side)}


def account_of_sibling(side: Side) -> Arguments:
    """The same account by way of the other project."""
    return {"project_id": side.sibling_project_id, **service_account(side)}


def disabled_account(side: Side) -> Arguments:
    """An account that was disabled."""
    arguments = account_of_project(side)
    tenants.facade.disable_service_account(side.actor, arguments["service_account_id"])
    return arguments


def key(side: Side) -> Arguments:
    """A key of the first project."""
    made = tenants.facade.create_key(side.actor, side.project_id, KeySettings("matrix"))
    return {"key_id": made.key_id}


def key_of_project(side: Side) -> Arguments:
    """The same, with its project."""
    return {"project_id": side.project_id, **key(side)}


def key_of_sibling(side: Side) -> Arguments:
    """The same key by way of the other project."""
    return {"project_id": side.sibling_project_id, **key(side)}


def revoked_key(side: Side) -> Arguments:
    """A key that was revoked."""
    arguments = key_of_project(side)
    tenants.facade.revoke_key_as(side.actor, arguments["key_id"])
    return arguments


def an_admin_key(side: Side) -> Arguments:
    """An admin key of few rights."""
    made = tenants.facade.create_admin_key(side.actor, "matrix", frozenset({Permission.USAGE_READ}))
    return {"key_id": made.key_id}


def revoked_admin_key(side: Side) -> Arguments:
    """An admin key that was revoked."""
    arguments = an_admin_key(side)
    tenants.facade.revoke_key_as(side.actor, arguments["key_id"])
    return arguments


def key_body(side: Side, _arguments: Arguments) -> Json:
    """A new key of the first project."""
    return {"name": "new", "project_id": str(side.project_id)}


def invitation_body(_side: Side, _arguments: Arguments) -> Json:
    """A new invitation."""
    return {"email": new_address(), "role": "viewer"}


A_PROJECT = frozenset({"project_id"})
PEOPLE_ROWS = {
    "api/v1/organizations/<uuid:organization_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"display_name": "Matrix"})}
    ),
    T + "members": Row(TENANT, {"GET": Act()}),
    T + "members/<uuid:user_id>": Row(
        TENANT,
        {"GET": Act(), "PATCH": Act({"role": "viewer"}), "DELETE": Act(status=204)},
        own=member,
        deleted=former_member,
    ),
    T + "invitations": Row(TENANT, {"GET": Act(), "POST": Act(invitation_body, 201)}),
    T + "invitations/<uuid:invitation_id>": Row(
        TENANT, {"GET": Act(), "DELETE": Act(status=204)}, own=invitation
    ),
    T + "projects": Row(TENANT, {"GET": Act(), "POST": Act({"name": "new"}, 201)}),
    T + "projects/<uuid:project_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "renamed"})}, own=project
    ),
    T + "projects/<uuid:project_id>/archive": Row(TENANT, {"POST": Act()}, own=project),
    T + "service_accounts": Row(
        TENANT,
        {"GET": Act(), "POST": Act(key_body, 201)},
        takes=A_PROJECT,
    ),
    T + "service_accounts/<uuid:service_account_id>": Row(
        TENANT, {"GET": Act(), "DELETE": Act(status=204)}, own=service_account
    ),
    T + "keys": Row(
        TENANT,
        {"GET": Act(), "POST": Act(key_body, 201)},
        takes=A_PROJECT | {"permissions"},
    ),
    T + "keys/<uuid:key_id>": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"name": "renamed"})}, own=key
    ),
    T + "keys/<uuid:key_id>/rotate": Row(TENANT, {"POST": Act({"grace_s": 60}, 201)}, own=key),
    T + "keys/<uuid:key_id>/revoke": Row(TENANT, {"POST": Act()}, own=key),
    T + "audit_log": Row(TENANT, {"GET": Act()}),
    T + "audit_log/verdict": Row(TENANT, {"GET": Act()}),
    K + "projects": Row(ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "new"})}),
    K + "projects/<uuid:project_id>": Row(
        ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "renamed"})}, own=project
    ),
    K + "projects/<uuid:project_id>/archive": Row(ORGANIZATION_KEY, {"POST": Act()}, own=project),
    K + "projects/<uuid:project_id>/service_accounts": Row(
        ORGANIZATION_KEY, {"GET": Act(), "POST": Act({"name": "new"})}, own=project
    ),
    K + "projects/<uuid:project_id>/service_accounts/<uuid:service_account_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=account_of_project,
        deleted=disabled_account,
        sibling=account_of_sibling,
    ),
    K + "projects/<uuid:project_id>/api_keys": Row(ORGANIZATION_KEY, {"GET": Act()}, own=project),
    K + "projects/<uuid:project_id>/api_keys/<uuid:key_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=key_of_project,
        deleted=revoked_key,
        sibling=key_of_sibling,
    ),
    K + "users": Row(ORGANIZATION_KEY, {"GET": Act()}),
    K + "users/<uuid:user_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "POST": Act({"role": "reader"}), "DELETE": Act()},
        own=member,
        deleted=former_member,
    ),
    K + "invites": Row(ORGANIZATION_KEY, {"GET": Act(), "POST": Act(invitation_body)}),
    K + "invites/<uuid:invitation_id>": Row(
        ORGANIZATION_KEY, {"GET": Act(), "DELETE": Act()}, own=invitation
    ),
    K + "admin_api_keys": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "POST": Act({"name": "new", "permissions": ["usage.read"]})},
    ),
    K + "admin_api_keys/<uuid:key_id>": Row(
        ORGANIZATION_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=an_admin_key,
        deleted=revoked_admin_key,
    ),
    K + "audit_logs": Row(ORGANIZATION_KEY, {"GET": Act()}),
}


def accepting_body(side: Side, _arguments: Arguments) -> Json:
    """An invitation of the owner to yet another organization."""
    address = tenants.facade.read_member(side.actor, side.users[Role.OWNER]).email
    other = tenants.facade.create_organization(f"other-{uuid4().hex[:12]}", "Other")
    inviter = tenants.facade.operator_of(other.organization_id)
    return {"token": tenants.facade.invite(inviter, address, Role.VIEWER).token}


def document(side: Side) -> Arguments:
    """The side's document of this month, as of the next."""
    now = datetime.now(UTC)
    period = month_of(now, ZoneInfo("UTC"))
    issued = close_period(side.organization_id, period, "UTC", now + timedelta(days=40))
    return {"invoice_id": issued.invoice_id}


def waiting_top_up(side: Side) -> Arguments:
    """A top-up that waits for its payment."""
    top_up_id = uuid4()
    with (
        tenants.facade.tenant_scope(side.organization_id),
        connections["default"].cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO billing_top_up (id, organization_id, amount_pico, currency,"
            " idempotency_key) VALUES (%s, %s, 20000000000000, 'USD', %s)",
            [top_up_id, side.organization_id, top_up_id.hex],
        )
    return {"top_up_id": top_up_id}


BILLING_ROWS = {
    T + "billing": Row(TENANT, {"GET": Act()}),
    T + "billing/settings": Row(
        TENANT, {"GET": Act(), "PATCH": Act({"legal_name": "Acme", "low_balance": "5"})}
    ),
    T + "billing/recharge": Row(
        TENANT,
        {
            "GET": Act(),
            "PUT": Act({"enabled": False, "threshold": "0", "amount": "0", "month_max": "0"}),
        },
    ),
    T + "credits": Row(TENANT, {"GET": Act()}),
    # Nobody takes payments here: what is let through is told so.
    T + "topups": Row(
        TENANT,
        {
            "GET": Act(),
            "POST": Act({"amount": "20"}, 503, headers={"idempotency-key": "matrix"}),
        },
    ),
    T + "topups/<uuid:top_up_id>": Row(TENANT, {"GET": Act()}, own=waiting_top_up),
    T + "invoices": Row(TENANT, {"GET": Act()}),
    T + "invoices/<uuid:invoice_id>": Row(TENANT, {"GET": Act()}, own=document),
    T + "invoices/<uuid:invoice_id>.pdf": Row(TENANT, {"GET": Act()}, own=document),
}

PERSON_ROWS = {
    "api/v1/me": Row(PERSON, {"GET": Act()}),
    "api/v1/invitations/accept": Row(PERSON, {"POST": Act(accepting_body)}),
    "api/v1/organizations": Row(
        PERSON,
        {"POST": Act(lambda *_: {"display_name": f"New {uuid4().hex[:8]}"}, 201)},
    ),
}

ROWS: dict[str, Row] = {
    **PEOPLE_ROWS,
    **USAGE_ROWS,
    **LIMITS_ROWS,
    **PERSON_ROWS,
    **CATALOG_ROWS,
    **BILLING_ROWS,
    **WEBHOOK_ROWS,
    **RETENTION_ROWS,
}
