"""The API's description says what there is: no route of the code is missing, none is stale."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command

from headrace.gateway.transport.token_routes import ROUTES
from headrace.management_api.openapi import schema_text
from headrace.standalone.data_folder import REPOSITORY
from tests.headrace.door import Door
from tests.isolation.test_route_matrix import VIEWS, methods_of

COMMITTED = REPOSITORY / "docs" / "openapi.yaml"
CONVERTER = re.compile(r"<(?:\w+:)?(\w+)>")


@cache
def described() -> dict[str, Any]:
    """What is served."""
    schema: dict[str, Any] = yaml.load(schema_text(), Loader=yaml.CSafeLoader)
    return schema


def test_every_route_and_method_is_described() -> None:
    paths = described()["paths"]
    missing = [
        (route, method)
        for route in VIEWS
        for method in methods_of(route)
        if method.lower() not in paths.get("/" + CONVERTER.sub(r"{\1}", route), {})
    ]
    raw = [
        path for path, (method, _) in ROUTES.items() if method.lower() not in paths.get(path, {})
    ]

    assert missing == []
    assert raw == []


def test_nothing_is_described_that_is_not_there() -> None:
    routes = {"/" + CONVERTER.sub(r"{\1}", route) for route in VIEWS}

    assert set(described()["paths"]) <= routes | set(ROUTES) | {"/v1/models/{model}"}


def test_the_committed_description_is_the_codes(tmp_path: Path) -> None:
    fresh = tmp_path / "openapi.yaml"
    call_command("spectacular", file=str(fresh), fail_on_warn=True)

    assert COMMITTED.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), (
        "the API changed: run `manage.py spectacular --file docs/openapi.yaml`"
    )


def test_every_operation_says_what_it_answers_and_how_it_fails() -> None:
    schemas = described()["components"]["schemas"]
    operations = [
        (path, method, operation)
        for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    ]
    silent = [
        (path, method)
        for path, method, operation in operations
        if not any(
            "content" in answer or answer["description"] == "No response body"
            for status, answer in operation["responses"].items()
            if status.startswith("2")
        )
    ]

    assert silent == []
    assert len({operation["operationId"] for *_, operation in operations}) == len(operations)
    assert all("default" in operation["responses"] for *_, operation in operations)
    assert set(schemas["Error"]["properties"]["error"]["required"]) == {
        "message",
        "type",
        "param",
        "code",
    }


def test_no_schema_shows_a_secret_at_rest_or_money_as_a_float() -> None:
    text = schema_text().decode()

    assert "secret_hash" not in text
    assert not re.search(r"_pico:\n\s+type: (number|integer)", text)


@pytest.mark.usefixtures("django_database")
def test_the_description_is_served_with_its_reader_and_no_script_from_elsewhere() -> None:
    page = Door().get("/api/docs")
    sources = re.findall(r'(?:src|href)="([^"]+)"', page.text)

    assert Door().get("/api/schema").content == schema_text()
    assert page.status_code == 200
    assert "script-src" not in page.headers["content-security-policy"]
    assert len(sources) == 3
    assert all(source.startswith("/static/") for source in sources)
    assert {Door().get(source).status_code for source in sources} == {200}
