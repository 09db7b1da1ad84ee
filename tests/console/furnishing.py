"""Organizations that have something to show: usage, money, people, keys, webhooks and jobs.

Everything is made through the facades and the API, as tenants make it. Called by the fixtures and
by screenshots.py.
"""

import json
from dataclasses import dataclass
from uuid import UUID, uuid4

import httpx

from tenants.contracts import KeySettings, Role
from tests.console.people import new_person

DAYS, REQUESTS = 35, 500
"""Of history: enough for a closed month, little enough to be written in seconds."""
GUESTS = ("ada", "alan", "edsger", "grace")
ENDPOINTS, KEYS = 3, 8
QUESTIONS = ("What is the capital of France?", "What is a mill race?", "Who was Ada Lovelace?")
TEXTS = {
    "mill": "A headrace is the channel that leads water to a mill wheel, which turns a stone.",
    "bees": "Bees collect nectar from flowers. In the hive they turn it into honey for the winter.",
    "moon": "The Moon circles the Earth in a month and pulls the tides of all the seas.",
}


@dataclass(frozen=True, slots=True)
class Furnished:
    """An organization with everything but jobs, and the secret of a key of it."""

    slug: str
    organization_id: UUID
    secret: str


def furnished_organization(model: str) -> Furnished:
    """A fresh organization with some days of history and a few of everything."""
    from billing import facade as billing
    from headrace.standalone.demo_history import write_history
    from tenants import facade as tenants

    slug = f"full-house-{uuid4().hex[:6]}"
    organization_id = tenants.create_organization(slug, "Full House").organization_id
    billing.open_account(organization_id)
    billing.keep_out_of_stripe(organization_id, using="housekeeper")
    founder = new_person("founder")
    tenants.add_member(organization_id, founder.user_id, Role.OWNER)
    write_history(organization_id, founder.user_id, model, days=DAYS, requests=REQUESTS)
    billing.grant_credit(organization_id, 5 * 10**12, f"credit-{slug}", using="housekeeper")
    return Furnished(slug, organization_id, furnish(organization_id))


def furnish(organization_id: UUID) -> str:
    """A few of what a team collects; returns the secret of a key."""
    from tenants import facade as tenants

    operator = tenants.operator_of(organization_id)
    for name in GUESTS:
        tenants.invite(operator, f"{name}@example.com", Role.VIEWER)
    for number in range(ENDPOINTS):
        tenants.create_webhook_endpoint(operator, f"https://hooks.example.com/{number}")
    project_id = tenants.list_projects(operator)[0].project_id
    issued = [
        tenants.create_key(operator, project_id, KeySettings(f"service {number}"))
        for number in range(KEYS)
    ]
    return issued[0].secret


def submit_jobs(root_url: str, secret: str, model: str) -> None:
    """A batch with a line that fails, and a summary; nobody waits for their ends."""
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=root_url, headers=headers, timeout=60, trust_env=False) as client:
        lines = [
            _line(number, {"messages": [{"role": "user", "content": question}]}, model)
            for number, question in enumerate(QUESTIONS)
        ]
        lines.append(_line(len(lines), {"messages": []}, model))
        _post(
            client,
            "/v1/batches",
            input_file_id=_uploaded(client, "questions.jsonl", "batch", lines),
            endpoint="/v1/chat/completions",
            completion_window="24h",
        )
        texts = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
        _post(
            client,
            "/api/v1/summaries",
            input_file_ids=[_uploaded(client, "texts.jsonl", "user_data", texts)],
            model=model,
            tokens_max=24,
        )


def _line(number: int, body: dict[str, object], model: str) -> str:
    asked = {"model": model, "max_completion_tokens": 16, "temperature": 0, **body}
    return json.dumps(
        {
            "custom_id": f"question-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": asked,
        }
    )


def _uploaded(client: httpx.Client, name: str, purpose: str, lines: list[str]) -> str:
    answer = client.post(
        "/v1/files",
        data={"purpose": purpose},
        files={"file": (name, "\n".join(lines).encode())},
    )
    file_id: str = answer.raise_for_status().json()["id"]
    return file_id


def _post(client: httpx.Client, path: str, **body: object) -> None:
    answer = client.post(path, json=body)
    assert answer.is_success, answer.text
