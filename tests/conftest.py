"""What every test may use: databases, a model, a house; and the network it may not use.

The addresses of this run's servers are chosen before any test module is imported, so that
modules may import models freely; the servers start when the first test asks for them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import django
import pytest
from pytest_socket import socket_allow_hosts

from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import Addresses, EmbeddedServers
from headrace.standalone.model_fetch import MODEL, fetch_model
from headrace.standalone.processes import House
from headrace.standalone.running_house import RunningHouse
from tests.house import METRICS_PORT, OPEN_CLIENTS, LiveHouse, OwnHouse, free_port

SERVERS = pytest.StashKey[EmbeddedServers]()
FOLDER = pytest.StashKey[DataFolder]()
MODEL_FOLDER = pytest.StashKey[DataFolder]()
ALIASES = {
    "default": "DATABASE_URL",
    "owner": "DATABASE_OWNER_URL",
    "housekeeper": "DATABASE_HOUSEKEEPER_URL",
}
RATES = ("ACTOR_READS", "ACTOR_WRITES", "ADDRESS_READS", "ADDRESS_WRITES", "SIGN_IN_FORMS")
"""All tests come from one address; those of these limits set them."""
RECENT_SIGN_IN_S = 3000
"""Longer than a run, and less than the hour ago that tests call long."""
QUICK_SWEEPS = {"HEADRACE_SWEEP_S": "1"}


def pytest_configure(config: pytest.Config) -> None:
    """A data folder of its own for this run, and settings that point to it."""
    model_folder = DataFolder.from_environment()
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="headrace-tests-")))
    servers = EmbeddedServers(folder, environment={}, durable=False)
    config.stash[MODEL_FOLDER] = model_folder
    config.stash[SERVERS] = servers
    config.stash[FOLDER] = folder
    os.environ.update(servers.addresses().environment())
    os.environ |= {f"HEADRACE_{name}_PER_MINUTE_MAX": str(10**9) for name in RATES}
    os.environ["HEADRACE_RECENT_SIGN_IN_S"] = str(RECENT_SIGN_IN_S)
    os.environ["HEADRACE_DATA"] = str(folder.root)
    os.environ["HEADRACE_SECRET_KEY"] = folder.secrets().secret_key
    os.environ["HEADRACE_MODEL_BUNDLE"] = os.environ.get(
        "HEADRACE_TEST_BUNDLE", str(model_folder.models / MODEL)
    )
    os.environ["DJANGO_SETTINGS_MODULE"] = "headrace.settings"
    django.setup()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The folder goes with the run."""
    shutil.rmtree(config.stash[FOLDER].root, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the running house come last: until then nobody's beat sweeps, counts or tends what
    a test has aged or tampered with in the database that they share."""
    items.sort(key=lambda item: isinstance(item, pytest.Function) and "house" in item.fixturenames)


def pytest_runtest_setup() -> None:
    """No test reaches beyond this machine."""
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(autouse=True)
def clients_closed() -> Iterator[None]:
    """Closes the synchronous clients that a test took from a house."""
    yield
    while OPEN_CLIENTS:
        OPEN_CLIENTS.pop().close()


@pytest.fixture(scope="session")
def bundle_folder(pytestconfig: pytest.Config) -> Path:
    """The real model's bundle: HEADRACE_TEST_BUNDLE, or fetched once into the data folder."""
    if "HEADRACE_TEST_BUNDLE" in os.environ:
        return Path(os.environ["HEADRACE_TEST_BUNDLE"])
    model_folder = pytestconfig.stash[MODEL_FOLDER]
    model_folder.create()
    return fetch_model(model_folder)


@pytest.fixture(scope="session")
def django_database(pytestconfig: pytest.Config) -> Iterator[DataFolder]:
    """PostgreSQL and Valkey with roles and migrations, as a fresh house has them.

    Aliases: `default` (role app), `owner`, `housekeeper`. Durability is off, nothing else differs
    from `make up`.
    """
    servers = pytestconfig.stash[SERVERS]
    servers.start("the test run")
    try:
        _migrate()
        yield pytestconfig.stash[FOLDER]
        _close_pools()
    finally:
        servers.stop()


@pytest.fixture(scope="session")
def running_servers(pytestconfig: pytest.Config, django_database: DataFolder) -> EmbeddedServers:
    """Those of this run, for a test that starts a process of its own on them."""
    return pytestconfig.stash[SERVERS]


@pytest.fixture(scope="session")
def house(
    pytestconfig: pytest.Config, django_database: DataFolder, bundle_folder: Path
) -> Iterator[LiveHouse]:
    """Engine, web, worker and beat on the databases of this run. Kill nothing here: `own_house`."""
    servers = pytestconfig.stash[SERVERS]
    with _live_house(django_database, servers, bundle_folder, QUICK_SWEEPS) as live:
        yield live


@pytest.fixture
def own_house(
    django_database: DataFolder, bundle_folder: Path, tmp_path: Path
) -> Iterator[OwnHouse]:
    """Makes one house with servers of its own, for tests that kill; see OwnHouse.

    While it stands, the database aliases of this process point to it.
    """
    with ExitStack() as stack:

        def make(**environment: str) -> LiveHouse:
            folder = DataFolder(tmp_path / "house")
            servers = EmbeddedServers(folder, environment={}, durable=False)
            stack.callback(servers.stop)
            addresses = servers.start("a test")
            stack.enter_context(_databases_at(addresses))
            _migrate()
            given = QUICK_SWEEPS | environment
            return stack.enter_context(_live_house(folder, servers, bundle_folder, given))

        yield make


@contextmanager
def _live_house(
    folder: DataFolder, servers: EmbeddedServers, bundle_folder: Path, extra: Mapping[str, str]
) -> Iterator[LiveHouse]:
    from headrace.standalone.seed import seed_demo
    from inference.tokenizer.bundle import load_bundle

    bundle = load_bundle(bundle_folder)
    given = {METRICS_PORT: str(free_port()), **extra}
    house = House(folder, servers.addresses(), bundle_folder, free_port(), given)
    seed_demo(folder, bundle, house.base_url)
    running = RunningHouse(house, servers)
    try:
        running.start_all()
        yield LiveHouse(running, bundle.name)
    finally:
        running.stop_processes()


@contextmanager
def _databases_at(addresses: Addresses) -> Iterator[None]:
    from django.db import connections

    before = {alias: dict(connections.settings[alias]) for alias in ALIASES}
    urls = addresses.environment()
    _close_pools()
    for alias, variable in ALIASES.items():
        url = urlsplit(urls[variable])
        connections.settings[alias].update(PORT=str(url.port), PASSWORD=url.password)
    try:
        yield
    finally:
        _close_pools()
        for alias in ALIASES:
            connections.settings[alias].update(before[alias])


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", database="owner", interactive=False, verbosity=0)


def _close_pools() -> None:
    from django.db import connections
    from django.db.backends.postgresql.base import DatabaseWrapper

    for alias in ALIASES:
        connection = connections[alias]
        assert isinstance(connection, DatabaseWrapper)
        connection.close()
        connection.close_pool()
