"""May it run: price, size, minute limits and the hold, in that order. A long body has its place in
the minute reserved before its size is measured.

Everything here happens before an engine sees the request. A refusal anywhere leaves nothing behind:
no hold, no reserved tokens, no charge.
"""

import secrets
from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, InterfaceError

from billing.contracts import (
    HoldRequest,
    Quote,
    ServiceTier,
)
from billing.facade import estimate_pico
from headrace import errors
from headrace.gateway.admission.auth import cache_salt
from headrace.gateway.admission.measuring import (
    PROMPT_CHARS_PER_TOKEN_MAX,
    Measured,
    chars,
    is_long,
    measure,
)
from headrace.gateway.admission.minute_limits import Demand, LimitState, refusal, scopes_of
from headrace.gateway.admission.rate_limits import RateLimiter
from headrace.gateway.admission.refusals import hold_refusal
from headrace.gateway.database import DatabaseSilent, ended
from headrace.gateway.orders import Caller, Order
from headrace.gateway.services import Services
from headrace.gateway.settling.settle import void_until_done
from headrace.telemetry import metrics
from inference.contracts import SEED_BITS, GenerationRequest, Priority
from inference.protocol import Hello


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that holds its money and its place, ready for an engine."""

    quote: Quote
    limits: LimitState | None
    """None for bulk work, which has no minute limits."""
    generation: GenerationRequest


async def admit(caller: Caller, order: Order, services: Services, engine: Hello) -> Admission:
    """Prices, measures, reserves and holds; raises ApiError, with nothing left reserved or held."""
    quote = await services.quotes.quote(
        caller.organization_id, caller.project_id, order.model, caller.tier
    )
    if not caller.rules.allow(quote.offer.public_id):
        raise errors.model_not_found(order.model)
    if quote.offer.public_id != engine.model:
        raise errors.overloaded("No engine serves this model right now; try again later.")
    if is_long(order):
        # A place first, and the fewest tokens it can be: encoding it is work already.
        fewest = Demand(chars(order) // PROMPT_CHARS_PER_TOKEN_MAX, 0)
        await _reserve(services.limiter, caller, order, fewest)
    try:
        measured = await measure(services.encoder, order, quote.offer, engine.limits)
        generation = _generation(caller, order, measured)
        demand = Demand(measured.prompt_tokens, measured.output_tokens_max)
        limits = await _reserve(services.limiter, caller, order, demand)
        await _hold(services, caller, order, quote, measured)
    except errors.ApiError:
        await release(services.limiter, caller, order)
        raise
    except (DatabaseError, InterfaceError) as error:
        await release(services.limiter, caller, order)
        # The answer may have been lost after the commit: a hold that stands is given back.
        services.spawn(_void_after(error, caller.request_id))
        raise errors.overloaded("The billing database is away; try again shortly.") from error
    return Admission(quote, limits, generation)


async def _void_after(error: Exception, request_id: UUID) -> None:
    """A void must not overtake the hold it is for: it would find nothing to give back."""
    if isinstance(error, DatabaseSilent):
        await ended(error)
    await void_until_done(request_id)


async def _reserve(
    limiter: RateLimiter, caller: Caller, order: Order, demand: Demand
) -> LimitState | None:
    scopes = scopes_of(caller, order.end_user)
    if not scopes:
        return None
    limits = await limiter.reserve(caller.organization_id, caller.request_id, demand, scopes)
    if limits.refused:
        metrics.LIMIT_HITS.labels(limits.refused).inc()
        raise refusal(limits, demand)
    return limits


async def release(limiter: RateLimiter, caller: Caller, order: Order) -> None:
    """Gives back what `admit` reserved of the minute."""
    if scopes := scopes_of(caller, order.end_user):
        await limiter.release(caller.organization_id, caller.request_id, scopes)


async def _hold(
    services: Services, caller: Caller, order: Order, quote: Quote, measured: Measured
) -> None:
    if caller.bound_pico is not None:
        amount_pico = estimate_pico(quote, measured.prompt_tokens, measured.output_tokens_max)
        if amount_pico > caller.bound_pico:
            raise errors.above_bound(amount_pico, caller.bound_pico)
    request = HoldRequest(
        request_id=caller.request_id,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        key_id=caller.key_id,
        quote=quote,
        model_asked=order.model,
        prompt_tokens=measured.prompt_tokens,
        output_tokens_max=measured.output_tokens_max,
        end_user=order.end_user,
        tags=order.metadata,
    )
    with metrics.HOLD_SECONDS.time():
        outcome = await services.hold(caller.organization_id, request)
    if outcome.refusal is not None:
        raise hold_refusal(outcome, quote.currency)


def _generation(caller: Caller, order: Order, measured: Measured) -> GenerationRequest:
    batch = caller.tier is ServiceTier.BATCH
    sampling = order.sampling
    if sampling is not None:
        seed = sampling.seed if order.seed_asked else secrets.randbits(SEED_BITS)
        sampling = replace(sampling, max_tokens=measured.max_tokens, seed=seed)
    return GenerationRequest(
        request_id=caller.request_id.hex,
        prompts=measured.prompts,
        sampling=sampling,
        choices=order.choices,
        cache_salt=cache_salt(
            str(caller.organization_id),
            str(caller.project_id) if caller.rules.cache_per_project else None,
        ),
        priority=Priority.BATCH if batch else Priority.INTERACTIVE,
        fairness_key=caller.organization_id.bytes,
        # Nobody waits for a bulk item, and its lease bounds how long it may take.
        queue_timeout_s=None if batch else settings.ENGINE_QUEUE_TIMEOUT_S,
        deadline_s=None if batch else settings.REQUEST_DEADLINE_S,
        # A bulk item has its own proof of delivery (its row); what the engine wrote must count.
        stream=order.stream or batch,
    )
