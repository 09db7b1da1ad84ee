"""The pages of the tenant console, under `/console/`.

A page of an organization is under its slug. Each must be in tests/isolation too. Mounted by
`headrace.urls`.
"""

from django.urls import URLPattern, include, path
from django.urls.resolvers import URLResolver

from headrace.console_kit.branding import accent
from headrace.tenant_console.audit.download import AuditCsv
from headrace.tenant_console.audit.log import AuditPage
from headrace.tenant_console.billing.balance import BalancePage
from headrace.tenant_console.billing.credits import CreditsPage
from headrace.tenant_console.billing.papers import InvoicePage, InvoicePdfPage, InvoicesPage
from headrace.tenant_console.billing.paying import TopUpPage
from headrace.tenant_console.billing.prices import PricesPage
from headrace.tenant_console.billing.settings import SettingsPage
from headrace.tenant_console.home import HomePage
from headrace.tenant_console.jobs.downloads import (
    BatchFileDownload,
    FailuresDownload,
    ResultsDownload,
)
from headrace.tenant_console.jobs.listing import JobsPage
from headrace.tenant_console.jobs.making import NewBatchPage, NewSummaryPage
from headrace.tenant_console.jobs.single import JobPage
from headrace.tenant_console.jobs.uploading import UploadView
from headrace.tenant_console.keys.accounts import AccountsPage
from headrace.tenant_console.keys.listing import KeysPage
from headrace.tenant_console.keys.making import KeyNewPage
from headrace.tenant_console.keys.single import KeyEditPage, KeyPage, KeyRotatePage
from headrace.tenant_console.limits.listing import LimitsPage
from headrace.tenant_console.limits.setting import LimitNewPage, LimitPage
from headrace.tenant_console.overview.page import OverviewPage
from headrace.tenant_console.playground import PlaygroundPage
from headrace.tenant_console.projects.pages import ProjectEditPage, ProjectPage, ProjectsPage
from headrace.tenant_console.search import SearchPage
from headrace.tenant_console.settings.deleting import DeletePage
from headrace.tenant_console.settings.exports import ExportDownload, ExportsPage
from headrace.tenant_console.settings.general import OrganizationPage
from headrace.tenant_console.team.inviting import InvitePage
from headrace.tenant_console.team.joining import InvitationPage
from headrace.tenant_console.team.member import LeavePage, MemberPage
from headrace.tenant_console.team.members import TeamPage
from headrace.tenant_console.usage.page import UsagePage
from headrace.tenant_console.usage.receipt import ReceiptPage
from headrace.tenant_console.usage.requests import RequestsPage
from headrace.tenant_console.webhooks.listing import WebhooksPage
from headrace.tenant_console.webhooks.setting import (
    WebhookEditPage,
    WebhookNewPage,
    WebhookRotatePage,
)
from headrace.tenant_console.webhooks.single import DeliveryPage, WebhookPage

app_name = "console"
ORGANIZATION_PAGES: list[URLPattern] = [
    path("", OverviewPage.as_view(), name="overview"),
    path("search", SearchPage.as_view(), name="search"),
    path("usage", UsagePage.as_view(), name="usage"),
    path("requests", RequestsPage.as_view(), name="requests"),
    path("requests/<str:request_id>", ReceiptPage.as_view(), name="receipt"),
    path("jobs", JobsPage.as_view(), name="jobs"),
    path("jobs/new-summary", NewSummaryPage.as_view(), name="new-summary"),
    path("jobs/new-batch", NewBatchPage.as_view(), name="new-batch"),
    path("jobs/files", UploadView.as_view(), name="job-upload"),
    path("jobs/<uuid:job_id>", JobPage.as_view(), name="job"),
    path("jobs/<uuid:job_id>/results", ResultsDownload.as_view(), name="job-results"),
    path("jobs/<uuid:job_id>/failures", FailuresDownload.as_view(), name="job-failures"),
    path("jobs/<uuid:job_id>/files/<str:which>", BatchFileDownload.as_view(), name="job-file"),
    path("playground", PlaygroundPage.as_view(), name="playground"),
    path("team", TeamPage.as_view(), name="team"),
    path("team/invite", InvitePage.as_view(), name="team-invite"),
    path("team/<uuid:user_id>", MemberPage.as_view(), name="team-member"),
    path("audit", AuditPage.as_view(), name="audit"),
    path("audit.csv", AuditCsv.as_view(), name="audit-csv"),
    path("settings", OrganizationPage.as_view(), name="settings"),
    path("settings/data", ExportsPage.as_view(), name="settings-data"),
    path("settings/data/<uuid:export_id>", ExportDownload.as_view(), name="settings-export"),
    path("settings/delete", DeletePage.as_view(), name="settings-delete"),
    path("projects", ProjectsPage.as_view(), name="projects"),
    path("projects/<uuid:project_id>", ProjectPage.as_view(), name="project"),
    path("projects/<uuid:project_id>/edit", ProjectEditPage.as_view(), name="project-edit"),
    path("leave", LeavePage.as_view(), name="leave"),
    path("keys", KeysPage.as_view(), name="keys"),
    path("keys/new", KeyNewPage.as_view(), name="keys-new"),
    path("keys/accounts", AccountsPage.as_view(), name="keys-accounts"),
    path("keys/<uuid:key_id>", KeyPage.as_view(), name="key"),
    path("keys/<uuid:key_id>/edit", KeyEditPage.as_view(), name="key-edit"),
    path("keys/<uuid:key_id>/rotate", KeyRotatePage.as_view(), name="key-rotate"),
    path("limits", LimitsPage.as_view(), name="limits"),
    path("limits/new", LimitNewPage.as_view(), name="limit-new"),
    path("limits/<uuid:quota_id>", LimitPage.as_view(), name="limit"),
    path("billing", BalancePage.as_view(), name="billing"),
    path("billing/top-up", TopUpPage.as_view(), name="billing-top-up"),
    path("billing/invoices", InvoicesPage.as_view(), name="billing-invoices"),
    path("billing/invoices/<uuid:invoice_id>", InvoicePage.as_view(), name="billing-invoice"),
    path(
        "billing/invoices/<uuid:invoice_id>.pdf",
        InvoicePdfPage.as_view(),
        name="billing-invoice-pdf",
    ),
    path("billing/credits", CreditsPage.as_view(), name="billing-credits"),
    path("billing/prices", PricesPage.as_view(), name="billing-prices"),
    path("billing/settings", SettingsPage.as_view(), name="billing-settings"),
    path("webhooks", WebhooksPage.as_view(), name="webhooks"),
    path("webhooks/new", WebhookNewPage.as_view(), name="webhook-new"),
    path("webhooks/<uuid:webhook_id>", WebhookPage.as_view(), name="webhook"),
    path("webhooks/<uuid:webhook_id>/edit", WebhookEditPage.as_view(), name="webhook-edit"),
    path("webhooks/<uuid:webhook_id>/rotate", WebhookRotatePage.as_view(), name="webhook-rotate"),
    path(
        "webhooks/deliveries/<uuid:delivery_id>",
        DeliveryPage.as_view(),
        name="webhook-delivery",
    ),
]
"""Under /console/<slug:slug>/: PageView."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("", HomePage.as_view(), name="home"),
    path("invitation", InvitationPage.as_view(), name="invitation"),
    path("accent.css", accent, name="accent"),
    path("<slug:slug>/", include(ORGANIZATION_PAGES)),
]
