"""A web process, the fake beside it, and the provider connected to it: as in a house, less the
engine.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from headrace.standalone.data_folder import REPOSITORY
from tests.billing.stripe.fake_process import API_KEY, Fake, fake_running
from tests.house import free_port, wait_until

if TYPE_CHECKING:
    from tests.billing.stripe.cast import Payer

WEB_SECRETS = ("whsec_of_the_tests", "whsec_of_tomorrow")


@pytest.fixture(scope="session")
def fake_port() -> int:
    """Where the fake is, or will be."""
    return free_port()


@pytest.fixture(scope="session")
def web_url(django_database: object, fake_port: int) -> Iterator[str]:
    """The REST half of the web in a process of its own, in role app, knowing both secrets."""
    port = free_port()
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("DATABASE_OWNER_URL", "DATABASE_HOUSEKEEPER_URL")
    }
    environment["STRIPE_WEBHOOK_SECRETS"] = ",".join(WEB_SECRETS)
    environment["STRIPE_API_KEY"] = API_KEY
    environment["STRIPE_API_BASE"] = f"http://127.0.0.1:{fake_port}"
    environment["PYTHONPATH"] = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'platform'}"
    serve = ("uvicorn", "headrace.asgi:rest", "--lifespan", "off", "--no-access-log")
    process = subprocess.Popen(
        [sys.executable, "-m", *serve, "--port", str(port), "--log-level", "warning"],
        env=environment,
        cwd=REPOSITORY,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or _listens(url), timeout_s=120)
        assert process.poll() is None, "the web did not start"
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def _listens(url: str) -> bool:
    try:
        return httpx.get(f"{url}/stripe/events", timeout=5).status_code == 405
    except httpx.TransportError:
        return False


@pytest.fixture(scope="session")
def fake_of_the_web(web_url: str, fake_port: int) -> Iterator[Fake]:
    """A fake that sends its events to the web."""
    arguments = ("--webhook-url", f"{web_url}/stripe/events", "--webhook-secret", WEB_SECRETS[0])
    with fake_running(*arguments, port=fake_port) as running:
        yield running


@pytest.fixture
def fake(fake_of_the_web: Fake) -> Iterator[Fake]:
    """The same, behaving, as the Stripe of this process."""
    from django.test import override_settings

    from billing.facade import connect_stripe, use_payment_provider

    fake_of_the_web.control("reset")
    fake_of_the_web.control("webhooks", retry_ms=20)
    with override_settings(
        STRIPE_API_KEY=API_KEY,
        STRIPE_API_BASE=fake_of_the_web.base_url,
        STRIPE_WEBHOOK_SECRETS=WEB_SECRETS,
    ):
        connect_stripe()
        yield fake_of_the_web
        use_payment_provider(None)


@pytest.fixture
def payer(fake: Fake) -> "Payer":
    """acme, who has nothing yet and wants to pay."""
    from tests.billing.stripe.cast import make_payer

    return make_payer("acme", fake)


@pytest.fixture
def stranger(fake: Fake) -> "Payer":
    """globex, who must see nothing of it."""
    from tests.billing.stripe.cast import make_payer

    return make_payer("globex", fake)
