"""The door to `tenants`: everything other packages may call. Import nothing else but contracts.

Functions take and return frozen values; administrative ones take the database alias (`using`) of
the role that the calling process has.
"""

from tenants.audit import (
    AuditFilter,
    list_audit,
    record_audit,
    verify_audit_chain,
)
from tenants.backlogs import backlogs
from tenants.events.kinds import event_kinds, register_event_kind
from tenants.events.mail import fits_a_subject, send_mail_later
from tenants.events.outbox import emit
from tenants.keys.lifecycle import (
    create_admin_key,
    create_key,
    import_key,
    issue_key,
    revoke_key,
    revoke_key_as,
    rotate_key,
    update_key,
)
from tenants.keys.reading import (
    identity_of_key,
    key_made,
    key_names,
    key_rules,
    list_keys,
    read_key,
)
from tenants.keys.secrets import authenticate, key_refusal, revoked_among
from tenants.organizations.accounts import (
    UNSET,
    create_organization,
    organization_by_slug,
    organization_slugs,
    read_organization,
    set_organization_limits,
    set_organization_status,
    update_organization,
)
from tenants.organizations.founding import found_organization
from tenants.organizations.limited import minute_limited
from tenants.organizations.projects import (
    archive_project,
    close_project,
    create_project,
    list_projects,
    open_project,
    read_project,
    update_project,
)
from tenants.organizations.service_accounts import (
    create_service_account,
    create_service_account_with_key,
    disable_service_account,
    key_of_service_account,
    list_service_accounts,
    read_service_account,
)
from tenants.people.invitations import (
    accept_invitation,
    invitation_offer,
    invite,
    list_invitations,
    read_invitation,
    revoke_invitation,
)
from tenants.people.members import (
    add_member,
    change_role,
    list_members,
    memberships_of,
    read_member,
    remove_member,
    standing_among,
    strangers_among,
)
from tenants.people.operators import all_tenants, tenant_slugs
from tenants.people.permissions import (
    ROLE_PERMISSIONS,
    actor_for_key,
    actor_for_user,
    operator_of,
    roles_given_by,
)
from tenants.retention.erasure import (
    confirm_erasure,
    register_eraser,
    register_person_eraser,
    request_erasure,
)
from tenants.retention.exchanges import TEXT_BYTES_MAX as EXCHANGE_BYTES_MAX
from tenants.retention.exchanges import keep_exchange, read_exchange
from tenants.retention.exports import (
    export_part,
    list_exports,
    open_export,
    read_export,
    request_export,
)
from tenants.retention.forgetting import forget_end_user_traces
from tenants.retention.idempotency import ANSWER_BYTES_MAX as IDEMPOTENT_ANSWER_BYTES_MAX
from tenants.retention.idempotency import LEASE_S as IDEMPOTENCY_LEASE_S
from tenants.retention.idempotency import (
    IdempotencyClaim,
    claim_idempotency_key,
    free_idempotency_key,
    renew_idempotency_claim,
    store_idempotent_answer,
)
from tenants.scope import TenantManager, TenantModel, TenantQuerySet, tenant_scope
from tenants.webhooks.endpoints import (
    change_webhook_endpoint,
    create_webhook_endpoint,
    delete_webhook_endpoint,
    rotate_webhook_secret,
    webhook_endpoint,
    webhook_endpoints,
)
from tenants.webhooks.log import (
    replay_webhook_delivery,
    send_test_event,
    webhook_deliveries,
    webhook_delivery,
    webhook_payload,
)

__all__ = [
    "EXCHANGE_BYTES_MAX",
    "IDEMPOTENCY_LEASE_S",
    "IDEMPOTENT_ANSWER_BYTES_MAX",
    "ROLE_PERMISSIONS",
    "UNSET",
    "AuditFilter",
    "IdempotencyClaim",
    "TenantManager",
    "TenantModel",
    "TenantQuerySet",
    "accept_invitation",
    "actor_for_key",
    "actor_for_user",
    "add_member",
    "all_tenants",
    "archive_project",
    "authenticate",
    "backlogs",
    "change_role",
    "change_webhook_endpoint",
    "claim_idempotency_key",
    "close_project",
    "confirm_erasure",
    "create_admin_key",
    "create_key",
    "create_organization",
    "create_project",
    "create_service_account",
    "create_service_account_with_key",
    "create_webhook_endpoint",
    "delete_webhook_endpoint",
    "disable_service_account",
    "emit",
    "event_kinds",
    "export_part",
    "fits_a_subject",
    "forget_end_user_traces",
    "found_organization",
    "free_idempotency_key",
    "identity_of_key",
    "import_key",
    "invitation_offer",
    "invite",
    "issue_key",
    "keep_exchange",
    "key_made",
    "key_names",
    "key_of_service_account",
    "key_refusal",
    "key_rules",
    "list_audit",
    "list_exports",
    "list_invitations",
    "list_keys",
    "list_members",
    "list_projects",
    "list_service_accounts",
    "memberships_of",
    "minute_limited",
    "open_export",
    "open_project",
    "operator_of",
    "organization_by_slug",
    "organization_slugs",
    "read_exchange",
    "read_export",
    "read_invitation",
    "read_key",
    "read_member",
    "read_organization",
    "read_project",
    "read_service_account",
    "record_audit",
    "register_eraser",
    "register_event_kind",
    "register_person_eraser",
    "remove_member",
    "renew_idempotency_claim",
    "replay_webhook_delivery",
    "request_erasure",
    "request_export",
    "revoke_invitation",
    "revoke_key",
    "revoke_key_as",
    "revoked_among",
    "roles_given_by",
    "rotate_key",
    "rotate_webhook_secret",
    "send_mail_later",
    "send_test_event",
    "set_organization_limits",
    "set_organization_status",
    "standing_among",
    "store_idempotent_answer",
    "strangers_among",
    "tenant_scope",
    "tenant_slugs",
    "update_key",
    "update_organization",
    "update_project",
    "verify_audit_chain",
    "webhook_deliveries",
    "webhook_delivery",
    "webhook_endpoint",
    "webhook_endpoints",
    "webhook_payload",
]
