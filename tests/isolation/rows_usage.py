"""Rows of models, aliases, prices, usage, costs and receipts."""

from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

import billing.facade
import tenants.facade
from billing.contracts import (
    HoldRequest,
    ServiceTier,
    UsageCounts,
)
from tests.billing.cast import make_offer, used
from tests.isolation.matrix import (
    ORGANIZATION_KEY,
    PROJECT_KEY,
    TENANT,
    Act,
    Arguments,
    Json,
    K,
    Row,
    T,
)
from tests.isolation.sides import Side


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
