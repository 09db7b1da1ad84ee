"""People in the demo: they have a browser, a mailbox and a password, and nothing else.

A `Person` signs up, follows the links in their mail and calls the management API by session, as the
console does. Mail is read from the files that the worker writes. Called by `demo_money`.
"""

import email
import re
import secrets
import time
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import httpx

MAIL_TIMEOUT_S = 60
POLL_S = 0.1
FORM_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
MAIL_RULE = "-" * 79
"""What Django's file backend writes after each mail."""


class Mailbox:
    """All mail of the house, as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait(self, address: str, about: str) -> str:
        """The text of the newest mail to `address` whose subject has `about` in it.

        Raises TimeoutError when none comes.
        """
        deadline = time.monotonic() + MAIL_TIMEOUT_S
        while True:
            for mail in self._mails():
                if mail["To"] == address and about.lower() in str(mail["Subject"]).lower():
                    return str(mail["Subject"]) + "\n" + str(mail.get_payload())
            if time.monotonic() > deadline:
                raise TimeoutError(f"no mail to {address} about {about!r}")
            time.sleep(POLL_S)

    def _mails(self) -> Iterator[Message]:
        for file in sorted(self._folder.glob("*.log"), reverse=True):
            for text in reversed(file.read_text().split(MAIL_RULE)):
                if text.strip():
                    yield email.message_from_string(text.lstrip())


class Person:
    """Somebody with an address and a browser session. Close it."""

    def __init__(self, root_url: str, address: str, mailbox: Mailbox) -> None:
        self.address = address
        self._password = secrets.token_urlsafe(24)
        self._mailbox = mailbox
        self._browser = httpx.Client(base_url=root_url, timeout=60, trust_env=False)

    def close(self) -> None:
        """Closes the browser."""
        self._browser.close()

    def sign_up(self) -> None:
        """Signs up, confirms the address by the link in the mail, and signs in."""
        twice = {"password1": self._password, "password2": self._password}
        self._submit("/accounts/signup/", email=self.address, **twice)
        self._submit(self.path_in_mail("confirm", "/accounts/"))
        self._submit("/accounts/login/", login=self.address, password=self._password)

    def path_in_mail(self, about: str, under: str) -> str:
        """The link below the path `under` in a mail about something, without its host."""
        text = self._mailbox.wait(self.address, about)
        found = re.search(rf"https?://[^/\s]+({re.escape(under)}\S+)", text)
        assert found is not None, f"the mail about {about!r} has no link to {under}"
        return found[1]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """The JSON of an answer of the management API; raises HTTPStatusError for a refusal."""
        token = self._browser.cookies.get("csrftoken") or ""
        given = {"x-csrftoken": token, "referer": str(self._browser.base_url), **headers}
        answer = self._browser.request(method, f"/api/v1{path}", json=body, headers=given)
        return answer.raise_for_status().json()

    def download(self, path: str) -> bytes:
        """A file of the management API."""
        return self._browser.get(f"/api/v1{path}").raise_for_status().content

    def pay(self, payment_url: str, card: str) -> None:
        """Chooses a test card on the payment provider's page."""
        answer = httpx.post(payment_url, data={"payment_method": card}, trust_env=False)
        assert answer.status_code < httpx.codes.BAD_REQUEST, answer.text

    def _submit(self, path: str, **fields: str) -> None:
        page = self._browser.get(path).raise_for_status()
        token = FORM_TOKEN.search(page.text)
        assert token is not None, f"{path} has no form"
        answer = self._browser.post(
            path,
            data={**fields, "csrfmiddlewaretoken": token[1]},
            headers={"referer": str(self._browser.base_url)},
        )
        assert answer.status_code == httpx.codes.FOUND, f"{path}: {answer.status_code}"
