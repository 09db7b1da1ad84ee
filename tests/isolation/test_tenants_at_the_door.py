"""Two tenants at the public door: neither sees, hits or pays for anything of the other."""

from typing import Any

from tests import books
from tests.house import LiveHouse, Tenant
from tests.prompts import chat, long_text


def ask(house: LiveHouse, tenant: Tenant, text: str, **extra: Any) -> dict[str, Any]:
    raw = house.client(tenant.secret).chat.completions.with_raw_response.create(
        model=house.model, messages=chat(text), max_tokens=2, temperature=0, extra_body=extra
    )
    return house.receipt(tenant, raw.headers["x-request-id"])


def test_a_prefix_of_one_tenant_is_never_a_hit_of_another(house: LiveHouse) -> None:
    acme, globex = house.new_tenant(), house.new_tenant()
    text = long_text(200)
    cold, warm = ask(house, acme, text), ask(house, acme, text)
    other = ask(house, globex, text)
    forged = ask(house, globex, long_text(200), cache_salt=str(acme.organization_id))

    # The pair matters: a cache that is off passes the second line alone.
    assert warm["tokens"]["cached_input"] > 100
    assert cold["tokens"]["cached_input"] == other["tokens"]["cached_input"] == 0
    assert forged["tokens"]["cached_input"] < 48
    assert other["amount_pico"] == cold["amount_pico"]


def test_a_request_of_another_tenant_does_not_exist(house: LiveHouse) -> None:
    acme, globex = house.new_tenant(), house.new_tenant()
    request_id = ask(house, acme, "Hello")["id"]
    answers = []
    for tenant, asked in ((globex, request_id), (globex, "req_" + "0" * 32), (acme, "nonsense")):
        with house.http(tenant.secret) as client:
            answers.append(client.get(f"/v1/usage/requests/{asked}"))

    assert [answer.status_code for answer in answers] == [404, 404, 404]
    assert len({answer.text for answer in answers}) == 1


def test_fields_that_are_ours_to_set_change_nothing(house: LiveHouse) -> None:
    acme, globex = house.new_tenant(), house.new_tenant()
    receipt = ask(
        house,
        acme,
        "Hello",
        organization_id=str(globex.organization_id),
        price=0,
        service_tier="batch",
        priority=-5,
        ignore_eos=True,
        request_id="0" * 32,
    )

    assert receipt["tier"] == "interactive"
    assert int(receipt["amount_pico"]) > 0
    assert books.events(globex) == []


def test_receipts_and_metrics_name_no_other_tenant(house: LiveHouse) -> None:
    acme = house.new_tenant()
    receipt = ask(house, acme, "Hello")
    with house.http() as client:
        metrics = client.get(house.metrics_url).raise_for_status().text

    assert acme.slug not in metrics
    assert str(acme.organization_id) not in metrics
    assert acme.secret not in str(receipt)


def test_metrics_are_not_where_tenants_are(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    with house.http(tenant.secret) as client:
        by_tenants = client.get("/metrics")
        elsewhere = client.get(house.metrics_url.replace("/metrics", "/v1/models"))

    assert by_tenants.status_code == 404
    assert "vllm:" not in by_tenants.text
    assert elsewhere.status_code == 404
    assert "vllm:num_requests_running" in house.metrics()
