"""The Celery tasks of tenants. Celery only wakes them: what there is to do is in PostgreSQL.

A wake-up may be lost, late or doubled without harm; the beat sends one regularly. Each task is
short, far below the broker's visibility timeout, and carries ids only.
"""

import threading
import time
from collections.abc import Iterator

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from tenants.events.mail import send_due_mail
from tenants.retention.erasure import erase_due
from tenants.retention.exports import write_due_export
from tenants.retention.sweeping import sweep_retention
from tenants.webhooks.deliveries import deliver_due
from tenants.webhooks.fan_out import fan_out

TURN_S_MAX = 20
"""No task begins another round after this: a worker has few threads, and others wait for one. What
is left is the next wake-up's."""

_webhook_seat = threading.BoundedSemaphore(1)
_mail_seat = threading.BoundedSemaphore(1)
_retention_seat = threading.BoundedSemaphore(1)
"""One of each a process: slow receivers must not take all threads of a worker."""


def _rounds() -> Iterator[None]:
    ends_at = time.monotonic() + TURN_S_MAX
    while time.monotonic() < ends_at:
        yield


@shared_task(name="tenants.deliver_webhooks")
def deliver_webhooks() -> None:
    """Fan waiting events out, and post deliveries that are due."""
    if not _webhook_seat.acquire(blocking=False):
        return
    try:
        for _ in _rounds():
            events = fan_out()
            tried = deliver_due(timezone.now(), loopback_allowed=settings.WEBHOOK_LOOPBACK_ALLOWED)
            if not events and not tried:
                return
    finally:
        _webhook_seat.release()


@shared_task(name="tenants.send_mail")
def send_mail() -> None:
    """Send mail that is due."""
    if not _mail_seat.acquire(blocking=False):
        return
    try:
        for _ in _rounds():
            if not send_due_mail(timezone.now()):
                return
    finally:
        _mail_seat.release()


@shared_task(name="tenants.keep_and_forget")
def keep_and_forget() -> None:
    """Write exports, erase organizations, and forget what has expired."""
    if not _retention_seat.acquire(blocking=False):
        return
    try:
        for _ in _rounds():
            erased = erase_due()
            if not write_due_export(timezone.now()) and not erased:
                break
        sweep_retention()
    finally:
        _retention_seat.release()
