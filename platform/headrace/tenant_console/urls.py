"""The pages of the tenant console, under `/console/`.

A page of an organization is under its slug. Each must be in tests/isolation too. Mounted by
`headrace.urls`.
"""

from django.urls import URLPattern, include, path
from django.urls.resolvers import URLResolver

from headrace.console_kit.branding import accent
from headrace.tenant_console.home import HomePage
from headrace.tenant_console.overview import OverviewPage

app_name = "console"
ORGANIZATION_PAGES: list[URLPattern] = [
    path("", OverviewPage.as_view(), name="overview"),
]
"""Under /console/<slug:slug>/: PageView."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("", HomePage.as_view(), name="home"),
    path("accent.css", accent, name="accent"),
    path("<slug:slug>/", include(ORGANIZATION_PAGES)),
]
