"""`Idempotency-Key` on management POSTs: a request under one key is run and answered once.

Put `idempotent` on a view's `post` that moves money: it demands a key, which the view hands on
(`idempotency_key(request)`) to the ledger, whose own uniqueness holds even where the process dies
between the money and the note of its answer. `idempotent_if_keyed` is for what a project's key
makes: the thing and the note are one transaction. Only a 2xx answer is kept; anything else frees
the key.
"""

import functools
import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.gateway.idempotency import checked_key, claimed, count_if_too_large
from headrace.management_api.base import ActingView, ProjectKeyView
from tenants.contracts.retention import IdempotencyScope, StoredAnswer

Params = ParamSpec("Params")
View = TypeVar("View", bound=ActingView)
ProjectView = TypeVar("ProjectView", bound=ProjectKeyView)


def idempotency_key(request: Request) -> str:
    """The caller's key; raises ApiError 400 without one."""
    key = request.headers.get("idempotency-key")
    if key is None:
        raise errors.idempotency_key_missing()
    return checked_key(key)


def idempotent(
    post: Callable[Concatenate[View, Request, Params], Response],
) -> Callable[Concatenate[View, Request, Params], Response]:
    """Runs `post` once per key, organization and path, and tells its answer again for a day.

    Raises ApiError 400 without a key, 409 while the first runs, 422 for another body.
    """

    @functools.wraps(post)
    def once(view: View, request: Request, *args: Params.args, **kwargs: Params.kwargs) -> Response:
        key, organization_id = idempotency_key(request), view.actor.organization_id
        place = IdempotencyScope(organization_id, organization_id, request.path, key)
        return _run_once(
            place, request, nullcontext(), lambda: post(view, request, *args, **kwargs)
        )

    return once  # type: ignore[return-value]  # a method is called with its view first


def idempotent_if_keyed(
    post: Callable[Concatenate[ProjectView, Request, Params], Response],
) -> Callable[Concatenate[ProjectView, Request, Params], Response]:
    """Runs `post` once per key of one API key and path, if it comes under a key at all, in one
    transaction.

    Raises ApiError 409 while the first runs, 422 for another body.
    """

    @functools.wraps(post)
    def once(
        view: ProjectView, request: Request, *args: Params.args, **kwargs: Params.kwargs
    ) -> Response:
        if "idempotency-key" not in request.headers:
            return post(view, request, *args, **kwargs)
        owner = view.owner
        place = IdempotencyScope(
            owner.organization_id, owner.key_id, request.path, idempotency_key(request)
        )
        scope = tenants.facade.tenant_scope(owner.organization_id)
        return _run_once(
            place, request, scope, functools.partial(post, view, request, *args, **kwargs)
        )

    return once  # type: ignore[return-value]  # a method is called with its view first


def _run_once(
    place: IdempotencyScope,
    request: Request,
    transaction: AbstractContextManager[None],
    run: Callable[[], Response],
) -> Response:
    # What was understood and not what was sent: the view has read the stream already.
    body = msgspec.json.encode(request.data, order="sorted")
    found = claimed(place, hashlib.sha256(body).digest())
    if isinstance(found, StoredAnswer):
        return _replayed(found)
    stored = False
    try:
        with transaction:
            response = run()
            if 200 <= response.status_code < 300:
                rendered = JSONRenderer().render(response.data)
                count_if_too_large(rendered)
                tenants.facade.store_idempotent_answer(found, response.status_code, [], rendered)
        stored = 200 <= response.status_code < 300
        return response
    finally:
        if not stored:
            tenants.facade.free_idempotency_key(found)


def _replayed(answer: StoredAnswer) -> Response:
    body: Any = msgspec.json.decode(answer.body) if answer.body else None
    return Response(body, status=answer.status, headers={"idempotent-replayed": "true"})
