"""Taking data out, deleting an organization and reading kept prompts, at the REST door."""

import io
import json
import zipfile
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.db import connections

from billing.contracts import PICO
from billing.facade import open_account, save_recharge
from headrace.gateway.request_ids import public_request_id
from tenants import facade
from tenants.contracts import OrganizationStatus, Role
from tenants.retention.erasure import erase_due
from tenants.retention.exports import write_due_export
from tests.batch_jobs.cast import Tenant, make_tenant
from tests.headrace.door import Door, admin_key, member_of
from tests.isolation.bulk_traces import leave_bulk_work

LONG_AGO_S = 24 * 3600


@pytest.fixture
def acme(django_database: object) -> Tenant:
    """An organization with a project."""
    return make_tenant("acme")


def path(tenant: Tenant, rest: str) -> str:
    """Under the organization."""
    return f"/api/v1/organizations/{tenant.organization_id}/{rest}"


def test_an_export_is_asked_for_written_and_downloaded(acme: Tenant) -> None:
    owner = member_of(acme.organization_id, Role.OWNER)
    asked = owner.post(path(acme, "exports"))
    early = owner.get(path(acme, f"exports/{asked.json()['id']}/content"))
    twice = owner.post(path(acme, "exports"))
    while write_due_export(datetime.now(UTC)):
        pass
    shown = owner.get(path(acme, f"exports/{asked.json()['id']}"))
    content = owner.get(path(acme, f"exports/{asked.json()['id']}/content"))

    assert (asked.status_code, asked.json()["state"]) == (202, "pending")
    assert early.status_code == 404
    assert twice.status_code == 409
    assert shown.json()["state"] == "ready"
    assert content.headers["content-type"] == "application/zip"
    assert content.headers["content-disposition"].startswith("attachment")
    assert int(content.headers["content-length"]) == len(content.content)
    with zipfile.ZipFile(io.BytesIO(content.content)) as archive:
        [key] = archive.read("tenants_api_key.jsonl").splitlines()
    assert json.loads(key)["id"] == str(acme.key_id)
    listed = owner.get(path(acme, "exports")).json()
    assert [one["id"] for one in listed["data"]] == [asked.json()["id"]]


def test_taking_data_out_and_deleting_need_a_fresh_sign_in(acme: Tenant) -> None:
    stale = member_of(acme.organization_id, Role.OWNER, LONG_AGO_S)

    assert stale.post(path(acme, "exports")).status_code == 403
    assert stale.post(path(acme, "deletion")).status_code == 403


def test_an_organization_is_deleted_in_two_steps(acme: Tenant) -> None:
    leave_bulk_work(acme.organization_id, acme.project_id)
    owner = member_of(acme.organization_id, Role.OWNER)
    slug = owner.get("/api/v1/me").json()["organizations"][0]["slug"]
    admin = Door(admin_key(acme.organization_id))
    asked = owner.post(path(acme, "deletion")).json()
    wrong = owner.post(
        path(acme, "deletion/confirmation"), json={"token": asked["token"], "slug": "another"}
    )
    still = admin.get(path(acme, "webhooks"))
    done = owner.post(
        path(acme, "deletion/confirmation"), json={"token": asked["token"], "slug": slug}
    )
    dead = admin.get(path(acme, "webhooks"))
    while erase_due():
        pass
    gone = owner.get(path(acme, "exports"))

    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "slug")
    assert still.status_code == 200
    assert done.status_code == 202
    assert dead.status_code == 401
    assert gone.status_code in (401, 403, 404)
    with connections["housekeeper"].cursor() as cursor:
        for table in ("bulk_job", "bulk_item", "tenants_membership"):
            cursor.execute(
                f"SELECT count(*) FROM {table} WHERE organization_id = %s", [acme.organization_id]
            )
            assert cursor.fetchone() == (0,), table


def test_a_closed_organization_is_not_recharged(acme: Tenant) -> None:
    def is_due() -> bool:
        with connections["housekeeper"].cursor() as cursor:
            cursor.execute("SELECT * FROM billing_recharges_due(1000)")
            return acme.organization_id in {one for (one,) in cursor.fetchall()}

    open_account(acme.organization_id)
    save_recharge(
        facade.operator_of(acme.organization_id),
        is_enabled=True,
        threshold_pico=PICO,
        amount_pico=10 * PICO,
        month_max_pico=100 * PICO,
    )
    before = is_due()
    facade.set_organization_status(acme.organization_id, OrganizationStatus.CLOSED)

    assert before
    assert not is_due()


def test_a_kept_prompt_is_shown_to_who_may_read_requests(acme: Tenant) -> None:
    request_id = uuid4()
    facade.keep_exchange(
        acme.organization_id, acme.project_id, request_id, b'{"a": 1}', b'{"b": 2}', 1
    )
    route = path(acme, f"requests/{public_request_id(request_id)}/exchange")
    shown = member_of(acme.organization_id, Role.DEVELOPER).get(route)
    other = path(acme, f"requests/{public_request_id(uuid4())}/exchange")

    assert (shown.json()["prompt"], shown.json()["answer"]) == ('{"a": 1}', '{"b": 2}')
    assert shown.headers["cache-control"] == "no-store"
    assert member_of(acme.organization_id, Role.VIEWER).get(route).status_code == 403
    assert member_of(acme.organization_id, Role.OWNER).get(other).status_code == 404


def test_a_webhooks_secret_is_shown_once_and_its_url_is_checked(acme: Tenant) -> None:
    owner = member_of(acme.organization_id, Role.OWNER)
    made = owner.post(path(acme, "webhooks"), json={"url": "https://example.com/x"})
    inside = owner.post(path(acme, "webhooks"), json={"url": "https://169.254.169.254/"})
    unknown = owner.post(
        path(acme, "webhooks"), json={"url": "https://example.com/", "kinds": ["made.up"]}
    )
    route = path(acme, f"webhooks/{made.json()['id']}")
    rotated = owner.post(f"{route}/secret")

    secret = made.json()["secret"]
    assert secret.startswith("whsec_")
    assert secret not in owner.get(route).text + owner.get(path(acme, "webhooks")).text
    assert rotated.json()["secret"] != secret
    assert (inside.status_code, inside.json()["error"]["param"]) == (400, "url")
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "kinds")
