"""Mail to people: queued in the transaction of its cause, sent by a worker.

A template is a plain text file of `mail_templates/` named after the kind, its first line the
subject. What a mail says is sealed while it waits and forgotten when it is sent. Never sends from
a request.
"""

import json
import logging
import re
import smtplib
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import connections
from django.template import Context, Engine, Template, TemplateDoesNotExist

from tenants.contracts import SealBroken
from tenants.models import Mail
from tenants.scope import APP_ALIAS
from tenants.sealing import Purpose, seal, unseal

HOUSEKEEPER_ALIAS = "housekeeper"
TEMPLATES = Path(__file__).with_name("mail_templates")
FALLBACK_TEMPLATE = "event"
CLAIM_MAX = 5
PICO = 10**12
RETRY_S = (60, 300, 1800, 7200, 36_000, 86_400)
"""Pauses between tries: seven tries over a day and a half."""
LEASE = timedelta(minutes=10)
"""A worker that died while sending leaves the mail to another after this: it may come twice."""

logger = logging.getLogger(__name__)
_INTEGER = re.compile(r"-?[0-9]{1,38}")
_LIKE_AN_ADDRESS = re.compile(r"://|[^\W_][.\u3002\uff0e\uff61][^\W\d_]{2,}")
"""A host name anywhere: mail programs make links of bare ones too."""

# What belongs to no organization, such as a lost password's, goes first; then organizations take
# turns. random(): where there are more of them than seats, none is always the last.
_CLAIM = """
    WITH due AS (
        SELECT organization_id FROM tenants_mail
         WHERE sent_at IS NULL AND failed_at IS NULL AND next_at <= %(now)s
         GROUP BY organization_id
         ORDER BY organization_id IS NOT NULL, random() LIMIT %(items_max)s
    ), free AS (
        SELECT due.organization_id, one.id, one.next_at FROM due, LATERAL (
            SELECT m.id, m.next_at FROM tenants_mail m
             WHERE m.organization_id IS NOT DISTINCT FROM due.organization_id
               AND m.sent_at IS NULL AND m.failed_at IS NULL AND m.next_at <= %(now)s
             ORDER BY m.next_at LIMIT %(items_max)s FOR UPDATE SKIP LOCKED) AS one
    ), turn AS (
        SELECT id, organization_id,
               row_number() OVER (PARTITION BY organization_id ORDER BY next_at, id) AS round
          FROM free
    )
    UPDATE tenants_mail SET attempts = attempts + 1, next_at = %(lease)s
     WHERE id IN (SELECT id FROM turn
                   ORDER BY organization_id IS NOT NULL, round, random() LIMIT %(items_max)s)
    RETURNING id"""


def fits_a_subject(text: str) -> bool:
    """Whether a tenant's words may stand in a subject: printable, and nothing like an address."""
    return text.isprintable() and not _LIKE_AN_ADDRESS.search(text)


def send_mail_later(
    organization_id: UUID | None,
    to: str,
    kind: str,
    context: Mapping[str, object],
    using: str = APP_ALIAS,
) -> UUID:
    """Queue a mail of the template `kind`, in the open transaction if there is one.

    `context` fills the template and may hold a link with a token: it is stored sealed.
    """
    sealed = seal(json.dumps(context).encode(), Purpose.MAIL)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT tenants_queue_mail(%s, %s, %s, %s)", [organization_id, to, kind, sealed]
        )
        mail_id: UUID = cursor.fetchone()[0]
    return mail_id


def send_due_mail(now: datetime) -> int:
    """Send up to CLAIM_MAX mails that are due; returns how many were tried."""
    with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
        cursor.execute(_CLAIM, {"now": now, "lease": now + LEASE, "items_max": CLAIM_MAX})
        claimed = [row[0] for row in cursor.fetchall()]
    for mail in Mail.objects.using(HOUSEKEEPER_ALIAS).filter(id__in=claimed).order_by("id"):
        _send(mail, now)
    return len(claimed)


def _send(mail: Mail, now: datetime) -> None:
    if mail.organization_id is not None and _sent_in_a_day(mail.organization_id, now) >= (
        settings.ORGANIZATION_MAILS_PER_DAY_MAX
    ):
        logger.warning("organization %s had its mail of a day: given up", mail.organization_id)
        mail.failed_at = now
        mail.context_sealed = b""
        mail.save(update_fields=["failed_at", "context_sealed"])
        return
    try:
        subject, text = render(mail.kind, json.loads(unseal(mail.context_sealed, Purpose.MAIL)))
        EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [mail.to_address]).send()
    except SealBroken:
        mail.failed_at = now
        logger.warning("mail %s does not open: given up", mail.id)
    except (OSError, smtplib.SMTPException) as error:
        # The error may name the recipient: its type is enough for a log.
        logger.warning("mail %s not sent: %s", mail.id, type(error).__name__)
        if mail.attempts > len(RETRY_S):
            mail.failed_at = now
        else:
            mail.next_at = now + timedelta(seconds=RETRY_S[mail.attempts - 1])
    else:
        mail.sent_at = now
    if mail.sent_at or mail.failed_at:
        mail.context_sealed = b""
    mail.save(update_fields=["sent_at", "failed_at", "next_at", "context_sealed"])


def _sent_in_a_day(organization_id: UUID, now: datetime) -> int:
    sent = Mail.objects.using(HOUSEKEEPER_ALIAS).filter(organization_id=organization_id)
    return sent.filter(sent_at__gt=now - timedelta(days=1)).count()


def render(kind: str, context: Mapping[str, Any]) -> tuple[str, str]:
    """Subject and text of a mail; events without a template of their own share one.

    The subject is one line whatever the context holds.
    """
    try:
        template = _template(kind)
    except TemplateDoesNotExist:
        template = _template(FALLBACK_TEMPLATE)
    rows = [_row(name, value) for name, value in sorted((context.get("data") or {}).items())]
    filled = template.render(Context({**context, "kind": kind, "rows": rows}, autoescape=False))
    subject, _, text = filled.strip().partition("\n")
    prefix = str(context.get("subject_prefix") or "")
    return " ".join(f"{prefix} {subject}".split()), text.strip() + "\n"


def _row(name: str, value: object) -> tuple[str, object]:
    """A line of a mail: amounts in the currency's units, to the last digit."""
    readable = name.removesuffix("_pico").replace("_", " ")
    if isinstance(value, Mapping):
        return readable, ", ".join(f"{number} {what}" for what, number in value.items())
    if not name.endswith("_pico") or not _INTEGER.fullmatch(str(value)):
        return readable, value
    sign, digits = ("-", str(value)[1:]) if str(value).startswith("-") else ("", str(value))
    units, fraction = divmod(int(digits), PICO)
    return readable, f"{sign}{units}.{fraction:012d}".rstrip("0").rstrip(".")


@cache
def _template(kind: str) -> Template:
    return _engine().get_template(f"{kind}.txt")


@cache
def _engine() -> Engine:
    return Engine(dirs=[str(TEMPLATES)], autoescape=False)
