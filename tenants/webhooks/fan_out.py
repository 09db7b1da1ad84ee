"""From events to what is to be sent: a delivery per endpoint that asks for it, a mail per member.

Runs as the housekeeper, over all tenants; an event that has been fanned out is not looked at
again. Called by the delivery task.
"""

import json
from collections.abc import Sequence

from django.db import connections, transaction
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from tenants.events.kinds import event_kinds
from tenants.events.outbox import FOR_MAIL_ALONE
from tenants.models import Mail, Membership, OrganizationRow, OutboxEvent
from tenants.people.permissions import ROLE_PERMISSIONS
from tenants.sealing import Purpose, seal

HOUSEKEEPER_ALIAS = "housekeeper"
FAN_OUT_MAX = 100
"""Events of one transaction."""
RECIPIENTS_MAX = 10
"""Members that an event names beside those whom it concerns."""

_DELIVERIES = """
    INSERT INTO tenants_webhook_delivery
           (id, organization_id, endpoint_id, event_id, state, attempts, tries)
    SELECT uuidv7(), e.organization_id, w.id, e.id, 'pending', 0, 0
      FROM tenants_outbox_event e
      JOIN tenants_webhook_endpoint w ON w.organization_id = e.organization_id
     WHERE e.id = ANY(%s::uuid[]) AND w.disabled_at IS NULL
       AND (w.kinds = '{}' OR e.kind = ANY(w.kinds))
    ON CONFLICT (endpoint_id, event_id) DO NOTHING"""


def fan_out() -> int:
    """Fan out up to FAN_OUT_MAX waiting events; returns how many. Several at once share them."""
    with transaction.atomic(using=HOUSEKEEPER_ALIAS):
        waiting = OutboxEvent.objects.using(HOUSEKEEPER_ALIAS).filter(fanned_out_at=None)
        events = list(waiting.order_by("id").select_for_update(skip_locked=True)[:FAN_OUT_MAX])
        if not events:
            return 0
        ids = [event.id for event in events]
        with connections[HOUSEKEEPER_ALIAS].cursor() as cursor:
            cursor.execute(_DELIVERIES, [ids])
        mails = [mail for event in events for mail in _mails(event)]
        Mail.objects.using(HOUSEKEEPER_ALIAS).bulk_create(mails, ignore_conflicts=True)
        OutboxEvent.objects.using(HOUSEKEEPER_ALIAS).filter(id__in=ids).update(fanned_out_at=Now())
    return len(events)


def _mails(event: OutboxEvent) -> Sequence[Mail]:
    kind = event_kinds().get(event.kind)
    if kind is None or kind.mail_permission is None or not event.data.get("mailed", True):
        return ()
    organization = OrganizationRow.objects.using(HOUSEKEEPER_ALIAS).get(id=event.organization_id)
    addresses = _mailed(event, kind.mail_permission)
    told = {name: value for name, value in event.data.items() if name not in FOR_MAIL_ALONE}
    return [
        Mail(
            id=uuid7(),
            organization_id=event.organization_id,
            event_id=event.id,
            to_address=address,
            kind=event.kind,
            context_sealed=seal(
                json.dumps(
                    {
                        "organization": organization.display_name,
                        "description": kind.description,
                        "data": told,
                        "subject_prefix": event.data.get("subject_prefix", ""),
                    }
                ).encode(),
                Purpose.MAIL,
            ),
        )
        for address in sorted(addresses)
    ]


def _mailed(event: OutboxEvent, permission: str) -> set[str]:
    """Members whom it concerns and those it names. Never anybody else: a tenant writes the names,
    and mail to strangers would be in our name."""
    roles = [role.value for role, given in ROLE_PERMISSIONS.items() if permission in given]
    named = {str(one).lower() for one in event.data.get("recipients", ())[:RECIPIENTS_MAX]}
    members = Membership.objects.using(HOUSEKEEPER_ALIAS).filter(
        organization_id=event.organization_id, user__is_active=True
    )
    return {
        address.lower()
        for address, role in members.values_list("user__email", "role")
        if role in roles or address.lower() in named
    }
