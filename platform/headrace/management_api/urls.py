"""The routes of the management API, a list for each way of naming the organization.

Every route must be in tests/isolation/routes.py and in docs/openapi.yaml too: tests fail for one
that is not. Mounted by `headrace.urls`.
"""

from django.urls import URLPattern, include, path
from django.urls.resolvers import URLResolver

from headrace.management_api import openapi
from headrace.management_api.bulk import batches, files, summaries, summary_results
from headrace.management_api.catalog import aliases, models, prices
from headrace.management_api.data import exports, webhooks
from headrace.management_api.money import billing, invoices, limits
from headrace.management_api.openai import audit as openai_audit
from headrace.management_api.openai import limits as openai_limits
from headrace.management_api.openai import people as openai_people
from headrace.management_api.openai import projects as openai_projects
from headrace.management_api.openai import rate_limits as openai_rate_limits
from headrace.management_api.people import audit, keys, members, organizations, projects
from headrace.management_api.people.me import MeView, OrganizationsView
from headrace.management_api.usage import costs, requests
from headrace.management_api.usage import csv_export as usage_csv
from headrace.management_api.usage import reports as usage

TENANT_ROUTES: list[URLPattern] = [
    path("members", members.MembersView.as_view()),
    path("members/<uuid:user_id>", members.MemberView.as_view()),
    path("invitations", members.InvitationsView.as_view()),
    path("invitations/<uuid:invitation_id>", members.InvitationView.as_view()),
    path("projects", projects.ProjectsView.as_view()),
    path("projects/<uuid:project_id>", projects.ProjectView.as_view()),
    path("projects/<uuid:project_id>/archive", projects.ProjectArchiveView.as_view()),
    path("service_accounts", projects.ServiceAccountsView.as_view()),
    path("service_accounts/<uuid:service_account_id>", projects.ServiceAccountView.as_view()),
    path("keys", keys.KeysView.as_view()),
    path("keys/<uuid:key_id>", keys.KeyView.as_view()),
    path("keys/<uuid:key_id>/rotate", keys.KeyRotateView.as_view()),
    path("keys/<uuid:key_id>/revoke", keys.KeyRevokeView.as_view()),
    path("limits", limits.LimitsView.as_view()),
    path("audit_log", audit.AuditLogView.as_view()),
    path("audit_log/verdict", audit.AuditVerdictView.as_view()),
    path("models", models.ModelsView.as_view()),
    path("aliases", aliases.AliasesView.as_view()),
    path("aliases/<uuid:alias_id>", aliases.AliasView.as_view()),
    path("prices", prices.PricesView.as_view()),
    path("billing", billing.BalanceView.as_view()),
    path("billing/settings", invoices.BillingSettingsView.as_view()),
    path("billing/recharge", billing.RechargeView.as_view()),
    path("credits", billing.CreditsView.as_view()),
    path("topups", billing.TopUpsView.as_view()),
    path("topups/<uuid:top_up_id>", billing.TopUpView.as_view()),
    path("invoices", invoices.InvoicesView.as_view()),
    path("invoices/<uuid:invoice_id>", invoices.InvoiceView.as_view()),
    path("invoices/<uuid:invoice_id>.pdf", invoices.InvoicePdfView.as_view()),
    path("usage", usage.UsageView.as_view()),
    path("usage.csv", usage_csv.UsageCsvView.as_view()),
    path("requests", requests.RequestsView.as_view()),
    path("requests/<str:request_id>", requests.RequestView.as_view()),
    path("requests/<str:request_id>/exchange", exports.ExchangeView.as_view()),
    path("exports", exports.ExportsView.as_view()),
    path("exports/<uuid:export_id>", exports.ExportView.as_view()),
    path("exports/<uuid:export_id>/content", exports.ExportContentView.as_view()),
    path("deletion", exports.DeletionView.as_view()),
    path("deletion/confirmation", exports.DeletionConfirmationView.as_view()),
    path("event_kinds", webhooks.EventKindsView.as_view()),
    path("webhooks", webhooks.WebhooksView.as_view()),
    path("webhooks/<uuid:webhook_id>", webhooks.WebhookView.as_view()),
    path("webhooks/<uuid:webhook_id>/secret", webhooks.WebhookSecretView.as_view()),
    path("webhooks/<uuid:webhook_id>/test", webhooks.WebhookTestView.as_view()),
    path("webhooks/<uuid:webhook_id>/deliveries", webhooks.WebhookDeliveriesView.as_view()),
    path("webhook_deliveries/<uuid:delivery_id>", webhooks.WebhookDeliveryView.as_view()),
    path("webhook_deliveries/<uuid:delivery_id>/replay", webhooks.WebhookReplayView.as_view()),
]
"""Under /api/v1/organizations/<uuid:organization_id>/, by session or admin key: TenantView."""

ORGANIZATION_KEY_ROUTES: list[URLPattern] = [
    path("projects", openai_projects.OpenAiProjectsView.as_view()),
    path("projects/<uuid:project_id>", openai_projects.OpenAiProjectView.as_view()),
    path("projects/<uuid:project_id>/archive", openai_projects.OpenAiProjectArchiveView.as_view()),
    path(
        "projects/<uuid:project_id>/service_accounts",
        openai_projects.OpenAiServiceAccountsView.as_view(),
    ),
    path(
        "projects/<uuid:project_id>/service_accounts/<uuid:service_account_id>",
        openai_projects.OpenAiServiceAccountView.as_view(),
    ),
    path("projects/<uuid:project_id>/api_keys", openai_projects.OpenAiProjectKeysView.as_view()),
    path(
        "projects/<uuid:project_id>/api_keys/<uuid:key_id>",
        openai_projects.OpenAiProjectKeyView.as_view(),
    ),
    path("users", openai_people.OpenAiUsersView.as_view()),
    path("users/<uuid:user_id>", openai_people.OpenAiUserView.as_view()),
    path("invites", openai_people.OpenAiInvitesView.as_view()),
    path("invites/<uuid:invitation_id>", openai_people.OpenAiInviteView.as_view()),
    path("admin_api_keys", openai_people.OpenAiAdminKeysView.as_view()),
    path("admin_api_keys/<uuid:key_id>", openai_people.OpenAiAdminKeyView.as_view()),
    path("spend_limit", openai_limits.SpendLimitView.as_view()),
    path("spend_alerts", openai_limits.SpendAlertsView.as_view()),
    path("spend_alerts/<uuid:alert_id>", openai_limits.SpendAlertView.as_view()),
    path("projects/<uuid:project_id>/spend_limit", openai_limits.SpendLimitView.as_view()),
    path("projects/<uuid:project_id>/spend_alerts", openai_limits.SpendAlertsView.as_view()),
    path(
        "projects/<uuid:project_id>/spend_alerts/<uuid:alert_id>",
        openai_limits.SpendAlertView.as_view(),
    ),
    path(
        "projects/<uuid:project_id>/rate_limits",
        openai_rate_limits.RateLimitsView.as_view(),
    ),
    path(
        "projects/<uuid:project_id>/rate_limits/<uuid:rate_limit_id>",
        openai_rate_limits.RateLimitView.as_view(),
    ),
    path("audit_logs", openai_audit.OpenAiAuditLogsView.as_view()),
    path("usage/completions", usage.CompletionsUsageView.as_view()),
    path("usage/embeddings", usage.EmbeddingsUsageView.as_view()),
    path("costs", costs.CostsView.as_view()),
]
"""Under /v1/organization/, OpenAI's shapes, by admin key: OrganizationKeyView."""

SUMMARY_ROUTES: list[URLPattern] = [
    path("start", summaries.SummaryStartView.as_view()),
    path("preview", summaries.SummaryPreviewView.as_view()),
    path("pause", summaries.SummaryPauseView.as_view()),
    path("resume", summaries.SummaryResumeView.as_view()),
    path("cancel", summaries.SummaryCancelView.as_view()),
    path("retry", summaries.SummaryRetryView.as_view()),
    path("results", summary_results.SummaryResultsView.as_view()),
    path("failures", summary_results.SummaryFailuresView.as_view()),
]
"""Under /api/v1/summaries/<str:summary_id>/, by project key."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/schema", openapi.schema, name="schema"),
    path("api/docs", openapi.docs, name="api_docs"),
    path("api/v1/me", MeView.as_view(), name="me"),
    path("api/v1/organizations", OrganizationsView.as_view(), name="organizations"),
    path("api/v1/invitations/accept", members.AcceptView.as_view()),
    path("api/v1/me/organizations/<uuid:organization>", members.LeaveView.as_view()),
    path("api/v1/organizations/<uuid:organization_id>", organizations.OrganizationView.as_view()),
    path("api/v1/organizations/<uuid:organization_id>/", include(TENANT_ROUTES)),
    path("v1/organization/", include(ORGANIZATION_KEY_ROUTES)),
    path("v1/files", files.FilesView.as_view()),
    path("v1/files/<str:file_id>", files.FileView.as_view()),
    path("v1/files/<str:file_id>/content", files.FileContentView.as_view()),
    path("v1/batches", batches.BatchesView.as_view()),
    path("v1/batches/<str:batch_id>", batches.BatchView.as_view()),
    path("v1/batches/<str:batch_id>/cancel", batches.BatchCancelView.as_view()),
    path("api/v1/summaries", summaries.SummariesView.as_view()),
    path("api/v1/summaries/<str:summary_id>", summaries.SummaryView.as_view()),
    path("api/v1/summaries/<str:summary_id>/", include(SUMMARY_ROUTES)),
]
