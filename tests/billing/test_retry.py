"""What is tried again after the database undid it, and what is not."""

import pytest
from django.db import OperationalError
from psycopg import errors

from billing.retry import TRIES_MAX, VICTIMS_AND_LATE, again


class Work:
    """Fails with `cause` so many times, as Django says it, then answers."""

    def __init__(self, cause: Exception, times: int) -> None:
        self.cause = cause
        self.times = times
        self.tried = 0

    def __call__(self) -> str:
        self.tried += 1
        if self.tried <= self.times:
            raise OperationalError from self.cause
        return "done"


def test_a_victim_of_a_deadlock_is_tried_again_up_to_a_limit() -> None:
    work = Work(errors.DeadlockDetected(), 2)

    assert again(work) == "done"
    assert work.tried == 3
    with pytest.raises(OperationalError):
        again(Work(errors.DeadlockDetected(), TRIES_MAX))


def test_a_lock_that_came_too_late_is_waited_for_again_only_where_nobody_waits() -> None:
    hurried, patient = Work(errors.LockNotAvailable(), 1), Work(errors.LockNotAvailable(), 1)

    with pytest.raises(OperationalError):
        again(hurried)
    assert hurried.tried == 1
    assert again(patient, VICTIMS_AND_LATE) == "done"
