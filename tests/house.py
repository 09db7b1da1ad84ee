"""A house for tests: the very processes of `make up`, and a hand on each of them.

`LiveHouse` wraps a running house with what tests need: tenants of their own, stock clients,
metrics, kills and restarts. Nothing here waits by sleeping a fixed time.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

import httpx
import openai

from headrace.standalone.data_folder import REPOSITORY, DataFolder
from headrace.standalone.loopback_server import free_port
from headrace.standalone.processes import House, set_up_environment
from headrace.standalone.running_house import RunningHouse

Value = TypeVar("Value")
POLL_S = 0.02
CLIENT_TIMEOUT_S = 120
CREDIT_PICO = 5 * 10**12
METRICS_PORT = "HEADRACE_METRICS_PORT"
METRIC_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})? ([\d.eE+-]+)$", re.MULTILINE)

OPEN_CLIENTS: list[openai.OpenAI | httpx.Client] = []
"""Closed after each test by a fixture."""

__all__ = ["OPEN_CLIENTS", "LiveHouse", "Tenant", "free_port", "new_tenant", "wait_until"]


def wait_until(condition: Callable[[], Value], timeout_s: float = 30) -> Value:
    """The first true value of `condition`; AssertionError when none comes in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not so within {timeout_s} s: {condition}"
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant of one test: its ids and the secret of its key."""

    slug: str
    organization_id: UUID
    project_id: UUID
    key_id: UUID
    secret: str


def new_tenant(
    credit_pico: int = CREDIT_PICO,
    *,
    daily_tokens_max: int | None = None,
    **limits: Any,
) -> Tenant:
    """A fresh tenant with a project, a key and `credit_pico`, in this process's database.

    `limits` are those of `tenants.facade.create_organization` (requests_per_minute_max, ...).
    """
    from billing import facade as billing
    from tenants import facade as tenants

    slug = f"tenant-{uuid4().hex[:12]}"
    organization = tenants.create_organization(slug, slug, **limits)
    organization_id = organization.organization_id
    billing.open_account(organization_id)
    if credit_pico:
        billing.grant_credit(organization_id, credit_pico, f"credit-{slug}")
    if daily_tokens_max is not None:
        billing.set_daily_tokens(organization_id, daily_tokens_max)
    project_id = tenants.create_project(organization_id, "test", using="housekeeper")
    key = tenants.issue_key(organization_id, project_id, "test", using="housekeeper")
    return Tenant(slug, organization_id, project_id, key.key_id, key.secret)


class LiveHouse:
    """A running house: engine, web, worker and beat on the databases of this test process."""

    def __init__(self, running: RunningHouse, model: str) -> None:
        self.running = running
        self.model = model

    @property
    def house(self) -> House:
        return self.running.house

    @property
    def folder(self) -> DataFolder:
        return self.running.house.folder

    @property
    def base_url(self) -> str:
        """Ends in /v1."""
        return self.running.house.base_url

    @property
    def root_url(self) -> str:
        """Without /v1, for health."""
        return self.base_url.removesuffix("/v1")

    @property
    def stripe_url(self) -> str:
        """Of the stand-in for Stripe, where people pay."""
        return f"http://127.0.0.1:{self.house.stripe_port}"

    @property
    def metrics_url(self) -> str:
        """Of the web process' metrics, which have a port of their own."""
        return f"http://127.0.0.1:{self.house.extra[METRICS_PORT]}/metrics"

    def new_tenant(self, credit_pico: int = CREDIT_PICO, **limits: Any) -> Tenant:
        """See `new_tenant` of this module."""
        return new_tenant(credit_pico, **limits)

    def client(self, secret: str, **options: Any) -> openai.OpenAI:
        """The stock client, validating strictly and never retrying unless `options` say so."""
        client = openai.OpenAI(**{**_client_options(self.base_url, secret), **options})
        OPEN_CLIENTS.append(client)
        return client

    def async_client(self, secret: str, **options: Any) -> openai.AsyncOpenAI:
        """The stock asynchronous client, under the same rules; close it with `async with`."""
        return openai.AsyncOpenAI(**_client_options(self.base_url, secret), **options)

    def http(self, secret: str | None = None) -> httpx.Client:
        """A bare HTTP client on the root URL, for what a stock client would never send."""
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = httpx.Client(
            base_url=self.root_url, headers=headers, timeout=CLIENT_TIMEOUT_S, trust_env=False
        )
        OPEN_CLIENTS.append(client)
        return client

    def metrics(self) -> Mapping[str, float]:
        """Each metric of the web process (and, through it, of the engine), summed over labels."""
        with self.http() as client:
            text = client.get(self.metrics_url).raise_for_status().text
        sums: dict[str, float] = {}
        for name, value in METRIC_LINE.findall(text):
            sums[name] = sums.get(name, 0) + float(value)
        return sums

    def engine_is_idle(self) -> bool:
        """Whether the engine runs nothing, queues nothing and holds no block for anybody."""
        now = self.metrics()
        return now.get("vllm:num_requests_running") == 0 == now.get("vllm:num_requests_waiting")

    def receipt(self, tenant: Tenant, request_id: str) -> dict[str, Any]:
        """The receipt of a request, as its tenant sees it."""
        with self.http(tenant.secret) as client:
            answer = client.get(f"/v1/usage/requests/{request_id}").raise_for_status()
            receipt: dict[str, Any] = answer.json()
            return receipt

    def manage(self, *arguments: str, timeout_s: float = 120) -> str:
        """Runs `manage.py` as an operator would, against this house; returns its output.

        AssertionError when it fails.
        """
        done = subprocess.run(
            [sys.executable, str(REPOSITORY / "manage.py"), *arguments],
            env=set_up_environment(self.house),
            timeout=timeout_s,
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def kill(self, name: str, **how: Any) -> None:
        """Sends SIGKILL (or `number=`) to engine, web, worker or beat and waits for its end."""
        self.running.kill(name, **how)

    def start(self, name: str) -> None:
        """Starts a process that was killed, and waits until it is ready."""
        self.running.start(name)


OwnHouse = Callable[..., LiveHouse]
"""`own_house(HEADRACE_HOLD_LAPSE_S="1", ...)`: a house of one test, in that environment."""


def _client_options(base_url: str, secret: str) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "api_key": secret,
        "max_retries": 0,
        "timeout": CLIENT_TIMEOUT_S,
        "_strict_response_validation": True,
    }
