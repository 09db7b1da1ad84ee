"""How often one caller and one address may ask: the management API and the forms of sign-in."""

from collections.abc import Iterator
from ipaddress import ip_network
from uuid import uuid4

import httpx
import pytest
import redis
from django.conf import settings
from django.test import override_settings

from headrace import errors
from headrace.client_address import subscriber_of
from headrace.request_rates import SUBJECTS_MAX, RequestRates
from headrace.telemetry import metrics
from tenants.contracts import Role
from tests.headrace.door import Door, admin_key, member_of
from tests.house import free_port, new_tenant

pytestmark = pytest.mark.usefixtures("django_database")


@pytest.fixture
def address() -> Iterator[dict[str, str]]:
    """Headers of an address that nobody else uses, by way of a proxy that is believed."""
    with override_settings(TRUSTED_PROXIES=(ip_network("127.0.0.0/8"),)):
        yield {"x-forwarded-for": f"2001:db8:{uuid4().hex[:4]}:{uuid4().hex[:4]}::1"}


def check_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(answer.headers["retry-after"]) <= 60


def hits(limit: str) -> float:
    return metrics.REGISTRY.get_sample_value("headrace_limit_hits_total", {"limit": limit}) or 0.0


def test_a_callers_reads_and_writes_are_counted_apart() -> None:
    acme = new_tenant().organization_id
    path = f"/api/v1/organizations/{acme}"
    before = hits("actor_reads")
    with override_settings(ACTOR_READS_PER_MINUTE_MAX=2, ACTOR_WRITES_PER_MINUTE_MAX=1):
        for door in (Door(admin_key(acme)), member_of(acme, Role.OWNER)):
            reads = [door.get(path) for _ in range(3)]
            writes = [door.patch(path, json={"display_name": "x"}) for _ in range(2)]

            assert [one.status_code for one in (*reads, *writes)] == [200, 200, 429, 200, 429]
            check_refused(reads[2])
            check_refused(writes[1])
            assert "x-request-id" in reads[2].headers
    assert hits("actor_reads") - before == 2


def test_a_refused_write_changes_nothing() -> None:
    acme = new_tenant().organization_id
    door = Door(admin_key(acme))
    path = f"/api/v1/organizations/{acme}"
    with override_settings(ACTOR_WRITES_PER_MINUTE_MAX=1):
        door.patch(path, json={"display_name": "first"})
        door.patch(path, json={"display_name": "second"})

    assert door.get(path).json()["display_name"] == "first"


def test_an_address_is_counted_before_anybody_is_looked_up(address: dict[str, str]) -> None:
    acme = new_tenant().organization_id
    with override_settings(ADDRESS_READS_PER_MINUTE_MAX=2, ADDRESS_WRITES_PER_MINUTE_MAX=1):
        reads = [Door().get("/api/v1/me", headers=address) for _ in range(3)]
        writes = [Door().post("/api/v1/organizations", headers=address) for _ in range(2)]
        elsewhere = Door(admin_key(acme)).get(
            f"/api/v1/organizations/{acme}", headers={"x-forwarded-for": "192.0.2.7"}
        )

    assert [one.status_code for one in reads] == [401, 401, 429]
    assert [one.status_code for one in writes] == [401, 429]
    check_refused(reads[2])
    assert elsewhere.status_code == 200


def test_forms_of_sign_in_are_counted_by_address_whoever_they_name(
    address: dict[str, str],
) -> None:
    with override_settings(SIGN_IN_FORMS_PER_MINUTE_MAX=2):
        answers = [
            Door().post(f"/accounts/{form}/", headers=address, data={"login": f"{form}@x.example"})
            for form in ("login", "signup", "password/reset")
        ]

    assert [one.status_code for one in answers] == [403, 403, 429]
    check_refused(answers[2])


def test_stripe_is_not_counted(address: dict[str, str]) -> None:
    with override_settings(ADDRESS_WRITES_PER_MINUTE_MAX=0):
        answer = Door().post("/stripe/events", headers=address, content=b"{}")

    assert answer.status_code == 400


def test_a_subscriber_has_one_count_for_all_their_addresses() -> None:
    assert subscriber_of("2001:db8:1:2::1") == subscriber_of("2001:db8:1:2:ffff::9")
    assert subscriber_of("2001:db8:1:2::1") != subscriber_of("2001:db8:1:3::1")
    assert subscriber_of("::ffff:192.0.2.7") == "192.0.2.7"
    assert subscriber_of("") == ""


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def allowed(rates: RequestRates, subject: str, requests_max: int = 2) -> bool:
    try:
        rates.count("test", subject, requests_max)
    except errors.ApiError:
        return False
    return True


def test_without_redis_a_process_counts_by_itself() -> None:
    clock = Clock()
    rates = RequestRates(redis.Redis(port=free_port()), clock)
    first = [allowed(rates, "acme") for _ in range(3)]
    other = allowed(rates, "globex")
    clock.now += 61

    assert first == [True, True, False]
    assert other
    assert allowed(rates, "acme")


def test_without_redis_counters_are_bounded() -> None:
    rates = RequestRates(redis.Redis(port=free_port()), Clock())
    full = [allowed(rates, "acme", 1) for _ in range(2)]
    for one in range(SUBJECTS_MAX):
        rates.count("test", str(one), 1)

    assert full == [True, False]
    assert allowed(rates, "acme", 1)


def test_processes_count_together_and_a_window_ends() -> None:
    connection = redis.Redis.from_url(settings.REDIS_URL)
    subject = uuid4().hex
    one, other = RequestRates(connection), RequestRates(connection)
    outcomes = [allowed(rates, subject) for rates in (one, other, one)]

    assert outcomes == [True, True, False]
    assert 0 < connection.pttl(f"rates:test:{subject}") <= 60_000
