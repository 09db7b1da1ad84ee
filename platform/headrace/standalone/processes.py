"""The processes of a single-box house: what runs, in which environment, and when it is ready.

Pure data: starts nothing. The supervisor and the system tests run exactly these, in this order,
and stop them in reverse. Each process gets the secrets it needs and no others.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.standalone.data_folder import REPOSITORY, DataFolder, SetUpError
from headrace.standalone.embedded_servers import Addresses
from headrace.standalone.loopback_server import free_port

START_TIMEOUT_S = 120
DRAIN_DEFAULT_S = 20
ABORT_DEFAULT_S = 30
CLOSE_GRACE_S = 10
"""What a process may take beyond its own deadlines before it is killed."""
ROOT_WARNING = "You're running the worker with superuser privileges"
"""Celery's, meant for pickled messages; ours are JSON, from a broker with a password."""
SECRET_VARIABLES = frozenset(
    {
        "DATABASE_URL",
        "DATABASE_OWNER_URL",
        "DATABASE_HOUSEKEEPER_URL",
        "REDIS_URL",
        "HEADRACE_SECRET_KEY",
        "STRIPE_API_KEY",
        "STRIPE_WEBHOOK_SECRETS",
        "HEADRACE_SMTP_PASSWORD",
        "HEADRACE_OIDC_PROVIDERS",
        "HEADRACE_SAML_PROVIDERS",
    }
)


@dataclass(frozen=True, slots=True)
class SocketAccepts:
    """Ready when the unix socket accepts a connection."""

    path: Path


@dataclass(frozen=True, slots=True)
class HttpAnswers:
    """Ready when a GET answers 200."""

    url: str


@dataclass(frozen=True, slots=True)
class LineLogged:
    """Ready when a line of output contains the text."""

    text: str


Readiness = SocketAccepts | HttpAnswers | LineLogged


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process: its command line, its whole environment, its readiness and its grace."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    ready: Readiness
    stop_grace_s: float
    hint: str = ""
    """What of the operator's making may be why it does not start."""


@dataclass(frozen=True, slots=True)
class House:
    """What the processes of one house have in common. `extra` overrides any variable of theirs."""

    folder: DataFolder
    addresses: Addresses
    bundle: Path
    web_port: int
    extra: Mapping[str, str]
    stripe_port: int = field(default_factory=free_port)
    """Of the stand-in for Stripe, which runs where no key is set and only this machine comes."""

    @property
    def base_url(self) -> str:
        """What a client takes as `base_url`."""
        return f"http://127.0.0.1:{self.web_port}/v1"

    @property
    def public_url(self) -> str:
        """How browsers reach it."""
        return _variable(self, "HEADRACE_PUBLIC_URL") or f"http://127.0.0.1:{self.web_port}"


def process_specs(house: House) -> tuple[ProcessSpec, ...]:
    """Engine, web, worker and beat, in starting order, with a stand-in for Stripe where no key is
    set and the house is not public, and a back office where a port is given for it. Raises
    SetUpError for a bad variable.
    """
    python = sys.executable
    celery = (python, "-m", "celery", "--quiet", "-A", "headrace.celery")
    app = django_environment(house) | {"DATABASE_URL": house.addresses.database_url}
    worker = app | {"DATABASE_HOUSEKEEPER_URL": house.addresses.database_housekeeper_url}
    if password := _variable(house, "HEADRACE_SMTP_PASSWORD"):
        worker["HEADRACE_SMTP_PASSWORD"] = password
    worker["PYTHONWARNINGS"] = ",".join(
        filter(None, [worker.get("PYTHONWARNINGS"), f"ignore:{ROOT_WARNING}"])
    )
    drain_s = _seconds(house, "HEADRACE_DRAIN_TIMEOUT_S", DRAIN_DEFAULT_S)
    abort_s = _seconds(house, "HEADRACE_ABORT_TIMEOUT_S", ABORT_DEFAULT_S)
    engine_options = _variable(house, "HEADRACE_ENGINE_OPTIONS")
    return (
        ProcessSpec(
            "engine",
            (
                *(python, "-m", "inference.server", "--bundle", str(house.bundle)),
                *("--socket", str(house.folder.engine_socket)),
                *("--journal", str(house.folder.journal)),
                *("--drain-s", str(drain_s), *_words("HEADRACE_ENGINE_OPTIONS", engine_options)),
            ),
            _plain_environment(house),
            SocketAccepts(house.folder.engine_socket),
            drain_s + CLOSE_GRACE_S,
            f"HEADRACE_ENGINE_OPTIONS is {engine_options!r}" if engine_options else "",
        ),
        *((_stripe_fake(house),) if _has_stand_in(house) else ()),
        ProcessSpec(
            "web",
            (python, "-m", "headrace.lifecycle.serve", "--port", str(house.web_port)),
            app | _identity_providers(house),
            HttpAnswers(f"http://127.0.0.1:{house.web_port}/readyz"),
            # Streams that outlast the drain are aborted then, and each gets its error event.
            drain_s + abort_s + CLOSE_GRACE_S,
        ),
        ProcessSpec(
            "worker",
            (*celery, "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "INFO"),
            worker,
            LineLogged("event=worker_ready"),
            drain_s + CLOSE_GRACE_S,
        ),
        ProcessSpec(
            "beat",
            (*celery, "beat", "--loglevel", "INFO"),
            app,
            LineLogged("event=beat_ready"),
            CLOSE_GRACE_S,
        ),
        *_back_office(house, app),
    )


def set_up_environment(house: House) -> dict[str, str]:
    """For migrations and the seed, which alone act as every role."""
    return django_environment(house) | house.addresses.environment()


def django_environment(house: House) -> dict[str, str]:
    """What every Django process gets; no database role yet."""
    return _plain_environment(house) | {
        "DJANGO_SETTINGS_MODULE": "headrace.settings",
        "HEADRACE_SECRET_KEY": os.environ.get("HEADRACE_SECRET_KEY")
        or house.folder.secrets().secret_key,
        "REDIS_URL": house.addresses.redis_url,
        "HEADRACE_PUBLIC_URL": house.public_url,
        **_stripe_environment(house),
        **house.extra,
    }


def _has_stand_in(house: House) -> bool:
    """Not in public: whoever reaches the stand-in pays in what they like."""
    is_public = _variable(house, "HEADRACE_PUBLIC_URL").startswith("https:")
    return not is_public and not _variable(house, "STRIPE_API_KEY")


def _stripe_environment(house: House) -> dict[str, str]:
    """The operator's Stripe, if any, or the stand-in under secrets of this house."""
    names = ("STRIPE_API_KEY", "STRIPE_API_BASE", "STRIPE_WEBHOOK_SECRETS")
    if not _has_stand_in(house):
        return {name: _variable(house, name) for name in names}
    secret = house.folder.secrets().secret_key
    key, webhook = (
        hashlib.sha256(f"{use} of {secret}".encode()).hexdigest()[:32] for use in names[::2]
    )
    base = f"http://127.0.0.1:{house.stripe_port}"
    return dict(zip(names, (f"sk_test_{key}", base, f"whsec_{webhook}"), strict=True))


def _identity_providers(house: House) -> dict[str, str]:
    """Who signs people in; the web process alone speaks to them."""
    names = ("HEADRACE_OIDC_PROVIDERS", "HEADRACE_SAML_PROVIDERS")
    return {name: _variable(house, name) for name in names}


def _stripe_fake(house: House) -> ProcessSpec:
    port = house.stripe_port
    return ProcessSpec(
        "stripe_fake",
        (
            *(sys.executable, "-m", "billing.stripe_sync.fake", "--port", str(port)),
            *("--webhook-url", f"http://127.0.0.1:{house.web_port}/stripe/events"),
            *("--state", str(house.folder.root / "stripe_fake.json")),
        ),
        _plain_environment(house) | _stripe_environment(house),
        HttpAnswers(f"http://127.0.0.1:{port}/healthz"),
        CLOSE_GRACE_S,
    )


def admin_url(house: House) -> str:
    """Of the back office, on loopback; empty where HEADRACE_ADMIN_PORT asks for none."""
    port = _variable(house, "HEADRACE_ADMIN_PORT")
    return f"http://127.0.0.1:{port}/" if port else ""


def _back_office(house: House, app: Mapping[str, str]) -> tuple[ProcessSpec, ...]:
    port = _variable(house, "HEADRACE_ADMIN_PORT")
    if not port:
        return ()
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        raise SetUpError(f"HEADRACE_ADMIN_PORT must be a port number, not {port!r}")
    no_payments = dict.fromkeys(_stripe_environment(house), "")
    housekeeper = {"DATABASE_HOUSEKEEPER_URL": house.addresses.database_housekeeper_url}
    return (
        ProcessSpec(
            "back_office",
            (sys.executable, "-m", "headrace.back_office", "--port", port),
            {**app, **no_payments, **housekeeper},
            HttpAnswers(f"{admin_url(house)}accounts/login/"),
            CLOSE_GRACE_S,
            f"HEADRACE_ADMIN_PORT is {port}",
        ),
    )


def _variable(house: House, name: str) -> str:
    return house.extra.get(name) or os.environ.get(name) or ""


def _seconds(house: House, name: str, default: int) -> int:
    text = _variable(house, name)
    if text and not text.isdecimal():
        raise SetUpError(f"{name} must be a whole number of seconds, not {text!r}")
    return int(text or default)


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SetUpError(f"{name} cannot be split into words ({error}): {text!r}") from error


def _plain_environment(house: House) -> dict[str, str]:
    """Ours without the secrets, and where things lie."""
    kept = {key: value for key, value in os.environ.items() if key not in SECRET_VARIABLES}
    source_roots = [str(REPOSITORY), str(REPOSITORY / "platform"), kept.get("PYTHONPATH", "")]
    return kept | {
        "PYTHONPATH": os.pathsep.join(filter(None, source_roots)),
        "PYTHONUNBUFFERED": "1",
        "HEADRACE_DATA": str(house.folder.root),
        "HEADRACE_ENGINE_SOCKET": str(house.folder.engine_socket),
        "HEADRACE_MODEL_BUNDLE": str(house.bundle),
    }
