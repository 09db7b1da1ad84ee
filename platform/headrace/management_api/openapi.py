"""The API's description: what drf-spectacular reads off the views, and the token routes beside it.

`manage.py spectacular` writes docs/openapi.yaml, which a test compares with the code; the same text
is served at /api/schema and shown at /api/docs, without a script from elsewhere.
"""

import re
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiYamlRenderer

from headrace.management_api.paging import LIMIT_DEFAULT, LIMIT_MAX, ORDERS
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


class KeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # no types
    """An API key: a project's on routes that infer, an organization's on those that administer."""

    target_class = "headrace.management_api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """As `Authorization: Bearer`."""
        return {"type": "http", "scheme": "bearer"}


class SessionScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # no types
    """A person's session."""

    target_class = "headrace.management_api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """The cookie has another name over plain HTTP on loopback."""
        return {"type": "apiKey", "in": "cookie", "name": "__Host-headrace"}


_VERBS = {
    "GET": "get",
    "POST": "create",
    "PUT": "replace",
    "PATCH": "update",
    "DELETE": "delete",
}
_VERBS_OF_ONE = {"GET": "read", "POST": "modify"}
_PARAMETER = re.compile(r"/\{\w+\}")
_TENANT_PREFIX = "/api/v1/organizations/{organization_id}/"
_PAGE_PARAMETERS = [
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The id behind which the page starts.",
        "schema": {"type": "string"},
    },
    {
        "name": "order",
        "in": "query",
        "schema": {"type": "string", "enum": list(ORDERS), "default": ORDERS[0]},
    },
]


class HouseSchema(AutoSchema):
    """What the generator is told of every view of ours."""

    def get_operation_id(self) -> str:
        """The path's words and a verb: `webhooks_create`, and `webhooks_read` for one of them."""
        path = self.path.removeprefix(_TENANT_PREFIX)
        words = _PARAMETER.sub("", f"/{path}").replace("/api/v1", "").replace("/v1", "")
        verbs = _VERBS | (_VERBS_OF_ONE if path.endswith("}") else {})
        return f"{words.strip('/').replace('/', '_')}_{verbs[self.method]}"

    def get_tags(self) -> list[str]:
        """The first word of the path."""
        return [self.get_operation_id().split("_")[0]]

    def get_description(self) -> str:  # type: ignore[override]  # the library's own narrowing
        """The handler's docstring, and what a caller needs."""
        told = super().get_description() or ""
        needed = getattr(self.view, "permissions", {}).get(self.method)
        if needed:
            told += f"\n\nNeeds the permission `{needed}`."
        if self.method in getattr(self.view, "sensitive", ()):
            told += " A session must have signed in within five minutes."
        return told


def complete(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Adds the token routes and the error every operation may answer: a post-processing hook."""
    result["paths"] = dict(sorted({**result["paths"], **PATHS}.items()))
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted({**components.get("schemas", {}), **COMPONENTS}.items()))
    components["responses"] = {"Error": _ERROR}
    for operations in result["paths"].values():
        for operation in operations.values():
            operation["responses"].setdefault("default", {"$ref": "#/components/responses/Error"})
            if _answers_a_page(operation, components["schemas"]):
                known = {parameter["name"] for parameter in operation.get("parameters", [])}
                operation.setdefault("parameters", []).extend(
                    one for one in _PAGE_PARAMETERS if one["name"] not in known
                )
    return result


def _answers_a_page(operation: dict[str, Any], schemas: dict[str, Any]) -> bool:
    content = operation["responses"].get("200", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    return "last_id" in schemas.get(reference.split("/")[-1], {}).get("properties", {})


@cache
def schema_text() -> bytes:
    """The whole description as YAML; it takes a second to make, and never changes in a process."""
    generator: Any = SchemaGenerator  # the library has no types
    renderer: Any = OpenApiYamlRenderer
    schema = generator().get_schema(request=None, public=True)
    text: bytes = renderer().render(schema, renderer_context={})
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
