"""Money on the hot path: hold and settle through the SQL functions, beside what the disk allows.

`python -m benchmarks.holds` starts a PostgreSQL of its own with durable commits and drives it from
this process, so the client's work is in every number.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
from django.core.management import call_command

from benchmarks.report import print_report
from headrace.standalone.data_folder import DataFolder
from headrace.standalone.embedded_servers import EmbeddedServers


@contextmanager
def fresh_database() -> Iterator[None]:
    """PostgreSQL and Valkey in a folder that goes afterwards, migrated, and Django set up."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder_name:
        folder = DataFolder(Path(folder_name))
        servers = EmbeddedServers(folder, environment={})
        os.environ.update(servers.start("a benchmark").environment())
        os.environ["HEADRACE_DATA"] = folder_name
        os.environ["HEADRACE_SECRET_KEY"] = folder.secrets().secret_key
        os.environ["DJANGO_SETTINGS_MODULE"] = "headrace.settings"
        try:
            django.setup()
            call_command("migrate", database="owner", interactive=False, verbosity=0)
            yield
        finally:
            servers.stop()


def main() -> None:
    """Prints the table."""
    with fresh_database():
        # Its modules have models, which cannot be imported before Django is set up.
        from benchmarks.hold_load import REQUESTS, measure

        print_report(f"Hold and settle, {REQUESTS} requests at once", measure(), threads=0)


if __name__ == "__main__":
    main()
