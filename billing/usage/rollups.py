"""Emptying the queue of usage events into the hourly rollups.

Each step is one SQL function and one transaction (sql/0005_rollups.sql); steps at once share the
work. Runs as the housekeeper. Called by a Celery task, and by whoever wants a short queue.
"""

from billing.retry import call

STEP_EVENTS_MAX = 2_000
"""Events counted in one transaction: the rollups' rows of an hour stay locked for as long."""
STEPS_MAX = 50
"""Steps of one call; the rest waits for the next."""
TAG_VALUES_PER_HOUR_MAX = 200
"""Values of one tag that an hour of an organization keeps; more are under `(other)`."""


def roll_up(using: str = "housekeeper") -> int:
    """Count what is in the queue, STEPS_MAX * STEP_EVENTS_MAX events at most; returns how many."""
    counted = 0
    for _ in range(STEPS_MAX):
        sql = "SELECT billing_roll_up(%s, %s)"
        [(step,)] = call(sql, [STEP_EVENTS_MAX, TAG_VALUES_PER_HOUR_MAX], using)
        counted += step
        if step < STEP_EVENTS_MAX:
            break
    return counted
