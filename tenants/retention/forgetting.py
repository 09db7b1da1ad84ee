"""What is kept of one end user beside the books: prompts, events with their mail, exports.

Part of a removal that `billing` begins, in its transaction, as the housekeeper; what cannot be
undone must go together. Called through the facade.
"""

from collections.abc import Sequence
from uuid import UUID

from tenants.models import Exchange, Export, ExportState, Mail, OutboxEvent
from tenants.scope import require_scope


def forget_end_user_traces(
    organization_id: UUID, name: str, request_ids: Sequence[UUID], using: str
) -> None:
    """Delete kept prompts of these requests, events about the end user, and their mail.

    Every export that is ready or failed goes as well: it has the name in it. Inside the open scope.
    """
    require_scope(using)
    exchanges = Exchange.objects.using(using).filter(organization_id=organization_id)
    exchanges.filter(id__in=request_ids).delete()
    events = OutboxEvent.objects.using(using).filter(
        organization_id=organization_id, data__end_user=name
    )
    mails = Mail.objects.using(using).filter(organization_id=organization_id)
    mails.filter(event_id__in=events.values("id")).delete()
    mails.filter(to_address__iexact=name).delete()
    events.delete()
    exports = Export.objects.using(using).filter(organization_id=organization_id)
    exports.exclude(state=ExportState.PENDING).delete()
