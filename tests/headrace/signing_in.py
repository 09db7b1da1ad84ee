"""People for tests of sign-in: they fill in forms, read their mail and own an authenticator."""

import hmac
import json
import re
import struct
import time
from base64 import b32decode
from uuid import uuid4

import httpx
from django.db import connections

from tests.headrace.door import Door

PASSWORD = "correct-horse-battery"
LINK = re.compile(r"http://127\.0\.0\.1:8000(/accounts/\S+)")
"""Under the public address of the settings."""
TOTP_PERIOD_S = 30


def new_address() -> str:
    """An address nobody has used."""
    return f"{uuid4().hex[:12]}@example.com"


def submit(door: Door, path: str, **fields: str) -> httpx.Response:
    """Opens a page, as a browser must to get its token, and sends the form on it."""
    page = door.get(path)
    assert page.status_code == 200, (page.status_code, page.headers.get("location"))
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert token is not None
    return door.post(
        path,
        data={**fields, "csrfmiddlewaretoken": token[1]},
        headers={"referer": f"http://127.0.0.1{path}"},
    )


def mails_to(address: str) -> list[dict[str, str]]:
    """What waits for a worker to send, oldest first: subject and body."""
    from tenants.sealing import Purpose, unseal

    with connections["housekeeper"].cursor() as cursor:
        cursor.execute(
            "SELECT context_sealed FROM tenants_mail WHERE to_address = %s ORDER BY id", [address]
        )
        return [json.loads(unseal(bytes(row[0]), Purpose.MAIL)) for row in cursor.fetchall()]


def link_in(mail: dict[str, str]) -> str:
    """The path of the link in a mail."""
    found = LINK.search(mail["body"])
    assert found is not None, mail["body"]
    return found[1]


def sign_up(address: str) -> Door:
    """A person with a confirmed address and PASSWORD; not signed in yet."""
    door = Door()
    answer = submit(
        door, "/accounts/signup/", email=address, password1=PASSWORD, password2=PASSWORD
    )
    assert answer.status_code == 302, answer.text
    submit(door, link_in(mails_to(address)[-1]))
    return Door()


def sign_in(door: Door, address: str, password: str = PASSWORD) -> httpx.Response:
    """Fills in the form; 302 when it was taken."""
    return submit(door, "/accounts/login/", login=address, password=password)


def totp(secret: str, steps: int = 0) -> str:
    """What an authenticator app shows now, or `steps` periods later."""
    counter = int(time.time()) // TOTP_PERIOD_S + steps
    digest = hmac.digest(b32decode(secret), struct.pack(">Q", counter), "sha1")
    offset = digest[-1] & 0xF
    number = int.from_bytes(digest[offset : offset + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**6:06d}"


def add_authenticator(door: Door, password: str = PASSWORD) -> tuple[str, list[str]]:
    """Proves the password again and adds an app: its secret, and the recovery codes shown once."""
    path = "/accounts/2fa/totp/activate/"
    submit(door, "/accounts/reauthenticate/", password=password)
    page = door.get(path)
    secret = re.search(r'value="([A-Z2-7]{32})"', page.text)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
    assert secret is not None and token is not None
    answer = door.post(path, data={"code": totp(secret[1]), "csrfmiddlewaretoken": token[1]})
    assert answer.status_code == 302, answer.text
    return secret[1], re.findall(r"\b\d{8}\b", door.get(answer.headers["location"]).text)
