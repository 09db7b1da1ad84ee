"""Bodies of the management API: bounded JSON in, exact money out.

A body holds the fields its serializer declares and no others, so that nobody sets what is ours to
set (an organization, a balance, a role of staff) by naming it.
"""

from collections.abc import Mapping
from typing import IO, Any

from rest_framework import serializers
from rest_framework.parsers import BaseParser

from billing.facade import decimal_string
from headrace import errors
from headrace.gateway.transport.http import decode_json


class BoundedJsonParser(BaseParser):
    """JSON under the token routes' limits of depth and number of values."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Raises ApiError 400; an empty body is an empty object."""
        body: bytes = stream.read()
        return decode_json(body) if body.strip() else {}


class Body(serializers.Serializer[Any]):
    """Base of every request body: unknown fields are refused, and only JSON objects are taken."""

    def to_internal_value(self, data: Any) -> Any:
        """The declared fields; raises ValidationError that names the first unknown one."""
        if isinstance(data, Mapping):
            for name in data:
                if name not in self.fields or self.fields[name].read_only:
                    raise serializers.ValidationError({str(name)[:100]: "Unknown field."})
        return super().to_internal_value(data)


def parse_body(body_class: type[Body], data: Any, *, partial: bool = False) -> dict[str, Any]:
    """The validated fields; raises ApiError 400 with `param` naming the field at fault."""
    body = body_class(data=data, partial=partial)
    if not body.is_valid():
        raise invalid_field(body.errors)
    validated: dict[str, Any] = body.validated_data
    return validated


def invalid_field(found: Any) -> errors.ApiError:
    """400 for the first of a serializer's errors: `param` is its path, as in `limits.0.metric`."""
    path: list[str] = []
    while isinstance(found, Mapping | list):
        if isinstance(found, Mapping):
            key, found = next(iter(found.items()))
            if key != "non_field_errors":
                path.append(str(key))
            continue
        position, found = next((i, one) for i, one in enumerate(found) if one)
        if isinstance(found, Mapping):
            path.append(str(position))
    param = ".".join(path) or None
    prefix = f"'{param}': " if param else ""
    return errors.invalid(f"{prefix}{found}", param)


class Money(serializers.Serializer[Any]):
    """An amount, exactly: in pico-units, and as a decimal of the currency's unit."""

    amount_pico = serializers.RegexField(r"^-?\d+$")
    amount = serializers.RegexField(r"^-?\d+(\.\d+)?$")


def money(amount_pico: int) -> dict[str, str]:
    """`Money` of an amount; both are strings, for JSON numbers are floats to most readers."""
    return {"amount_pico": str(amount_pico), "amount": decimal_string(amount_pico)}
