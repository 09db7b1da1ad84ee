"""The API's description: what drf-spectacular reads off the views, and the token routes beside it.

`manage.py spectacular` writes docs/openapi.yaml, which a test compares with the code; the same text
is served at /api/schema and shown at /api/docs, without a script from elsewhere.
"""

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiYamlRenderer

from headrace.management_api.token_paths import COMPONENTS, PATHS

DOCS_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; object-src 'none';"
    " base-uri 'none'; frame-ancestors 'none'"
)
"""Swagger UI writes style attributes; its scripts are files."""

_ERROR = {
    "description": "What is wrong, in one shape for all routes.",
    "headers": {
        "x-request-id": {"schema": {"type": "string"}},
        "x-should-retry": {"schema": {"type": "string", "enum": ["true", "false"]}},
    },
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}


class KeyScheme(OpenApiAuthenticationExtension):
    """An API key: a project's on routes that infer, an organization's on those that administer."""

    target_class = "headrace.management_api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """As `Authorization: Bearer`."""
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):
    """A person's session."""

    target_class = "headrace.management_api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The cookie has another name over plain HTTP on loopback."""
        return {"type": "apiKey", "in": "cookie", "name": "__Host-headrace"}


def complete(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Adds the token routes and the error every operation may answer: a post-processing hook."""
    result["paths"] = dict(sorted({**result["paths"], **PATHS}.items()))
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted({**components.get("schemas", {}), **COMPONENTS}.items()))
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"].setdefault("default", _ERROR)
    return result


@cache
def schema_text() -> bytes:
    """The whole description as YAML; it takes a second to make, and never changes in a process."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    text: bytes = OpenApiYamlRenderer().render(schema, renderer_context={})
    return text


@require_safe
def schema(request: HttpRequest) -> HttpResponse:
    """`GET /api/schema`."""
    return HttpResponse(schema_text(), content_type="application/yaml")


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    """`GET /api/docs`: the description for readers."""
    page = render(request, "headrace/api_docs.html")
    page["Content-Security-Policy"] = DOCS_POLICY
    return page
