"""Lists: how much of one is asked for, and how a page of it is answered.

A page starts behind the item whose id `after` names; ids are time-ordered, so pages stay right
while rows come. A view asks its facade for `rows_max`, one more than is shown, and never for all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from drf_spectacular.utils import inline_serializer
from rest_framework import serializers
from rest_framework.request import Request

from headrace import errors

LIMIT_DEFAULT = 20
LIMIT_MAX = 100
ORDERS = ("desc", "asc")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Page:
    """What a client asked of a list: newest first unless `ascending`."""

    limit: int
    after: UUID | None
    ascending: bool

    @property
    def rows_max(self) -> int:
        """One more than is shown: it tells whether more follow."""
        return self.limit + 1


def asked_page(
    request: Request,
    *others: str,
    parse_id: Callable[[str], UUID] = UUID,
    limit_max: int = LIMIT_MAX,
    limit_default: int = LIMIT_DEFAULT,
) -> Page:
    """`limit`, `after` and `order` of the query string, which may hold `others` and nothing else.

    `parse_id` reads an id as the list shows it, or raises ValueError. Raises ApiError 400 that
    names the parameter.
    """
    query = request.query_params
    check_query(request, "limit", "after", "order", *others)
    limit = asked_limit(request, limit_max, limit_default)
    order = query.get("order", ORDERS[0])
    if order not in ORDERS:
        raise errors.invalid("'order' must be 'asc' or 'desc'.", "order")
    return Page(limit, asked_uuid(request, "after", parse_id), order == "asc")


def asked_limit(
    request: Request, limit_max: int = LIMIT_MAX, limit_default: int = LIMIT_DEFAULT
) -> int:
    """How many rows; raises ApiError 400 that names `limit`."""
    limit = request.query_params.get("limit", str(limit_default))
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= limit_max:
        raise errors.invalid(f"'limit' must be a number from 1 to {limit_max}.", "limit")
    return int(limit)


def asked_uuid(request: Request, name: str, parse: Callable[[str], UUID] = UUID) -> UUID | None:
    """An id of the query string; raises ApiError 400 that names the parameter."""
    text = request.query_params.get(name)
    try:
        return parse(text) if text else None
    except ValueError:
        raise errors.invalid(f"'{name}' must be an id.", name) from None


def asked_flag(request: Request, name: str) -> bool:
    """A switch of the query string; raises ApiError 400 that names the parameter."""
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise errors.invalid(f"'{name}' must be 'true' or 'false'.", name)
    return text == "true"


def check_query(request: Request, *known: str) -> None:
    """Raises ApiError 400 for a query parameter that is not `known`, or is given twice."""
    for name, values in request.query_params.lists():
        if name not in known and name.removesuffix("[]") not in known:
            raise errors.invalid(f"Unknown parameter: '{name[:100]}'.", name[:100])
        if len(values) > 1 and not name.endswith("[]"):
            raise errors.invalid(f"'{name[:100]}' is given more than once.", name[:100])


def page_body(
    rows: Sequence[Item], page: Page, render: Callable[[Item], dict[str, Any]]
) -> dict[str, Any]:
    """The answer to a list request; give up to `page.rows_max` rows, rendered with an `id` each."""
    data = [render(row) for row in rows[: page.limit]]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": len(rows) > page.limit,
    }


def page_shown(
    item: type[serializers.Serializer[Any]],
    id_field: type[serializers.Field[Any, Any, Any, Any]] = serializers.UUIDField,
) -> serializers.Serializer[Any]:
    """How the API's description shows a page of such items, whose ids are of `id_field`."""
    return inline_serializer(
        f"{item.__name__}Page",
        {
            "object": serializers.CharField(),
            "data": item(many=True),
            "first_id": id_field(allow_null=True),
            "last_id": id_field(allow_null=True),
            "has_more": serializers.BooleanField(),
        },
    )
