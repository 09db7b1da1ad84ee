"""The outbox: events recorded in the transaction of their cause, and made into deliveries later.

Never calls out: a worker's task (`tenants.tasks`) fans events out, posts and mails. Called by
whoever changes something that a tenant wants to hear of.
"""

import json
from collections.abc import Mapping
from uuid import UUID

from django.db import connections

from tenants.events.kinds import event_kinds
from tenants.scope import APP_ALIAS, require_scope

FOR_MAIL_ALONE = frozenset({"mailed", "recipients", "subject_prefix"})
"""Of an event's data: whether it is mailed, further members to mail, and how the subject begins.
Posted to nobody."""


def emit(
    organization_id: UUID, kind: str, data: Mapping[str, object], using: str = APP_ALIAS
) -> UUID:
    """Record an event inside the open scope and transaction; returns its id.

    Raises ValueError for an unregistered kind, ScopeMissing outside a scope. Amounts in `data` are
    strings, as in the API.
    """
    if kind not in event_kinds():
        raise ValueError(f"{kind!r} is not a registered event kind")
    require_scope(using)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT tenants_emit(%s, %s, %s::jsonb)", [organization_id, kind, json.dumps(data)]
        )
        event_id: UUID = cursor.fetchone()[0]
    return event_id
