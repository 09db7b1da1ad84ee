"""The processes of a single-box house: what runs, in which environment, and when it is ready.

Pure data: starts nothing. The supervisor and the system tests run exactly these, in this order,
and stop them in reverse. Each process gets the secrets it needs and no others.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.standalone.data_folder import REPOSITORY, DataFolder
from headrace.standalone.embedded_servers import Addresses

START_TIMEOUT_S = 120
SECRET_VARIABLES = frozenset(
    {
        "DATABASE_URL",
        "DATABASE_OWNER_URL",
        "DATABASE_HOUSEKEEPER_URL",
        "REDIS_URL",
        "HEADRACE_SECRET_KEY",
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


@dataclass(frozen=True, slots=True)
class House:
    """What the processes of one house have in common. `extra` overrides any variable of theirs."""

    folder: DataFolder
    addresses: Addresses
    bundle: Path
    web_port: int
    extra: Mapping[str, str]

    @property
    def base_url(self) -> str:
        """What a client takes as `base_url`."""
        return f"http://127.0.0.1:{self.web_port}/v1"


def engine_threads() -> int:
    """A core is left to the web: a second busy thread on it would stall every step."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


def process_specs(house: House) -> tuple[ProcessSpec, ...]:
    """Engine, web, worker and beat, in starting order."""
    python = sys.executable
    celery = (python, "-m", "celery", "--quiet", "-A", "headrace.celery")
    app = django_environment(house) | {"DATABASE_URL": house.addresses.database_url}
    worker = app | {"DATABASE_HOUSEKEEPER_URL": house.addresses.database_housekeeper_url}
    drain_s = float(house.extra.get("HEADRACE_DRAIN_TIMEOUT_S") or 20)
    return (
        ProcessSpec(
            "engine",
            (
                *(python, "-m", "inference.server", "--bundle", str(house.bundle)),
                *("--socket", str(house.folder.engine_socket)),
                *("--journal", str(house.folder.journal)),
                *("--threads", str(engine_threads()), "--drain-s", str(int(drain_s))),
            ),
            _plain_environment(house),
            SocketAccepts(house.folder.engine_socket),
            drain_s + 10,
        ),
        ProcessSpec(
            "web",
            (python, "-m", "headrace.lifecycle.serve", "--port", str(house.web_port)),
            app,
            HttpAnswers(f"http://127.0.0.1:{house.web_port}/readyz"),
            drain_s + 10,
        ),
        ProcessSpec(
            "worker",
            (*celery, "worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "INFO"),
            worker,
            LineLogged(" ready."),
            drain_s + 10,
        ),
        ProcessSpec(
            "beat",
            (*celery, "beat", "--loglevel", "INFO"),
            app,
            LineLogged("beat: Starting"),
            10,
        ),
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
        **house.extra,
    }


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
        "HEADRACE_PORT": str(house.web_port),
    }
