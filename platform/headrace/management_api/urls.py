"""The routes of the management API, a list for each way of naming the organization.

Every route must be in tests/isolation/routes.py and in docs/openapi.yaml too: tests fail for one
that is not. Mounted by `headrace.urls`.
"""

from django.urls import URLPattern, include, path
from django.urls.resolvers import URLResolver

from headrace.management_api import (
    aliases,
    costs,
    exports,
    models,
    openapi,
    prices,
    requests,
    usage,
    webhooks,
)
from headrace.management_api.me import MeView, OrganizationsView

TENANT_ROUTES: list[URLPattern] = [
    path("models", models.ModelsView.as_view()),
    path("aliases", aliases.AliasesView.as_view()),
    path("aliases/<uuid:alias_id>", aliases.AliasView.as_view()),
    path("prices", prices.PricesView.as_view()),
    path("usage", usage.UsageView.as_view()),
    path("usage.csv", usage.UsageCsvView.as_view()),
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
    path("usage/completions", usage.CompletionsUsageView.as_view()),
    path("usage/embeddings", usage.EmbeddingsUsageView.as_view()),
    path("costs", costs.CostsView.as_view()),
]
"""Under /v1/organization/, OpenAI's shapes, by admin key: OrganizationKeyView."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/schema", openapi.schema, name="schema"),
    path("api/docs", openapi.docs, name="api_docs"),
    path("api/v1/me", MeView.as_view(), name="me"),
    path("api/v1/organizations", OrganizationsView.as_view(), name="organizations"),
    path("api/v1/organizations/<uuid:organization_id>/", include(TENANT_ROUTES)),
    path("v1/organization/", include(ORGANIZATION_KEY_ROUTES)),
]
