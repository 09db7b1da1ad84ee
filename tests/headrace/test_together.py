"""Calls that come at once travel together, and share no fate but the database's."""

import asyncio
import threading
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError
from django.test import override_settings

from headrace.gateway.database import DatabaseSilent
from headrace.gateway.together import TOGETHER_MAX, Together

ACME, GLOBEX = uuid4(), uuid4()


class Books:
    """A list call that waits at its door, and keeps what it was asked."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.calls: list[list[int]] = []

    def answer(self, items: Sequence[int]) -> list[int]:
        """Doubles; fails for 13 as an item's fault, for 99 as the database's."""
        self.calls.append(list(items))
        self.open.wait(30)
        if 13 in items:
            raise ValueError("13")
        if 99 in items:
            raise OperationalError("away")
        return [2 * item for item in items]


async def ask(books: Books, *asked: tuple[UUID, int]) -> list[int | BaseException]:
    """Each at once, in this order; the door opens when all have asked."""
    together = Together(books.answer)
    tasks = [asyncio.ensure_future(together(tenant, item)) for tenant, item in asked]
    await asyncio.sleep(0)
    books.open.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_a_tenants_calls_at_once_are_one_call_after_the_first() -> None:
    books = Books()

    answers = asyncio.run(ask(books, *((ACME, item) for item in range(6))))

    assert answers == [0, 2, 4, 6, 8, 10]
    assert books.calls == [[0], [1, 2, 3, 4, 5]]


def test_a_call_has_a_largest_size() -> None:
    books = Books()

    answers = asyncio.run(ask(books, *((ACME, item) for item in range(200, 202 + TOGETHER_MAX))))

    assert len(answers) == 2 + TOGETHER_MAX
    assert [len(call) for call in books.calls] == [1, TOGETHER_MAX, 1]


def test_tenants_travel_apart() -> None:
    books = Books()

    answers = asyncio.run(ask(books, (ACME, 1), (GLOBEX, 2), (ACME, 3)))

    assert answers == [2, 4, 6]
    assert sorted(books.calls) == [[1], [2], [3]]


def test_one_that_spoils_a_call_spoils_no_other() -> None:
    books = Books()

    answers = asyncio.run(ask(books, (ACME, 1), (ACME, 2), (ACME, 13), (ACME, 3)))

    assert [answers[at] for at in (0, 1, 3)] == [2, 4, 6]
    assert isinstance(answers[2], ValueError)


def test_a_database_that_fails_is_told_to_everybody_and_asked_no_more() -> None:
    books = Books()

    answers = asyncio.run(ask(books, (ACME, 1), (ACME, 2), (ACME, 99)))

    assert answers[0] == 2
    assert [type(answer) for answer in answers[1:]] == [OperationalError, OperationalError]
    assert books.calls == [[1], [2, 99]]


@pytest.mark.parametrize("first", [13, 99])
def test_the_next_call_goes_whatever_became_of_the_first(first: int) -> None:
    books = Books()

    answers = asyncio.run(ask(books, (ACME, first), (ACME, 4)))

    assert isinstance(answers[0], Exception)
    assert answers[1] == 8


def test_who_was_not_sent_in_time_is_told_and_never_sent() -> None:
    books = Books()

    async def ask_while_it_hangs() -> list[int | BaseException]:
        together = Together(books.answer)
        asking = [together(ACME, item) for item in range(200, 202 + TOGETHER_MAX)]
        answers = await asyncio.gather(*asking, return_exceptions=True)
        books.open.set()
        return answers

    with override_settings(DATABASE_ANSWER_MAX_S=0.2):
        *sent, unsent = asyncio.run(ask_while_it_hangs())

    assert all(isinstance(answer, DatabaseSilent) for answer in sent)
    assert type(unsent) is OperationalError
    assert [len(call) for call in books.calls] == [1, TOGETHER_MAX]
