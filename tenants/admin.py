"""What the operator's back office shows of tenants, by Django's admin: to be read only.

Imported by the back office's process alone, whose site hides secrets and lets nobody write.
"""

from django.contrib import admin

from tenants.models import (
    ApiKey,
    AuditHead,
    AuditRow,
    Erasure,
    Exchange,
    Export,
    InvitationRow,
    Mail,
    Membership,
    OrganizationRow,
    OutboxEvent,
    Project,
    ServiceAccountRow,
    User,
    WebhookAttempt,
    WebhookDelivery,
    WebhookEndpoint,
)

register = admin.site.register

register(
    OrganizationRow,
    list_display=("slug", "display_name", "status", "currency", "created_at"),
    list_filter=("status",),
    search_fields=("slug", "display_name"),
)
register(
    User,
    list_display=("email", "display_name", "is_active", "is_staff", "created_at"),
    list_filter=("is_staff", "is_active"),
    search_fields=("email",),
)
register(Membership, list_display=("id", "organization", "user", "role"), list_filter=("role",))
register(
    InvitationRow,
    list_display=("id", "organization", "email", "role", "expires_at", "accepted_at"),
)
register(Project, list_display=("id", "organization", "name", "archived_at"))
register(ServiceAccountRow, list_display=("id", "organization", "name", "disabled_at"))
register(
    ApiKey,
    list_display=("id", "organization", "kind", "name", "prefix", "last4", "revoked_at"),
)
register(AuditHead, list_display=("organization", "sequence"))
register(
    AuditRow,
    list_display=("id", "organization", "sequence", "occurred_at", "action", "actor_kind"),
)
register(
    OutboxEvent,
    list_display=("id", "organization", "kind", "created_at", "fanned_out_at"),
    exclude=("data",),
)
register(
    WebhookEndpoint,
    list_display=("id", "organization", "description", "failing_since", "disabled_at"),
)
register(
    WebhookDelivery,
    list_display=("id", "organization", "state", "attempts", "next_at", "delivered_at"),
    list_filter=("state",),
)
register(
    WebhookAttempt,
    list_display=("id", "organization", "attempt", "status_code", "error", "started_at"),
    exclude=("answer_start",),
)
register(
    Mail,
    list_display=("id", "organization", "kind", "to_address", "attempts", "sent_at", "failed_at"),
)
register(Exchange, list_display=("id", "organization", "created_at", "expires_at"))
register(
    Export,
    list_display=("id", "organization", "state", "size_bytes", "created_at", "expires_at"),
    list_filter=("state",),
)
register(Erasure, list_display=("organization", "asked_at", "confirmed_at", "erased_at"))
