"""Minute limits as they are stored: a JSON object of those that are set.

Pure. Enforces nothing (the gateway does); used by keys, projects and organizations.
"""

from collections.abc import Mapping
from dataclasses import asdict

from tenants.contracts import NO_LIMITS, InvalidValue, MinuteLimits

LIMIT_MAX = 2**31 - 1


def limits_from_json(stored: Mapping[str, int] | None) -> MinuteLimits:
    """What a row says."""
    return MinuteLimits(**stored) if stored else NO_LIMITS


def limits_to_json(limits: MinuteLimits, param: str = "limits") -> dict[str, int]:
    """What a row will say; raises InvalidValue for a limit that is none."""
    given = {name: value for name, value in asdict(limits).items() if value is not None}
    for name, value in given.items():
        if not 0 < value <= LIMIT_MAX:
            raise InvalidValue(f"{param}.{name}", f"a limit is between 1 and {LIMIT_MAX}")
    return given
