"""The steps of `make demo`: what a tenant does with Headrace, and what it is charged for.

Each step acts through a public door (the stock OpenAI client, a WebSocket, manage.py), prints what
came of it and raises StoryError when that is not what was promised. Called by `demo`, which has
set Django up on the house's databases: balances have no public route yet.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import openai
from websockets.sync.client import connect

from billing import facade as billing
from billing.facade import decimal_string
from headrace.standalone import demo_bulk, demo_money
from headrace.standalone.processes import House
from headrace.standalone.supervisor import QUESTION, demo_keys, model_served
from tenants import facade as tenants

ANSWER_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 10
POLL_S = 0.05
RULES_IN_LONG_PROMPT = 40


class StoryError(Exception):
    """A step did not come out as promised."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer and the id that its receipt goes by."""

    text: str
    request_id: str


class Story:
    """What the steps share: clients by tenant, and what earlier steps found."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.model = model_served(house)
        self.keys = demo_keys(house.folder)
        self.clients = {
            slug: openai.OpenAI(
                base_url=house.base_url, api_key=key, max_retries=0, timeout=ANSWER_TIMEOUT_S
            )
            for slug, key in self.keys.items()
        }
        self.receipts: list[dict[str, Any]] = []
        self.customer = demo_money.Customer(house, self.model)
        self.first = Answer("", "")
        self.balance_before_pico = 0

    def close(self) -> None:
        """Closes the clients."""
        self.customer.close()
        for client in self.clients.values():
            client.close()

    def ask(self, slug: str, prompt: str, *, output_tokens_max: int, show: bool = True) -> Answer:
        """One streamed answer through the stock client, printed as it arrives."""
        raw = self.clients[slug].chat.completions.with_raw_response.create(
            model=self.model,
            messages=[{"role": "user", "content": prompt}],
            max_completion_tokens=output_tokens_max,
            temperature=0,
            stream=True,
        )
        pieces: list[str] = []
        for chunk in raw.parse():
            piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
            pieces.append(piece)
            if show:
                print(piece, end="", flush=True)
        if show:
            print()
        return Answer("".join(pieces), raw.headers["x-request-id"])

    def receipt(self, slug: str, request_id: str) -> dict[str, Any]:
        """The receipt once it is posted."""
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            answer = httpx.get(
                f"{self.house.base_url}/usage/requests/{request_id}",
                headers={"Authorization": f"Bearer {self.keys[slug]}"},
                trust_env=False,
            )
            receipt: dict[str, Any] = answer.raise_for_status().json()
            if receipt["state"] == "posted":
                self.receipts.append(receipt)
                return receipt
            if time.monotonic() > deadline:
                raise StoryError(f"request {request_id} is still {receipt['state']}")
            time.sleep(POLL_S)

    def balance_pico(self, slug: str) -> int:
        """What the tenant has left, without what is held."""
        organization = tenants.organization_by_slug(slug)
        if organization is None:
            raise StoryError(f"no tenant {slug}")
        return billing.balance(organization.organization_id).posted_pico


def stream_an_answer(story: Story) -> None:
    """The main job."""
    story.balance_before_pico = story.balance_pico("acme")
    print(f"   acme asks: {QUESTION}\n   answer: ", end="")
    story.first = story.ask("acme", QUESTION, output_tokens_max=32)
    _expect("Paris" in story.first.text, "the answer names Paris")


def read_its_receipt(story: Story) -> None:
    """Tokens, prices, charge and balance agree."""
    receipt = story.receipt("acme", story.first.request_id)
    tokens, prices = receipt["tokens"], receipt["price_micros_per_mtok"]
    charge_pico = int(receipt["amount_pico"])
    after_pico = story.balance_pico("acme")
    print(f"   receipt {receipt['id']}")
    for label, count, price in (
        ("input tokens", tokens["uncached_input"], prices["input"]),
        ("cached input", tokens["cached_input"], prices["cached_input"]),
        ("output tokens", tokens["output"], prices["output"]),
    ):
        print(f"     {label:<14} {count:>6} x {_per_million(price)} USD per million")
    print(f"     charge         {decimal_string(charge_pico)} USD")
    print(f"     balance before {decimal_string(story.balance_before_pico)} USD")
    print(f"     balance after  {decimal_string(after_pico)} USD")
    expected_pico = (
        tokens["uncached_input"] * prices["input"]
        + tokens["cached_input"] * prices["cached_input"]
        + tokens["output"] * prices["output"]
    )
    _expect(charge_pico == expected_pico > 0, "the charge is tokens times prices")
    _expect(story.balance_before_pico - after_pico == charge_pico, "the balance fell by the charge")


def repeat_a_long_prompt(story: Story) -> None:
    """The prefix cache makes the second time cheaper."""
    first, second = (_long_prompt(story, "acme", label) for label in ("first time", "second time"))
    _expect(
        second["tokens"]["cached_input"] > first["tokens"]["cached_input"],
        "the second time finds more tokens cached",
    )
    _expect(int(second["amount_pico"]) < int(first["amount_pico"]), "the second time costs less")


def repeat_it_as_another_tenant(story: Story) -> None:
    """Tenants share no cache: how fast or cheap an answer is tells nothing of others."""
    receipt = _long_prompt(story, "globex", "globex")
    _expect(receipt["tokens"]["cached_input"] == 0, "nothing of acme's is cached for globex")


def stream_over_a_web_socket(story: Story) -> None:
    """Two answers at once over one socket."""
    questions = {"a": "What is the capital of Germany?", "b": "What is the capital of England?"}
    texts = dict.fromkeys(questions, "")
    open_ids = set(questions)
    with connect(
        story.house.base_url.replace("http", "ws", 1) + "/stream",
        additional_headers={"Authorization": f"Bearer {story.keys['acme']}"},
        proxy=None,
    ) as socket:
        for identifier, question in questions.items():
            body = {
                "model": story.model,
                "messages": [{"role": "user", "content": question}],
                "max_completion_tokens": 24,
                "temperature": 0,
            }
            socket.send(json.dumps({"type": "create", "id": identifier, "body": body}))
        while open_ids:
            message = json.loads(socket.recv(timeout=ANSWER_TIMEOUT_S))
            identifier, data = message["id"], message["data"]
            if message["event"] == "error":
                raise StoryError(f"{identifier}: {data}")
            if message["event"] == "done":
                open_ids.remove(identifier)
                continue
            for choice in data["choices"]:
                texts[identifier] += choice["delta"].get("content") or ""
    for identifier, question in questions.items():
        print(f"   {identifier}: {question} -> {texts[identifier].strip()}")
    _expect(all(texts.values()), "both questions are answered")


def refuse_without_credit(story: Story) -> None:
    """No credit, no tokens."""
    try:
        story.ask("initech", QUESTION, output_tokens_max=8, show=False)
    except openai.RateLimitError as error:
        print(f"   initech is refused: {error.status_code} {error.code}")
        _expect(error.code == "insufficient_quota", "the code is insufficient_quota")
        return
    raise StoryError("initech was served without credit")


def sum_the_ledger(story: Story) -> None:
    """Every posted request moved money between accounts; none appeared or vanished."""
    for receipt in story.receipts:
        legs = [int(leg["amount_pico"]) for leg in receipt["ledger"]["legs"]]
        _expect(len(legs) >= 2 and sum(legs) == 0, f"the legs of {receipt['id']} sum to 0")
    findings = billing.reconcile()
    _expect(not findings, "the books reconcile: " + "; ".join(findings))
    print(f"   {len(story.receipts)} receipts: the legs of each sum to 0")
    print("   the whole ledger reconciles: no discrepancy")


def _long_prompt(story: Story, slug: str, label: str) -> dict[str, Any]:
    rules = "\n".join(
        f"Rule {number}: answer number {number} must be short, polite and true."
        for number in range(1, RULES_IN_LONG_PROMPT + 1)
    )
    answer = story.ask(slug, f"{rules}\nSay hello.", output_tokens_max=8, show=False)
    receipt = story.receipt(slug, answer.request_id)
    tokens = receipt["tokens"]
    print(
        f"   {label:<12} {tokens['uncached_input']:>5} input tokens, "
        f"{tokens['cached_input']:>5} cached, charge {receipt['amount']} USD"
    )
    return receipt


def _per_million(micros_per_mtok: int) -> str:
    return decimal_string(micros_per_mtok * 10**6)


def _expect(held: bool, promise: str) -> None:
    if not held:
        raise StoryError(f"not so: {promise}")


def of_a_customer(step: Callable[[demo_money.Customer], None]) -> Callable[[Story], None]:
    """A step of the new customer's, as a step of the story."""
    return lambda story: step(story.customer)


def in_bulk(step: Callable[[demo_bulk.Bulk], None]) -> Callable[[Story], None]:
    """A step of bulk work, at the prices of the story's first receipt beside its own."""
    return lambda story: step(
        demo_bulk.Bulk(
            story.house,
            story.model,
            story.keys["acme"],
            story.receipts[0]["price_micros_per_mtok"],
        )
    )


STEPS: tuple[tuple[str, Callable[[Story], None]], ...] = (
    ("A streamed answer", stream_an_answer),
    ("Its receipt", read_its_receipt),
    ("A long prompt, twice: the second is cached and costs less", repeat_a_long_prompt),
    ("The same prompt from another tenant: nothing cached", repeat_it_as_another_tenant),
    ("Two streams over one WebSocket", stream_over_a_web_socket),
    ("A tenant without credit is refused", refuse_without_credit),
    (
        "A folder of texts summarised in bulk, at the batch price",
        in_bulk(demo_bulk.summarise_a_folder),
    ),
    ("A batch of questions by the stock OpenAI client", in_bulk(demo_bulk.run_a_batch)),
    ("A new customer: an owner is invited, and invites", of_a_customer(demo_money.invite)),
    ("A key that may do one thing", of_a_customer(demo_money.make_a_key)),
    ("A budget, its alert, its end", of_a_customer(demo_money.spend_until_the_budget_ends)),
    ("A top-up, through the stand-in for Stripe", of_a_customer(demo_money.top_up)),
    ("The month ends: its document", of_a_customer(demo_money.close_the_month)),
    ("The audit log", of_a_customer(demo_money.show_the_audit_log)),
    ("The ledger's legs sum to 0", sum_the_ledger),
)
