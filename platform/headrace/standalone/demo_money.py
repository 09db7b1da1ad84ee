"""The second half of `make demo`: a new customer, from the invitation to the invoice.

Everything goes through public doors: forms, mail, the management API, the payment provider's page
(the stand-in for Stripe that the house runs without a key) and its webhook. Called by
`demo_story`.
"""

import secrets
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import openai

from billing import facade as billing
from headrace.standalone.data_folder import REPOSITORY
from headrace.standalone.demo_people import Mailbox, Person
from headrace.standalone.processes import House, set_up_environment

BUDGET_USD = "0.0002"
"""What a dozen short answers cost."""
QUESTIONS_MAX = 40
TOP_UP_USD = "20.00"
TOP_UP_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 120
POLL_S = 0.1
MONTH_AND_GRACE = timedelta(days=34)


class Customer:
    """A tenant that did not exist before the demo, its owner and its developer."""

    def __init__(self, house: House, model: str) -> None:
        self.house = house
        self.model = model
        self.slug = f"umbra-{secrets.token_hex(3)}"
        self.mailbox = Mailbox(house.folder.root / "outbox")
        root_url = house.base_url.removesuffix("/v1")
        self.owner = Person(root_url, f"olga@{self.slug}.example", self.mailbox)
        self.developer = Person(root_url, f"dev@{self.slug}.example", self.mailbox)
        self.organization_id = ""
        self.key: dict[str, Any] = {}

    def close(self) -> None:
        """Closes their browsers."""
        self.owner.close()
        self.developer.close()

    @property
    def path(self) -> str:
        """Of the organization in the management API."""
        return f"/organizations/{self.organization_id}"

    def manage(self, *arguments: str) -> str:
        """What the operator types, and what it says."""
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "manage.py"), *arguments],
            env=set_up_environment(self.house),
            timeout=COMMAND_TIMEOUT_S,
            check=True,
            text=True,
            capture_output=True,
        )
        return done.stdout

    def join(self, person: Person) -> None:
        """Signs up and accepts the invitation that came by mail."""
        token = person.path_in_mail("invited", "/console/invitation").partition("#")[2]
        person.sign_up()
        answer = person.call("POST", "/invitations/accept", {"token": token})
        self.organization_id = answer["organization_id"]


def invite(customer: Customer) -> None:
    """The operator invites an owner, the owner a developer; both sign up by their mail."""
    customer.manage("create_tenant", customer.slug, "--credit", "1")
    customer.manage("invite_member", customer.slug, customer.owner.address)
    customer.join(customer.owner)
    customer.owner.call(
        "POST",
        f"{customer.path}/invitations",
        {"email": customer.developer.address, "role": "developer"},
    )
    customer.join(customer.developer)
    members = customer.owner.call("GET", f"{customer.path}/members")["data"]
    for member in members:
        print(f"   {member['email']} is {member['role']}")
    assert sorted(member["role"] for member in members) == ["developer", "owner"]


def make_a_key(customer: Customer) -> None:
    """The developer makes a key that can do one thing, and may not touch the money."""
    [project, *_] = customer.developer.call("GET", f"{customer.path}/projects")["data"]
    customer.key = customer.developer.call(
        "POST",
        f"{customer.path}/keys",
        {"name": "demo script", "project_id": project["id"], "scopes": ["chat"]},
    )
    print(f"   key {customer.key['prefix']}...{customer.key['last4']} may {customer.key['scopes']}")
    try:
        customer.developer.call("POST", f"{customer.path}/topups", {"amount": "1.00"})
    except httpx.HTTPStatusError as error:
        print(f"   a developer may not pay in: {str(error).partition(' for url')[0]}")
        return
    raise AssertionError("a developer has paid in")


def spend_until_the_budget_ends(customer: Customer) -> None:
    """A monthly budget, the alert at half of it, and the refusal at its end."""
    quota = {
        "scope": "organization",
        "metric": "spend",
        "period": "month",
        "limit": BUDGET_USD,
        "hard": True,
    }
    customer.owner.call("PUT", f"{customer.path}/limits", {"quotas": [quota]})
    print(f"   budget: {BUDGET_USD} USD a month")
    with openai.OpenAI(
        base_url=customer.house.base_url, api_key=customer.key["key"], max_retries=0
    ) as client:
        for asked in range(1, QUESTIONS_MAX + 1):
            try:
                client.chat.completions.create(
                    model=customer.model,
                    messages=[{"role": "user", "content": f"Name {asked} things in a mill."}],
                    max_completion_tokens=64,
                )
            except openai.RateLimitError as error:
                print(f"   question {asked} is refused: {error.code}")
                refused = error.code
                break
        else:
            raise AssertionError("the budget never ended")
    assert refused == "insufficient_quota"
    subject = customer.mailbox.wait(customer.owner.address, "of a budget is used").splitlines()[0]
    print(f"   mail to {customer.owner.address}: {subject}")
    customer.owner.call("PUT", f"{customer.path}/limits", {"quotas": []})


def top_up(customer: Customer) -> None:
    """The owner pays on the provider's page; its webhook credits the account, once."""
    before = customer.owner.call("GET", f"{customer.path}/billing")["balance"]["amount"]
    started = customer.owner.call(
        "POST",
        f"{customer.path}/topups",
        {"amount": TOP_UP_USD},
        **{"idempotency-key": f"first order of {customer.slug}"},
    )
    customer.owner.pay(started["payment_url"], "pm_card_visa")
    deadline = time.monotonic() + TOP_UP_TIMEOUT_S
    while True:
        told = customer.owner.call("GET", f"{customer.path}/topups/{started['id']}")
        if told["state"] != "pending" or time.monotonic() > deadline:
            break
        time.sleep(POLL_S)
    after = customer.owner.call("GET", f"{customer.path}/billing")["balance"]["amount"]
    print(f"   top-up of {TOP_UP_USD} USD {told['state']}: balance {before} -> {after} USD")
    assert told["state"] == "succeeded"


def close_the_month(customer: Customer) -> None:
    """The month ends, and the books close it: a document with a line per model and class."""
    billing.close_due(datetime.now(UTC) + MONTH_AND_GRACE)
    [document] = customer.owner.call("GET", f"{customer.path}/invoices")["data"]
    whole = customer.owner.call("GET", f"{customer.path}/invoices/{document['id']}")
    print(f"   {document['kind']} {document['number']}, total {document['total']['amount']} USD")
    for line in whole["lines"]:
        what = f"{line['kind']}, {line['text']}"
        if line["model"]:
            what = f"{line['tokens']} {line['token_class']} tokens of {line['model']}"
        print(f"     {what:<56} {line['exact']['amount']:>14} USD")
    paper = customer.owner.download(f"{customer.path}/invoices/{document['id']}.pdf")
    assert paper.startswith(b"%PDF")
    print(f"   its PDF has {len(paper)} bytes")


def show_the_audit_log(customer: Customer) -> None:
    """Who did what, in a chain of hashes that shows when a link is missing."""
    entries = customer.owner.call("GET", f"{customer.path}/audit_log?limit=100")["data"]
    actions = [entry["action"] for entry in reversed(entries)]
    print(f"   {len(actions)} entries: {', '.join(actions)}")
    verdict = customer.owner.call("GET", f"{customer.path}/audit_log/verdict")
    assert verdict["intact"] is True
    print(f"   the chain of its {verdict['entries']} entries is intact")
