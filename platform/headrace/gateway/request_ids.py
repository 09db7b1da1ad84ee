"""Request ids: a UUIDv7 inside, a prefixed string outside.

The id of a request is the id of its hold, of its usage event and of its receipt.
"""

from uuid import UUID

from uuid_utils.compat import uuid7

_PREFIX = "req_"


def new_request_id() -> UUID:
    """A time-ordered id, fresh."""
    return uuid7()


def public_request_id(request_id: UUID) -> str:
    """As sent in `x-request-id` and asked for in receipts."""
    return f"{_PREFIX}{request_id.hex}"


def parse_request_id(text: str) -> UUID | None:
    """The id behind its public form, or None if it is not one of ours."""
    if not text.startswith(_PREFIX) or len(text) != len(_PREFIX) + 32:
        return None
    try:
        return UUID(hex=text[len(_PREFIX) :])
    except ValueError:
        return None


def completion_id(request_id: UUID, prefix: str) -> str:
    """The id that OpenAI clients see on an answer and its chunks; `prefix` is the endpoint's."""
    return f"{prefix}-{request_id.hex}"
