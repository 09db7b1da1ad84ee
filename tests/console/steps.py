"""Steps that several journeys share, taken as a person takes them: by clicking and typing.

Each starts on any page of somebody who is signed in, and says where it ends. Called by
test_journeys_by_browser.py.
"""

import json
import re
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import Page, expect

from headrace.console_kit.formats import money_exact
from headrace.standalone.demo_people import Mailbox
from tests.console.people import fill_sign_in, link_mailed
from tests.headrace.signing_in import PASSWORD
from tests.house import LiveHouse, wait_until

ARRIVES_MS = 60_000
"""What a model or a worker does meanwhile, on two cores that others use too."""
COUNTING = [{"role": "user", "content": "Count to a hundred."}]
EXACT_CELLS = """rows => rows.map(row => [...row.cells].map(cell =>
    cell.querySelector('[title]')?.title || cell.innerText.trim()))"""
WATCH = """selector => {
    window.watched = [];
    const look = () => document.querySelectorAll(selector)
        .forEach(one => window.watched.push(one.textContent.trim()));
    new MutationObserver(look)
        .observe(document.body, {subtree: true, childList: true, characterData: true});
    look();
}"""
SECRET = re.compile(r"hr-[0-9A-Za-z]{40,}")


def sign_up(page: Page, mailbox: Mailbox, address: str) -> None:
    """Opens an account by the form and the link in the mail, and is signed in."""
    page.goto("/accounts/signup/")
    page.locator("input[name=email]").fill(address)
    page.locator("input[name=password1]").fill(PASSWORD)
    page.locator("input[name=password2]").fill(PASSWORD)
    with page.expect_navigation():
        page.locator("input[name=password2]").press("Enter")
    page.goto(link_mailed(mailbox, address, "confirm"))
    with page.expect_navigation():
        page.locator("form[action*=confirm-email] button[type=submit]").click()
    if urlsplit(page.url).path.startswith("/accounts/"):
        page.goto("/accounts/login/")
        fill_sign_in(page, address, PASSWORD)


def found_organization(page: Page, name: str) -> str:
    """Founds one where somebody lands who has none; ends on its overview. Its slug."""
    page.goto("/console/")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Currency").select_option("USD")
    page.get_by_role("button", name="Found it").click()
    expect(page.get_by_role("heading", name="Send the first request")).to_be_visible()
    slug: str = urlsplit(page.url).path.split("/")[2]
    return slug


def create_project(page: Page, slug: str, name: str) -> None:
    """Ends on the project's page."""
    page.goto(f"/console/{slug}/projects")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create project").click()
    expect_toast(page, f"{name} is there")


def expect_toast(page: Page, text: str) -> None:
    """Waits for what is said after an action."""
    expect(page.locator("#toasts").get_by_text(text)).to_be_visible()


def top_up(page: Page, slug: str, amount: str) -> None:
    """Pays in on the provider's page, by the card that pays; ends where the money has arrived."""
    page.goto(f"/console/{slug}/billing")
    page.get_by_role("link", name="Top up").first.click()
    page.get_by_label("Amount in USD").fill(amount)
    page.get_by_role("button", name="Continue to payment").click()
    page.get_by_role("button", name=f"Pay {amount} USD").click()
    expect(page.locator("#returned")).to_contain_text("have arrived", timeout=ARRIVES_MS)


def create_key(page: Page, slug: str, name: str) -> str:
    """Ends on the key's page, where its secret is no more. The secret."""
    page.goto(f"/console/{slug}/keys")
    page.get_by_role("link", name="New key").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_role("heading", name="Key created")).to_be_visible()
    [secret] = set[str](SECRET.findall(page.content()))
    page.get_by_role("link", name="I have stored it").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    assert secret not in page.content()
    return secret


def cells_of(page: Page, table: str) -> list[list[str]]:
    """What the cells of a table's rows say, below its head: exact where a hover says more."""
    rows = page.get_by_role("table", name=table).locator("tbody tr, tfoot tr")
    found: list[list[str]] = rows.evaluate_all(EXACT_CELLS)
    return found


def text_of(page: Page, label: str) -> str:
    """What the tile with this label shows, in full: exact where a hover says more."""
    value = page.locator(".stat", has=page.get_by_text(label, exact=True)).locator(".stat-value")
    exact = value.locator("[title]").first
    return (exact.get_attribute("title") if exact.count() else value.inner_text()) or ""


def watch(page: Page, selector: str) -> None:
    """From now on `watched` tells what the elements of this selector said, one after the other,
    until the page is left or loaded again."""
    page.evaluate(WATCH, selector)


def watched(page: Page) -> list[str]:
    """Each text once; raises AssertionError where the page is not that one any more."""
    texts: list[str] | None = page.evaluate("window.watched")
    assert texts is not None, "the page was loaded again"
    return list(dict.fromkeys(texts))


def ask(house: LiveHouse, secret: str) -> httpx.Response:
    """A request of which all that was held is charged."""
    body = {"model": house.model, "messages": COUNTING, "max_completion_tokens": 4}
    return house.http(secret).post("/v1/chat/completions", json=body)


def receipt_of(house: LiveHouse, secret: str, request_id: str) -> dict[str, Any]:
    """What the API tells of a request once it is settled."""
    client = house.http(secret)

    def settled() -> dict[str, Any]:
        answer = client.get(f"/v1/usage/requests/{request_id}")
        receipt: dict[str, Any] = answer.raise_for_status().json()
        return receipt if receipt["state"] == "posted" else {}

    return wait_until(settled)


def money(amount_pico: str | int) -> str:
    """As a hover shows it."""
    return money_exact(int(amount_pico), "USD")


def check_receipt_page(page: Page, receipt: dict[str, Any]) -> None:
    """The page that is open and a receipt of the API tell the same, to the last unit."""
    expect(page.get_by_role("heading", name="Receipt")).to_be_visible()
    expect(page.locator(".lead code")).to_have_text(receipt["id"])
    prices = receipt["price_micros_per_mtok"]
    classes = [
        ("Uncached input", "uncached_input", prices["input"]),
        ("Cached input", "cached_input", prices["cached_input"]),
        ("Output", "output", prices["output"]),
    ]
    counted = {title: receipt["tokens"][name] for title, name, _ in classes}
    assert cells_of(page, "Tokens and prices") == [
        *(
            # A micro-unit for a million tokens is a pico-unit for one.
            [title, f"{counted[title]:,}", money(price * 10**6), money(price * counted[title])]
            for title, _, price in classes
        ),
        ["Charge", "", "", money(receipt["amount_pico"])],
    ]
    legs = receipt["ledger"]["legs"]
    shown = [amount for _, amount in cells_of(page, "Ledger")]
    assert shown == [money(leg["amount_pico"]) for leg in legs]


class OpenStream(threading.Thread):
    """A client of the API that reads a stream to its end, whatever it is."""

    def __init__(self, house: LiveHouse, secret: str, **body: Any) -> None:
        super().__init__(daemon=True)
        self.tokens = 0
        self.error: dict[str, Any] = {}
        self.request_id = ""
        self.ended_at = 0.0
        self._client = house.http(secret)
        self._body = {"model": house.model, "stream": True, **body}
        self.start()

    def run(self) -> None:
        """Until the server ends it."""
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=self._body) as answer:
                self.request_id = answer.headers["x-request-id"]
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        self._take(json.loads(line.removeprefix("data: ")))
        except httpx.HTTPError as error:
            self.error = {"code": type(error).__name__}
        self.ended_at = time.monotonic()

    def wait_for_end(self, timeout_s: float = 30) -> None:
        """Raises AssertionError where it goes on and on."""
        self.join(timeout_s)
        assert not self.is_alive(), "the stream never ends"

    def _take(self, event: dict[str, Any]) -> None:
        self.error = event.get("error") or self.error
        self.tokens += bool(event.get("choices"))
