"""Rows of quotas, minute limits, and the limits and alerts of OpenAI's shape."""

from dataclasses import replace
from uuid import UUID, uuid4

import billing.facade
import tenants.facade
from billing.contracts import (
    QuotaMetric,
    QuotaPeriod,
    QuotaScope,
    QuotaWanted,
)
from tenants.contracts import Role
from tests.isolation.matrix import (
    ORGANIZATION_KEY,
    TENANT,
    Act,
    Arguments,
    Json,
    K,
    Row,
    T,
)
from tests.isolation.sides import Side

SPEND = QuotaWanted(QuotaScope.ORGANIZATION, QuotaMetric.SPEND, QuotaPeriod.MONTH, 10**12)
SPEND_LIMIT: Json = {"threshold_amount": 500, "currency": "USD", "interval": "month"}


def spend_alert_body(side: Side, _arguments: Arguments) -> Json:
    """An alert at an amount that no other alert has."""
    boss = tenants.facade.read_member(side.actor, side.users[Role.BILLING])
    channel = {"type": "email", "recipients": [boss.email]}
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
