#!/usr/bin/env python3
"""Django's command line for this repository.

Runs with the virtual environment's packages whatever python called it. Without a DATABASE_URL it
uses the embedded servers of HEADRACE_DATA: those that run, or its own for as long as the command
takes. Commands that touch no database start none.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.standalone.data_folder import DataFolder

REPOSITORY = Path(__file__).resolve().parent
VIRTUAL_ENVIRONMENT = REPOSITORY / ".venv"
WITHOUT_DATABASE = frozenset({"help", "version", "--help", "-h", "--version", "check"})


def main() -> int:
    """Finds the packages and the servers, then hands over to Django."""
    python = VIRTUAL_ENVIRONMENT / "bin" / "python"
    if Path(sys.prefix).resolve() != VIRTUAL_ENVIRONMENT.resolve() and os.access(python, os.X_OK):
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - our own interpreter
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "platform")]
    try:
        from headrace.standalone.data_folder import SetUpError
    except ImportError as error:
        print(f"{error}: run `make up` or `make check` once, which install .venv", file=sys.stderr)
        return 1
    try:
        return _run(sys.argv)
    except SetUpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(argv: list[str]) -> int:
    from headrace.standalone.data_folder import DataFolder
    from headrace.standalone.embedded_servers import servers_for_command
    from headrace.standalone.environment_file import load_environment_file

    load_environment_file()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "headrace.settings")
    command = argv[1] if len(argv) > 1 else "help"
    # It only compares models with files when it may write nothing.
    compares_only = command == "makemigrations" and {"--check", "--dry-run"} & set(argv)
    if command in WITHOUT_DATABASE or compares_only:
        return _execute_without_database(argv)
    folder = DataFolder.from_environment()
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return _execute_with(folder, {}, argv)
    with servers_for_command(folder, f"`manage.py {command}`") as addresses:
        return _execute_with(folder, addresses.environment(), argv)


def _execute_with(folder: "DataFolder", servers: dict[str, str], argv: list[str]) -> int:
    """What is set, but empty, counts as missing."""
    for name, value in servers.items():
        os.environ[name] = os.environ.get(name) or value
    if not os.environ.get("HEADRACE_SECRET_KEY"):
        folder.create()
        os.environ["HEADRACE_SECRET_KEY"] = folder.secrets().secret_key
    return _execute(argv)


def _execute_without_database(argv: list[str]) -> int:
    from django.conf import settings

    os.environ.setdefault("DATABASE_URL", "postgres://nobody@127.0.0.1:9/none")
    os.environ.setdefault("HEADRACE_SECRET_KEY", "of-no-use-because-no-request-is-served-here")
    settings.DATABASES = {"default": {"ENGINE": "django.db.backends.dummy"}}
    return _execute(argv)


def _execute(argv: list[str]) -> int:
    from django.core.management import execute_from_command_line

    execute_from_command_line(argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
