"""What every test may use: the databases of this run, and the network it may not use.

The addresses of this run's servers are chosen before any test module is imported, so that
modules may import Django freely; the servers start when the first test asks for them.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_socket import socket_allow_hosts

from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers

SERVERS = pytest.StashKey[EmbeddedServers]()
FOLDER = pytest.StashKey[DataFolder]()


def pytest_configure(config: pytest.Config) -> None:
    """A data folder of its own for this run, and settings that point to it."""
    folder = DataFolder(Path(tempfile.mkdtemp(prefix="headrace-tests-")))
    servers = EmbeddedServers(folder, environment={}, durable=False)
    config.stash[SERVERS] = servers
    config.stash[FOLDER] = folder
    os.environ.update(servers.addresses().environment())
    os.environ["HEADRACE_DATA"] = str(folder.root)
    os.environ["HEADRACE_SECRET_KEY"] = folder.secrets().secret_key
    os.environ["DJANGO_SETTINGS_MODULE"] = "headrace.settings"


def pytest_unconfigure(config: pytest.Config) -> None:
    """The folder goes with the run."""
    shutil.rmtree(config.stash[FOLDER].root, ignore_errors=True)


def pytest_runtest_setup() -> None:
    """No test reaches beyond this machine."""
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(scope="session")
def django_database(pytestconfig: pytest.Config) -> Iterator[DataFolder]:
    """PostgreSQL and Valkey with roles and migrations, and Django set up on them.

    Aliases: `default` (role app), `owner`, `housekeeper`. Durability is off, nothing else differs
    from `make up`.
    """
    import django
    from django.core.management import call_command
    from django.db import connections

    servers = pytestconfig.stash[SERVERS]
    servers.start("the test run")
    try:
        django.setup()
        call_command("migrate", database="owner", interactive=False, verbosity=0)
        yield pytestconfig.stash[FOLDER]
        for connection in connections.all(initialized_only=True):
            connection.close()
            connection.close_pool()
    finally:
        servers.stop()
