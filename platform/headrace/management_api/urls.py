"""The routes of the management API, a list for each way of naming the organization.

Every route must be in tests/isolation/routes.py and in docs/openapi.yaml too: tests fail for one
that is not. Mounted by `headrace.urls`.
"""

from django.urls import URLPattern, include, path
from django.urls.resolvers import URLResolver

TENANT_ROUTES: list[URLPattern] = []
"""Under /api/v1/organizations/<uuid:organization_id>/, by session or admin key: TenantView."""

ORGANIZATION_KEY_ROUTES: list[URLPattern] = []
"""Under /v1/organization/, OpenAI's shapes, by admin key: OrganizationKeyView."""

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/organizations/<uuid:organization_id>/", include(TENANT_ROUTES)),
    path("v1/organization/", include(ORGANIZATION_KEY_ROUTES)),
]
