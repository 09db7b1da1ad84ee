"""The month that acme has behind it in a fresh house, so that there is something to look at.

Everything goes through the doors that real tenants use: requests through hold and settle in lists,
money through top-ups, the month's document through closing; only the clock is another one
(`billing.facade.clock_at`). Never for a real tenant: acme is kept out of Stripe, which is what its
pages call demo data. Begun again after a crash, it goes on where it was. Called by `seed`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import NoReturn
from uuid import UUID

from billing import facade as billing
from billing.contracts import (
    PICO,
    AliasExists,
    BillingProfile,
    HoldRefusal,
    HoldRequest,
    Quote,
    ServiceTier,
    Settlement,
    StartedTopUp,
    TopUp,
    UsageCounts,
)
from headrace.standalone.demo_limits import Used, set_limits
from headrace.standalone.demo_traffic import DAY, STRANDS, Asked, traffic
from tenants import facade as tenants
from tenants.contracts import Actor, KeyKind, KeySettings

HOUSEKEEPER = "housekeeper"
DAYS = 35
"""A month, and so much more that one month at least has ended and is closed."""
REQUESTS = 18_000
LIST_MAX = 200
"""Requests held, and then settled, in one transaction."""
SEED = 7
LARGE_MODEL = "demo-large"
"""On sale in the history only: nothing here serves it, so it is retired at the end of it."""
LARGE_CONTEXT_TOKENS_MAX = 131_072
LARGE_MICROS_PER_MTOK = {"input": 3_000_000, "cached_input": 300_000, "output": 12_000_000}
BATCH_DIVISOR = 2
ALIAS = "assistant"
WELCOME_PICO = 25 * PICO
TOP_UP_PICO = 60 * PICO
LOW_PICO = 10 * PICO
CLOSED_AFTER = timedelta(hours=25)
"""Behind the end of a month; its document waits a day for late events."""
PROJECTS = {
    "Support assistant": ("web widget", "mobile app", "trial notebook"),
    "Document search": ("search api", "search staging"),
    "Nightly summaries": ("nightly batch",),
}
TRIAL_KEY = "trial notebook"
"""Revoked when the trial is over."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Whose requests those of a strand are, and what they are sold at."""

    project_id: UUID
    key_id: UUID
    model_asked: str
    quote: Quote


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of the history as the books know it."""

    asked: Asked
    hold: HoldRequest
    settlement: Settlement

    @property
    def reserved_pico(self) -> int:
        """What it is held at."""
        hold = self.hold
        return billing.estimate_pico(hold.quote, hold.prompt_tokens, hold.output_tokens_max)

    @property
    def cost_pico(self) -> int:
        """What it is charged: no request of the history costs more than its hold."""
        return billing.cost_pico(self.hold.quote, self.settlement.counts)


def write_history(
    organization_id: UUID,
    owner_id: UUID,
    small_model: str,
    *,
    days: int = DAYS,
    requests: int = REQUESTS,
) -> int:
    """The history of an organization up to when it was made; returns how many requests it has.

    To be called before anything else is in its books, or again when it did not come to its end.
    """
    owner = tenants.actor_for_user(owner_id, organization_id, has_second_factor=None)
    until = tenants.read_organization(owner).created_at
    since = until - days * DAY
    _furnish(owner, small_model)
    senders = _senders(owner, small_model)
    sent = [
        _sent(organization_id, number, asked, senders[asked.strand.key])
        for number, asked in enumerate(traffic(until, days, requests, SEED))
    ]
    billing.prepare_past(since)
    with billing.clock_at(since):
        billing.grant_credit(organization_id, WELCOME_PICO, "demo-welcome", using=HOUSEKEEPER)
    with _payments_stand_in():
        _spend(owner, sent)
    while billing.roll_up():
        pass
    for month_start in _month_starts(since, until):
        closing_at = month_start + CLOSED_AFTER
        if closing_at < until:
            with billing.clock_at(closing_at):
                billing.close_due(closing_at)
    search_id = senders["search api"].project_id
    set_limits(owner, search_id, [Used(one.asked, one.cost_pico) for one in sent])
    tenants.revoke_key_as(owner, senders[TRIAL_KEY].key_id)
    billing.set_offer_life(LARGE_MODEL, until, small_model, until - 7 * DAY)
    return len(sent)


def _furnish(owner: Actor, small_model: str) -> None:
    """What it asks for, and how it is billed."""
    billing.publish_offer(
        public_id=LARGE_MODEL,
        display_name="Demo large",
        owned_by="headrace",
        context_tokens_max=LARGE_CONTEXT_TOKENS_MAX,
        output_tokens_max=LARGE_CONTEXT_TOKENS_MAX,
        using=HOUSEKEEPER,
    )
    billing.set_offer_life(LARGE_MODEL, None)
    for token_class, price in LARGE_MICROS_PER_MTOK.items():
        for tier, divisor in ((ServiceTier.INTERACTIVE, 1), (ServiceTier.BATCH, BATCH_DIVISOR)):
            billing.set_price(LARGE_MODEL, tier, token_class, price // divisor, using=HOUSEKEEPER)
    tenants.update_organization(owner, cost_tags=("feature", "plan"))
    with suppress(AliasExists):
        billing.create_alias(owner, ALIAS, small_model)
    billing.save_profile(
        owner,
        BillingProfile(
            legal_name="Acme Inc. (demo)",
            address="1 Mill Lane\n12345 Millbrook",
            email="billing@acme.example",
        ),
    )


def _senders(owner: Actor, small_model: str) -> dict[str, Sender]:
    """A project and a key for each strand, made where they are missing."""
    projects = {one.name: one.project_id for one in tenants.list_projects(owner)}
    keys = {one.settings.name: one for one in tenants.list_keys(owner, KeyKind.PROJECT)}
    senders = {}
    for project_name, key_names in PROJECTS.items():
        project_id = projects.get(project_name)
        if project_id is None:
            project_id = tenants.open_project(owner, project_name).project_id
        for key_name in key_names:
            if key_name not in keys:
                issued = tenants.create_key(owner, project_id, KeySettings(key_name))
                tenants.authenticate(issued.secret)  # so that it has been used
                keys[key_name] = tenants.key_made(owner, issued)
            [strand] = [one for one in STRANDS if one.key == key_name]
            model_asked = LARGE_MODEL if strand.is_large else ALIAS
            tier = ServiceTier.BATCH if strand.is_batch else ServiceTier.INTERACTIVE
            senders[key_name] = Sender(
                project_id=project_id,
                key_id=keys[key_name].key_id,
                model_asked=model_asked,
                quote=billing.quote(owner.organization_id, project_id, model_asked, tier),
            )
    return senders


def _sent(organization_id: UUID, number: int, asked: Asked, sender: Sender) -> Sent:
    request_id = _request_id(organization_id, number, asked.held_at)
    return Sent(
        asked,
        HoldRequest(
            request_id=request_id,
            organization_id=organization_id,
            project_id=sender.project_id,
            key_id=sender.key_id,
            quote=sender.quote,
            model_asked=sender.model_asked,
            prompt_tokens=asked.uncached_tokens + asked.cached_tokens,
            output_tokens_max=asked.strand.output_tokens_max,
            end_user=asked.end_user,
            tags=asked.tags,
        ),
        Settlement(
            request_id=request_id,
            counts=UsageCounts(asked.uncached_tokens, asked.cached_tokens, asked.output_tokens),
            finish_reason=asked.finish_reason,
            model_served=sender.quote.offer.public_id,
            queue_ms=asked.queue_ms,
            prefill_ms=asked.prefill_ms,
            decode_ms=asked.decode_ms,
            organization_id=organization_id,
        ),
    )


def _spend(owner: Actor, sent: Sequence[Sent]) -> None:
    """Holds and settles all of it in its order, and pays in before the money is out."""
    balance_pico = WELCOME_PICO
    paid = 0
    for start in range(0, len(sent), LIST_MAX):
        some = sent[start : start + LIST_MAX]
        reserved_pico = sum(one.reserved_pico for one in some)
        while balance_pico - reserved_pico < LOW_PICO:
            paid += 1
            _top_up(owner, f"demo-{paid}", some[0].asked.held_at - timedelta(minutes=1))
            balance_pico += TOP_UP_PICO
        _hold_and_settle(some)
        balance_pico -= sum(one.cost_pico for one in some)


def _top_up(owner: Actor, idempotency_key: str, at: datetime) -> None:
    started = billing.begin_topup(owner, TOP_UP_PICO, idempotency_key)
    with billing.clock_at(at):
        billing.complete_topup(_payment(started.top_up), TOP_UP_PICO)


def _hold_and_settle(some: Sequence[Sent]) -> None:
    now = some[-1].asked.settled_at
    with billing.clock_at(now, {one.hold.request_id: one.asked.held_at for one in some}):
        outcomes = billing.hold([one.hold for one in some], HOUSEKEEPER)
    for outcome in outcomes:
        # Both of a history that is begun again: the trial's key is revoked at its end.
        if outcome.refusal not in (None, HoldRefusal.DUPLICATE, HoldRefusal.KEY_REVOKED):
            raise RuntimeError(f"a request of the demo's history was refused: {outcome.refusal}")
    with billing.clock_at(now, {one.hold.request_id: one.asked.settled_at for one in some}):
        billing.settle([one.settlement for one in some], HOUSEKEEPER)


@contextmanager
def _payments_stand_in() -> Iterator[None]:
    """Nobody is asked for money: what is paid in here was paid long ago."""
    billing.use_payment_provider(_PaidLongAgo())
    try:
        yield
    finally:
        billing.connect_stripe()


class _PaidLongAgo:
    """A payment provider whose payments have names, and nothing else."""

    def begin(self, top_up: TopUp, return_url: str) -> StartedTopUp:
        billing.note_payment(top_up.organization_id, top_up.top_up_id, _payment(top_up))
        return StartedTopUp(top_up, return_url)

    def resume(self, top_up: TopUp, return_url: str) -> NoReturn:
        raise NotImplementedError("the demo's history leaves no payment open")

    def charge(self, top_up: TopUp) -> NoReturn:
        raise NotImplementedError("the demo's history has no recharges")


def _payment(top_up: TopUp) -> str:
    return f"demo_{top_up.top_up_id.hex}"


def _month_starts(since: datetime, until: datetime) -> Iterator[datetime]:
    month = until.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    starts = []
    while month > since:
        starts.append(month)
        month = (month - DAY).replace(day=1)
    return reversed(starts)


def _request_id(organization_id: UUID, number: int, at: datetime) -> UUID:
    """A UUIDv7 of that time; the same one whenever the history is begun again."""
    digest = blake2b(f"{organization_id} {number}".encode(), digest_size=10).digest()
    milliseconds = int(at.timestamp() * 1000)
    bits = milliseconds << 80 | int.from_bytes(digest)
    return UUID(int=bits & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62)
