"""Mail to people: queued in the transaction of its cause, sent once by a worker.

Templates are plain text (`templates/tenants/mail/`), the first line is the subject. What a mail
says is sealed while it waits and forgotten when it is sent. Never sends from a request.
"""

import json
from collections.abc import Mapping
from uuid import UUID

from django.db import connections

from tenants.scope import APP_ALIAS
from tenants.sealing import Purpose, seal


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
