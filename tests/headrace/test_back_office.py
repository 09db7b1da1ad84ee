"""The operator's back office, as its own process serves it: who gets in, what is shown, no writes.

The process is started as `make up` starts it, on the databases of this run; the list of tables is
read off its index.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import httpx
import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connections
from django.db.models import BinaryField, Model
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils.timezone import now

from headrace.back_office.tables import BoundedPaginator
from headrace.operator_console.models import ReportRow
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import House, admin_url, set_up_environment
from headrace.standalone.running_house import RunningHouse
from tenants.contracts import Role
from tenants.facade import organization_slugs
from tests.console.operators import new_staff
from tests.console.test_hostile_names import RAW, ill_named
from tests.headrace.door import Door, member_of
from tests.headrace.signing_in import (
    PASSWORD,
    add_authenticator,
    new_address,
    sign_in,
    sign_up,
)
from tests.house import CLIENT_TIMEOUT_S, OPEN_CLIENTS
from tests.isolation.test_operator_matrix import order
from tests.isolation.test_row_level_security import lived_in

pytestmark = pytest.mark.long

TABLE = re.compile(r'<a href="/(tenants|billing|batch_jobs|operator_console)/(\w+)/"')
ROW = re.compile(r'<a href="(/\w+/\w+/[^/"]+/change/)')
FIELD = re.compile(r'class="form-row field-(\w+)"')
SECRET = re.compile(r"secret|hash|token|password|sealed|signature|prompt|answer|body|content")
NO_SECRETS = {
    "hash_scheme": "an algorithm's name",
    "token_class": "what a price is of",
    "token_expires_at": "a time",
    "second_factor_required": "a setting",
    "prompts_kept_days": "a setting",
    "body": "an operator's order",
    "answer": "what came of it",
    "content": "a worker's report about the house",
}
COUNT = re.compile(r"tokens(_|$)")


class BackOffice:
    """The running process."""

    def __init__(self, url: str, folder: DataFolder) -> None:
        self.url = url
        self.log = folder.logs / "back_office.log"

    def visitor(self, door: Door | None = None) -> httpx.Client:
        """Somebody's browser, with their session and a CSRF token; it follows nothing."""
        client = httpx.Client(base_url=self.url, timeout=CLIENT_TIMEOUT_S, trust_env=False)
        client.cookies.set("csrftoken", "c" * 32)
        client.headers["x-csrftoken"] = "c" * 32
        if door is not None:
            client.cookies.set(settings.SESSION_COOKIE_NAME, door.session_key)
        OPEN_CLIENTS.append(client)
        return client

    def operator(self) -> httpx.Client:
        """Somebody of the staff, with a second factor."""
        return self.visitor(Door().sign_in(new_staff()))


@pytest.fixture(scope="module")
def back_office(
    running_servers: EmbeddedServers, django_database: DataFolder
) -> Iterator[BackOffice]:
    lived_in("looked-at")
    order()
    ReportRow.objects.using("housekeeper").create(name="test", made_at=now(), content={})
    port = {"HEADRACE_ADMIN_PORT": str(free_port()), "HEADRACE_TRUSTED_PROXIES": "127.0.0.1"}
    folder, addresses = django_database, running_servers.addresses()
    house = House(folder, addresses, folder.models, free_port(), port)
    running = RunningHouse(house, running_servers)
    running.start("back_office")
    try:
        yield BackOffice(admin_url(house), folder)
    finally:
        running.stop_processes()


def tables(operator: httpx.Client) -> Mapping[str, type[Model]]:
    """Of the index: the address of each list, and its model here."""
    found = dict.fromkeys(TABLE.findall(operator.get("/").raise_for_status().text))
    assert found
    return {f"/{app}/{name}/": apps.get_model(app, name) for app, name in found}


def test_an_operator_sees_every_table_and_no_secret(back_office: BackOffice) -> None:
    operator = back_office.operator()
    empty, shown_secrets = set(), set()
    for address, model in tables(operator).items():
        listed = operator.get(address)
        assert listed.status_code == 200, (address, listed.text)
        assert listed.headers["cache-control"].count("no-store") == 1
        assert "frame-ancestors 'none'" in listed.headers["content-security-policy"]
        row = ROW.search(listed.text)
        if row is None:
            empty.add(address)
            continue
        opened = operator.get(row[1])
        assert opened.status_code == 200, back_office.log.read_text()[-2000:]
        shown = set(FIELD.findall(opened.text))
        assert shown
        assert not re.search(r'<(input|select|textarea)[^>]* name="(?!csrf)', opened.text), row[1]
        shown_secrets |= {
            f"{address}{name}"
            for name in shown
            if (SECRET.search(name) and not COUNT.search(name) and name not in NO_SECRETS)
            or isinstance(model._meta.get_field(name), BinaryField)
        }
    assert not shown_secrets
    assert not empty, "these pages were not seen with a row in them"


def test_no_secret_value_is_on_any_page(back_office: BackOffice) -> None:
    operator = back_office.operator()
    hidden = {
        "tenants_user": ("password",),
        "tenants_api_key": ("secret_hash",),
        "tenants_invitation": ("token_hash",),
        "tenants_webhook_endpoint": ("secret_sealed",),
        "tenants_exchange": ("prompt_sealed", "answer_sealed"),
        "billing_stripe_checkout": ("url",),
        "bulk_item": ("answer",),
    }
    by_table = {model._meta.db_table: (where, model) for where, model in tables(operator).items()}
    for table, columns in hidden.items():
        address, model = by_table[table]
        for row in model._default_manager.using("housekeeper").order_by("-pk")[:3]:
            page = operator.get(f"{address}{row.pk}/change/")
            assert page.status_code == 200
            for column in columns:
                value = getattr(row, column)
                told = value.hex() if isinstance(value, bytes | memoryview) else value
                assert not told or str(told) not in page.text
                assert f"field-{column}" not in page.text


def test_what_is_hidden_is_nothing_to_filter_or_sort_by(back_office: BackOffice) -> None:
    operator = back_office.operator()

    assert operator.get("/tenants/user/?is_staff__exact=1").status_code == 200
    for query in ("password__startswith=s", "memberships__user__password__startswith=s"):
        assert operator.get(f"/tenants/user/?{query}").status_code == 400
    assert operator.get("/tenants/apikey/?secret_hash__isnull=False").status_code == 400
    assert "column-password" not in operator.get("/tenants/user/?o=1").text


@pytest.mark.parametrize("path", ["/", "/tenants/user/", "/billing/"])
def test_it_is_there_for_staff_with_a_second_factor_only(
    back_office: BackOffice, path: str
) -> None:
    side, _ = ill_named()
    nobody = back_office.visitor().get(path)
    owner = back_office.visitor(member_of(side.organization_id, Role.OWNER)).get(path)
    unproved = back_office.visitor(Door().sign_in(new_staff(has_factor=False))).get(path)

    assert (nobody.status_code, owner.status_code, unproved.status_code) == (302, 404, 302)
    assert nobody.headers["location"] == f"/accounts/login/?next={path}"
    assert unproved.headers["location"] == "/accounts/2fa/"
    assert back_office.operator().get(path).status_code == 200
    assert back_office.visitor().get("/accounts/login/").status_code == 200


def test_a_person_signs_in_by_password_and_second_factor(back_office: BackOffice) -> None:
    address = new_address()
    door = sign_up(address)
    sign_in(door, address)
    _, codes = add_authenticator(door)
    get_user_model()._default_manager.using("housekeeper").filter(email=address).update(
        is_staff=True
    )
    visitor = httpx.Client(base_url=back_office.url, timeout=CLIENT_TIMEOUT_S, trust_env=False)
    OPEN_CLIENTS.append(visitor)

    def send(path: str, **fields: str) -> str:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', visitor.get(path).text)
        assert token is not None
        origin = {"origin": back_office.url.rstrip("/")}
        fields["csrfmiddlewaretoken"] = token[1]
        answer = visitor.post(path, data=fields, headers=origin)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    asked = send("/accounts/login/", login=address, password=PASSWORD)
    assert asked == "/accounts/2fa/authenticate/"
    assert visitor.get("/").status_code == 302
    assert send(asked, code=codes[0]) == "/"
    assert visitor.get("/").status_code == 200


def test_nothing_is_added_changed_or_deleted(back_office: BackOffice) -> None:
    side, _ = ill_named()
    organization_id = side.organization_id
    people = get_user_model()._default_manager.using("housekeeper")
    operator = back_office.operator()
    before = people.count()
    row = f"/tenants/organizationrow/{organization_id}"
    fields = {"slug": "taken-over", "display_name": "taken over", "_save": "Save"}
    for path in ("/tenants/user/", f"{row}/change/", "/tenants/organizationrow/"):
        for method in ("POST", "PUT", "DELETE"):
            answer = operator.request(method, path, data=fields)
            assert answer.status_code == 405, (method, path, answer.text)
    selected = {"action": "delete_selected", "_selected_action": str(organization_id)}
    assert operator.post("/tenants/organizationrow/", data=selected).status_code == 405
    for path in (
        "/tenants/user/add/",
        f"{row}/delete/",
        f"{row}/history/",
        "/password_change/",
        "/login/",
    ):
        for method in ("GET", "POST"):
            assert operator.request(method, path, data=fields).status_code == 404

    assert people.count() == before
    assert "taken" not in operator.get(f"{row}/change/").text


def test_its_connection_to_all_tenants_writes_nothing(
    back_office: BackOffice, running_servers: EmbeddedServers, django_database: DataFolder
) -> None:
    script = (
        "import django; django.setup()\n"
        "from django.db import connections, InternalError\n"
        "assert 'owner' not in connections\n"
        "try:\n"
        "    connections['housekeeper'].cursor().execute('DELETE FROM tenants_user')\n"
        "except InternalError as error:\n"
        "    print(error)\n"
    )
    house = House(django_database, running_servers.addresses(), django_database.models, 1, {})
    environment = set_up_environment(house) | {
        "DJANGO_SETTINGS_MODULE": "headrace.back_office.settings"
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert "read-only transaction" in done.stdout, done.stderr


def test_a_name_that_is_markup_is_text(back_office: BackOffice) -> None:
    side, named = ill_named()
    operator = back_office.operator()
    pages = [
        f"/tenants/organizationrow/?q={side.organization_id}",
        f"/tenants/organizationrow/{side.organization_id}/change/",
        f"/tenants/apikey/{named['key_id']}/change/",
        f"/tenants/project/?q={side.organization_id}",
        f"/tenants/webhookendpoint/{named['webhook_id']}/change/",
        f"/tenants/user/{named['user_id']}/change/",
    ]
    for path in pages:
        page = operator.get(path)
        assert page.status_code == 200
        assert RAW not in page.text, path
        assert "onerror" in page.text or "webhook" in path, path


def test_rows_are_found_by_their_key_and_by_their_organization(back_office: BackOffice) -> None:
    side, named = ill_named()
    operator = back_office.operator()
    key_id, organization_id = named["key_id"], side.organization_id
    slug = organization_slugs()[organization_id]

    def found(table: str, term: object) -> list[str]:
        page = operator.get(f"/{table}/", params={"q": str(term)})
        assert page.status_code == 200
        return ROW.findall(page.text)

    assert found("tenants/apikey", key_id) == [f"/tenants/apikey/{key_id}/change/"]
    assert f"/tenants/apikey/{key_id}/change/" in found("tenants/apikey", organization_id)
    assert f"/tenants/apikey/{key_id}/change/" in found("tenants/apikey", slug)
    assert not found("tenants/apikey", "nobody's")
    assert found("billing/stripeevent", "evt_of_nobody") == []
    for digits in (19, 20, 5000):
        assert found("batch_jobs/bulkitem", digits * "9") == []


def test_times_are_told_to_the_second(back_office: BackOffice) -> None:
    side, _ = ill_named()

    page = back_office.operator().get(f"/tenants/organizationrow/?q={side.organization_id}")

    assert re.search(r"field-created_at[^>]*>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d<", page.text)


def test_each_look_is_logged_without_its_query(back_office: BackOffice) -> None:
    user_id = new_staff()
    visitor = back_office.visitor(Door().sign_in(user_id))
    elsewhere = {"x-forwarded-for": "203.0.113.7"}
    visitor.get("/tenants/user/?q=whom-i-look-for", headers=elsewhere).raise_for_status()

    [line] = [one for one in back_office.log.read_text().splitlines() if str(user_id) in one]
    assert "path='/tenants/user/'" in line
    assert "address='127.0.0.1'" in line
    assert "whom-i-look-for" not in back_office.log.read_text()


def test_a_host_that_is_not_this_machine_is_refused(back_office: BackOffice) -> None:
    answer = back_office.operator().get("/", headers={"host": "llm.example.com"})

    assert answer.status_code == 400


@pytest.mark.usefixtures("django_database")
def test_a_large_table_is_not_counted_to_its_end() -> None:
    for _ in range(3):
        new_staff(has_factor=False)
    people = get_user_model()._default_manager.using("housekeeper").order_by("pk")
    with (
        override_settings(BACK_OFFICE_ROWS_MAX=2),
        CaptureQueriesContext(connections["housekeeper"]) as asked,
    ):
        assert BoundedPaginator(people, 100).count == 2
    assert "LIMIT 2" in asked.captured_queries[0]["sql"]


def test_the_web_has_no_admin() -> None:
    assert not apps.is_installed("django.contrib.admin")
