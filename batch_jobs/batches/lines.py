"""Lines of a batch's input: what one must look like, and the request in it. Pure.

Called by validation for every line, and by the pump for each line that it runs.
"""

from typing import Any

import msgspec


class _Request(msgspec.Struct):
    body: dict[str, Any]


_request = msgspec.json.Decoder(_Request)


def body_of(line: bytes) -> dict[str, Any]:
    """The request body in a line that passed validation; raises DecodeError for any other."""
    return _request.decode(line).body
