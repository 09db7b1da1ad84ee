"""Requests that wait or run too long: a 503 or 504 that says so, an error frame once it streams."""

import httpx
import openai
import pytest

from headrace.gateway.orders import Blame
from headrace.gateway.settling.endings import engine_error, refused_by_engine
from inference.contracts import Finish, FinishReason, RefusalCode, TokenCounts
from tests import books
from tests.house import OwnHouse
from tests.prompts import STORY

BLAME = Blame("input", grammar="guided_json")


def finish(reason: FinishReason, code: RefusalCode | None = None) -> Finish:
    return Finish(
        "r", reason, TokenCounts(), TokenCounts(), error_code=code, error_message="so it is"
    )


@pytest.mark.parametrize(
    ("code", "status", "param"),
    [
        (RefusalCode.QUEUE_FULL, 503, None),
        (RefusalCode.QUEUE_TIMEOUT, 503, None),
        (RefusalCode.DRAINING, 503, None),
        (RefusalCode.CONTEXT_LENGTH_EXCEEDED, 400, "input"),
        (RefusalCode.INVALID_GRAMMAR, 400, "guided_json"),
        (RefusalCode.INVALID_REQUEST, 400, None),
        (RefusalCode.DUPLICATE_REQUEST_ID, 500, None),
    ],
)
def test_a_refusal_of_the_engine_names_the_field_or_when_to_retry(
    code: RefusalCode, status: int, param: str | None
) -> None:
    error = refused_by_engine(finish(FinishReason.REFUSED, code), BLAME)

    assert (error.status, error.param) == (status, param)
    assert ("retry-after" in error.headers()) is (status == 503)


def test_an_end_by_deadline_is_a_timeout_and_any_other_a_failure() -> None:
    assert engine_error(finish(FinishReason.TIMED_OUT), BLAME).status == 504
    assert engine_error(finish(FinishReason.ERROR), BLAME).status == 500


def test_a_grammar_that_leads_nowhere_is_the_clients_own_also_after_it_started() -> None:
    error = engine_error(finish(FinishReason.ERROR, RefusalCode.INVALID_GRAMMAR), BLAME)

    assert (error.status, error.code, error.param) == (400, "invalid_grammar", "guided_json")


@pytest.mark.long
def test_at_its_deadline_a_request_ends_and_costs_what_was_handed_over(
    own_house: OwnHouse,
) -> None:
    house = own_house(HEADRACE_REQUEST_DEADLINE_S="2")
    whole, streamed = house.new_tenant(), house.new_tenant()
    fields = {"model": house.model, "messages": STORY, "max_tokens": 4000, "temperature": 0}
    with house.http(whole.secret) as client:
        answer = client.post("/v1/chat/completions", json=fields)
    stream = house.client(streamed.secret).chat.completions.create(
        model=house.model, messages=STORY, max_tokens=4000, temperature=0, stream=True
    )
    first = next(iter(stream))
    with pytest.raises(openai.APIError, match="not done within its time"):
        list(stream)

    assert answer.status_code == httpx.codes.GATEWAY_TIMEOUT
    assert answer.json()["error"]["code"] == "timeout"
    (nothing,) = books.events(whole)
    assert (nothing["charge_pico"], nothing["finish_reason"]) == (0, "timed_out")
    assert first.choices[0].delta.role == "assistant"
    (partly,) = books.events(streamed)
    assert partly["finish_reason"] == "timed_out"
    assert 1 <= partly["output_tokens"] < 4000
    books.assert_in_order()
