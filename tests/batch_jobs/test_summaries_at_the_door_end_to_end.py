"""A summarisation job through the whole house: upload, preview, the socket, results, the ledger."""

import asyncio
import json
from typing import Any

import httpx
import pytest
import websockets

from billing import facade as billing
from tests.house import LiveHouse, Tenant, wait_until

pytestmark = pytest.mark.long
SUMMARIES = "/api/v1/summaries"
TIMEOUT_S = 240
TEXTS = {
    "mill": "A headrace is the channel that leads water to a mill wheel, which turns a stone.",
    "bees": "Bees collect nectar from flowers. In the hive they turn it into honey for the winter.",
    "moon": "The Moon circles the Earth in a month and pulls the tides of all the seas.",
    "salt": "Salt was worth its weight in silver where it had to be carried over the mountains.",
}
TEXTS["mill again"] = TEXTS["mill"]


def uploaded(client: httpx.Client) -> str:
    """The id of a file of all texts."""
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    answer = client.post(
        "/v1/files",
        data={"purpose": "user_data"},
        files={"file": ("texts.jsonl", "\n".join(lines).encode())},
    )
    assert answer.status_code == 200, answer.text
    file_id: str = answer.json()["id"]
    return file_id


def created(client: httpx.Client, model: str, **asked: Any) -> str:
    """The id of a fresh job over all texts."""
    body = {"input_file_ids": [uploaded(client)], "model": model, "tokens_max": 24, **asked}
    answer = client.post(SUMMARIES, json=body)
    assert answer.status_code == 201, answer.text
    summary_id: str = answer.json()["id"]
    return summary_id


def reached(client: httpx.Client, summary_id: str, status: str) -> dict[str, Any]:
    """The job once it has this status."""

    def look() -> dict[str, Any] | None:
        job: dict[str, Any] = client.get(f"{SUMMARIES}/{summary_id}").json()
        return job if job["status"] == status else None

    job = wait_until(look, TIMEOUT_S)
    assert job is not None
    return job


def rows_of(client: httpx.Client, summary_id: str) -> list[dict[str, Any]]:
    """The results so far."""
    text = client.get(f"{SUMMARIES}/{summary_id}/results").raise_for_status().text
    return [json.loads(line) for line in text.splitlines()]


async def followed(house: LiveHouse, tenant: Tenant, summary_id: str) -> list[dict[str, Any]]:
    """What the socket tells of a job, to its end."""
    url = house.root_url.replace("http", "ws", 1) + f"{SUMMARIES}/{summary_id}/progress"
    headers = {"Authorization": f"Bearer {tenant.secret}"}
    async with websockets.connect(url, additional_headers=headers, proxy=None) as socket:
        async with asyncio.timeout(TIMEOUT_S):
            told: list[dict[str, Any]] = [json.loads(message) async for message in socket]
        assert socket.close_code == 1000
    return told


def test_a_job_is_previewed_started_and_followed_and_adds_up(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    client = house.http(tenant.secret)
    before = billing.balance(tenant.organization_id).posted_pico
    summary_id = created(client, house.model, start=False)
    ready = reached(client, summary_id, "ready")
    client.post(f"{SUMMARIES}/{summary_id}/preview").raise_for_status()
    previewed = reached(client, summary_id, "ready")
    shown = rows_of(client, summary_id)
    client.post(f"{SUMMARIES}/{summary_id}/start").raise_for_status()
    told = asyncio.run(followed(house, tenant, summary_id))
    rows = rows_of(client, summary_id)
    job = client.get(f"{SUMMARIES}/{summary_id}").json()
    paid = before - billing.balance(tenant.organization_id).posted_pico

    estimate = ready["estimate"]
    assert 0 < int(estimate["amount_pico"]) < int(estimate["interactive_amount_pico"])
    assert previewed["documents"]["completed"] >= 3
    assert len(shown) == previewed["documents"]["completed"]
    assert told[-1]["status"] == job["status"] == "completed"
    assert told[-1]["documents"]["completed"] == len(TEXTS)
    assert [row["custom_id"] for row in rows] == list(TEXTS)
    assert all(row["summary"].strip() for row in rows)
    assert rows[-1]["same_as"] == "mill"
    assert rows[-1]["summary"] == rows[0]["summary"]
    assert sum(int(row["charge_pico"]) for row in rows) == int(job["charge"]["amount_pico"]) == paid
    assert paid > 0
    for row in rows[:-1]:
        receipt = client.get(f"/v1/usage/requests/{row['request_id']}").json()
        assert receipt["amount_pico"] == row["charge_pico"]
    house.manage("reconcile")


def test_a_repeated_job_costs_nothing_until_its_results_are_deleted(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    client = house.http(tenant.secret)
    first = created(client, house.model)
    reached(client, first, "completed")
    again = created(client, house.model)
    repeated = reached(client, again, "completed")

    assert repeated["documents"]["known"] == len(TEXTS)
    assert repeated["charge"]["amount_pico"] == "0"
    assert [row["summary"] for row in rows_of(client, again)] == [
        row["summary"] for row in rows_of(client, first)
    ]
    for summary_id in (first, again):
        client.delete(f"{SUMMARIES}/{summary_id}").raise_for_status()
        assert client.get(f"{SUMMARIES}/{summary_id}/results").status_code == 404
    computed = created(client, house.model)
    assert int(reached(client, computed, "completed")["charge"]["amount_pico"]) > 0
    house.manage("reconcile")
