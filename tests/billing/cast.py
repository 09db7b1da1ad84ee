"""The cast of money: a tenant with a key and a balance, a model for sale, and crowds."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID, uuid4

from django.contrib.auth import get_user_model
from django.db import connections
from uuid_utils.compat import uuid7

from billing.contracts import (
    PICO,
    Balance,
    HoldOutcome,
    HoldRequest,
    Quote,
    Receipt,
    ServiceTier,
    Settlement,
    UsageCounts,
)
from billing.facade import (
    balance,
    grant_credit,
    hold,
    open_account,
    publish_offer,
    quote,
    receipt,
    set_price,
)
from tenants.contracts import Role
from tenants.facade import add_member, create_organization, create_project, issue_key

Answer = TypeVar("Answer")
PENNY_MODEL = "one-pico-a-token"
"""Each token of each class costs one pico-unit, so amounts are token counts."""


@dataclass(frozen=True)
class Tenant:
    """An organization with a project, a key and an open account."""

    organization_id: UUID
    project_id: UUID
    key_id: UUID
    secret: str
    quote: Quote

    def request(self, prompt_tokens: int = 60, output_tokens_max: int = 40) -> HoldRequest:
        """A new request; by default it holds 100 pico-units and 100 tokens."""
        return HoldRequest(
            request_id=uuid7(),
            organization_id=self.organization_id,
            project_id=self.project_id,
            key_id=self.key_id,
            quote=self.quote,
            model_asked=self.quote.offer.public_id,
            prompt_tokens=prompt_tokens,
            output_tokens_max=output_tokens_max,
        )

    def held(self, prompt_tokens: int = 60, output_tokens_max: int = 40) -> HoldRequest:
        """A request whose hold stands."""
        request = self.request(prompt_tokens, output_tokens_max)
        [outcome] = hold([request])
        assert outcome.refusal is None
        return request

    def with_prices(self, input_: int, cached_input: int, output: int) -> "Tenant":
        """The same tenant, quoted for another model of these prices."""
        model = make_offer(f"priced-{uuid4().hex[:12]}", input_, cached_input, output)
        return self.quoted(
            quote(self.organization_id, self.project_id, model, ServiceTier.INTERACTIVE)
        )

    def quoted(self, other: Quote) -> "Tenant":
        """The same tenant with another quote."""
        return replace(self, quote=other)

    def balance(self) -> Balance:
        """What the tenant has now."""
        return balance(self.organization_id)

    def receipt(self, request: HoldRequest) -> Receipt:
        """What the tenant is told of a request."""
        return receipt(self.organization_id, request.request_id)


def colleague(organization_id: UUID, address: str) -> str:
    """A member at that address, who may look; returns the address."""
    people = get_user_model()._default_manager
    person = people.filter(email=address).first() or people.create_user(email=address)
    add_member(organization_id, person.pk, Role.VIEWER)
    return address


def make_offer(
    public_id: str,
    input_: int | None = None,
    cached_input: int | None = None,
    output: int | None = None,
    tier: ServiceTier = ServiceTier.INTERACTIVE,
) -> str:
    """A model for sale, with the prices given; returns its public id."""
    publish_offer(public_id, public_id, "headrace", 8192, 2048)
    for token_class, price in (
        ("input", input_),
        ("cached_input", cached_input),
        ("output", output),
    ):
        if price is not None:
            set_price(public_id, tier, token_class, price)
    return public_id


def make_tenant(name: str = "acme", credit_pico: int = 5 * PICO, floor_pico: int = 0) -> Tenant:
    """A fresh organization: tests share the database and never meet."""
    make_offer(PENNY_MODEL, 1, 1, 1)
    organization = create_organization(f"{name}-{uuid4().hex[:12]}", name)
    organization_id = organization.organization_id
    open_account(organization_id, floor_pico=floor_pico)
    if credit_pico:
        grant_credit(organization_id, credit_pico, "first")
    project_id = create_project(organization_id, "demo")
    key = issue_key(organization_id, project_id, "test")
    return Tenant(
        organization_id=organization_id,
        project_id=project_id,
        key_id=key.key_id,
        secret=key.secret,
        quote=quote(organization_id, project_id, PENNY_MODEL, ServiceTier.INTERACTIVE),
    )


def used(request: HoldRequest, counts: UsageCounts, finish_reason: str = "stop") -> Settlement:
    """What the engine says a request used."""
    return Settlement(
        request_id=request.request_id,
        counts=counts,
        finish_reason=finish_reason,
        model_served="served",
        queue_ms=1,
        prefill_ms=2,
        decode_ms=3,
        organization_id=request.organization_id,
    )


def refusals(outcomes: Sequence[HoldOutcome]) -> list[str | None]:
    """Why each was refused; None for those that stand."""
    return [None if one.refusal is None else one.refusal.value for one in outcomes]


def at_once(actions: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Run each action in a thread of its own, all released together; answers in their order."""
    barrier = threading.Barrier(len(actions))

    def run(action: Callable[[], Answer]) -> Answer:
        barrier.wait(timeout=30)
        try:
            return action()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(max_workers=len(actions)) as crowd:
        return list(crowd.map(run, actions))
