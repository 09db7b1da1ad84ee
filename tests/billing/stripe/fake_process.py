"""The fake in a process of its own, and the two ways to talk to it: as a client and as fate."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import stripe

from headrace.standalone.data_folder import REPOSITORY
from tests.house import free_port, wait_until

API_KEY = "sk_test_of_the_tests"


@dataclass
class Fake:
    """A running fake."""

    base_url: str
    process: subprocess.Popen[bytes]

    def client(self, api_key: str = API_KEY, **options: Any) -> stripe.StripeClient:
        """The stock client, pointed here; it never retries unless `options` say so."""
        return stripe.StripeClient(
            api_key,
            base_addresses={"api": self.base_url, "meter_events": self.base_url},
            **{"max_network_retries": 0, **options},
        )

    def control(self, name: str, **body: Any) -> Any:
        """POST /_fake/{name}; answers its JSON."""
        answer = httpx.post(f"{self.base_url}/_fake/{name}", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def deliveries(self) -> list[dict[str, Any]]:
        """What became of each delivery so far, oldest first."""
        answer = httpx.get(f"{self.base_url}/_fake/deliveries", timeout=60).json()
        return list(reversed(answer["data"]))


@contextmanager
def fake_running(*arguments: str, port: int | None = None) -> Iterator[Fake]:
    """Starts the fake with more arguments, and ends it."""
    port = port or free_port()
    command = [sys.executable, "-m", "billing.stripe_sync.fake", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--api-key", API_KEY, *arguments],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )
    fake = Fake(f"http://127.0.0.1:{port}", process)
    try:
        wait_until(lambda: process.poll() is not None or _answers(fake), timeout_s=120)
        assert process.poll() is None, "the fake did not start"
        yield fake
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(fake: Fake) -> bool:
    try:
        return httpx.get(f"{fake.base_url}/healthz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def state_argument(folder: Path) -> tuple[str, str]:
    """The argument that lets the fake's memory outlive it."""
    return "--state", str(folder / "stripe.json")
