"""Framing, chunk objects and the routing of paths: pure pieces of the wire."""

import json

import pytest

from headrace import errors
from headrace.gateway.request_ids import new_request_id, parse_request_id, public_request_id
from headrace.gateway.transport import sse
from headrace.gateway.transport.token_routes import find_route, is_ours


def test_a_frame_is_one_line_and_a_blank_line() -> None:
    frames = sse.frames([{"text": "a\nb"}, {}])

    assert frames == b'data: {"text":"a\\nb"}\n\ndata: {}\n\n'


def test_every_error_has_all_four_fields() -> None:
    for error in (
        errors.key_missing(),
        errors.unsupported("n"),
        errors.overloaded("x"),
        errors.insufficient_quota("x"),
    ):
        body = json.loads(json.dumps(error.body()))

        assert set(body["error"]) == {"message", "type", "param", "code"}


def test_request_ids_come_back_from_their_public_form() -> None:
    request_id = new_request_id()

    assert parse_request_id(public_request_id(request_id)) == request_id
    for text in ("", "req_", "req_zz", "req_" + "g" * 32, request_id.hex):
        assert parse_request_id(text) is None


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/", True),
        ("/chat/completions", True),
        ("/v1/chat/completions/chat/completions", True),
        ("/v1/models/org/model:tag", True),
        ("/v1/completions", True),
        ("/v1/embeddings", True),
        ("/v1/nowhere", True),
        ("/v1/usage/requests/req_1", False),
        ("/admin/", False),
    ],
)
def test_paths_go_to_the_gateway_or_to_django(path: str, ours: bool) -> None:
    assert is_ours(path) is ours


def test_a_trailing_slash_finds_the_same_route() -> None:
    assert find_route("/v1/chat/completions/") == find_route("/v1/chat/completions")
    assert find_route("/v1/unknown") is None
