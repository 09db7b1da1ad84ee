"""`Idempotency-Key` on management POSTs that move money: required, and answered once.

Put `idempotent` on a view's `post`. Only a 2xx answer is kept; anything else frees the key. The
view hands the key (`idempotency_key(request)`) on to the ledger, whose own uniqueness holds even
where the process dies between the money and the note of its answer.
"""

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

import tenants.facade
from headrace import errors
from headrace.gateway.idempotency import checked_key, claimed, count_if_too_large
from headrace.management_api.base import ActingView
from tenants.contracts.retention import IdempotencyScope, StoredAnswer

Params = ParamSpec("Params")
View = TypeVar("View", bound=ActingView)


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
        # What was understood and not what was sent: the view has read the stream already.
        body = msgspec.json.encode(request.data, order="sorted")
        found = claimed(place, hashlib.sha256(body).digest())
        if isinstance(found, StoredAnswer):
            return _replayed(found)
        stored = False
        try:
            response = post(view, request, *args, **kwargs)
            if 200 <= response.status_code < 300:
                rendered = JSONRenderer().render(response.data)
                count_if_too_large(rendered)
                tenants.facade.store_idempotent_answer(found, response.status_code, [], rendered)
                stored = True
            return response
        finally:
            if not stored:
                tenants.facade.free_idempotency_key(found)

    return once  # type: ignore[return-value]  # a method is called with its view first


def _replayed(answer: StoredAnswer) -> Response:
    body: Any = msgspec.json.decode(answer.body) if answer.body else None
    return Response(body, status=answer.status, headers={"idempotent-replayed": "true"})
