"""The house that the system tests live in: it answers, charges, and can be killed and restarted."""

import pytest

from tests.house import LiveHouse, OwnHouse, wait_until


def test_a_new_tenant_is_answered_and_charged(house: LiveHouse) -> None:
    from billing import facade as billing

    tenant = house.new_tenant()
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        max_completion_tokens=16,
        temperature=0,
    )
    balance = billing.balance(tenant.organization_id)

    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0
    assert 0 < 5 * 10**12 - balance.posted_pico < 10**8
    assert balance.held_pico == 0
    assert wait_until(house.engine_is_idle)


@pytest.mark.long
def test_a_killed_engine_can_be_started_again_in_a_house_of_its_own(own_house: OwnHouse) -> None:
    house = own_house()
    tenant = house.new_tenant()
    house.kill("engine")
    with house.http() as client:
        unready = client.get("/readyz").status_code
    house.start("engine")
    wait_until(lambda: house.http().get("/readyz").status_code == 200)
    answer = house.client(tenant.secret).chat.completions.create(
        model=house.model, messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )

    assert unready == 503
    assert answer.usage is not None
