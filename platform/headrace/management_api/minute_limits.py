"""Minute limits in bodies and answers: five numbers, each null for no limit."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rest_framework import serializers

from headrace.management_api.bodies import Body
from tenants.contracts import MinuteLimits

LIMIT_MAX = 2**31 - 1


class _Limit(serializers.IntegerField):
    def __init__(self) -> None:
        super().__init__(min_value=1, max_value=LIMIT_MAX, allow_null=True, default=None)


class MinuteLimitsBody(Body):
    """All of them: what is left out is no limit."""

    requests_max = _Limit()
    tokens_max = _Limit()
    input_tokens_max = _Limit()
    output_tokens_max = _Limit()
    concurrent_max = _Limit()


class MinuteLimitsShown(serializers.Serializer[Any]):
    """Per minute, and at once; null is no limit."""

    requests_max = serializers.IntegerField(allow_null=True)
    tokens_max = serializers.IntegerField(allow_null=True)
    input_tokens_max = serializers.IntegerField(allow_null=True)
    output_tokens_max = serializers.IntegerField(allow_null=True)
    concurrent_max = serializers.IntegerField(allow_null=True)


def limits_of(body: Mapping[str, int | None]) -> MinuteLimits:
    """A validated `MinuteLimitsBody` as a value."""
    return MinuteLimits(**body)


def render_limits(limits: MinuteLimits) -> dict[str, int | None]:
    """`MinuteLimitsShown`."""
    return asdict(limits)
