"""`manage.py summarize SOURCE`: the `headrace summarize` of the machine that the house runs on.

Takes address and key from what the seed left in the data folder, and is a client like any other
from there on: it has no rights beyond the key's, and needs the house to run.
"""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from headrace.command_line.arguments import add_connection_arguments, add_summarize_arguments
from headrace.command_line.main import run


class Command(BaseCommand):
    """Exits as `headrace summarize` does."""

    help = "Summarise many documents at batch price, as a tenant of the demo data."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Those of `headrace summarize`, and whose key to take."""
        add_summarize_arguments(parser)
        add_connection_arguments(parser)
        parser.add_argument("--tenant", default="acme", help="a tenant of the demo data (acme)")

    def handle(self, *_: Any, **options: Any) -> None:
        """Hands over to the command; raises CommandError where there is no demo data."""
        given = Namespace(**options, command="summarize", program="manage.py summarize")
        base_url, key = given.base_url, given.key
        if not base_url or not key:
            demo = _demo(Path(settings.DATA_FOLDER) / "demo.json", given.tenant)
            base_url, key = base_url or demo[0], key or demo[1]
        sys.exit(run(given, base_url, key))


def _demo(file: Path, tenant: str) -> tuple[str, str]:
    """The address of the house and the tenant's key."""
    try:
        demo = json.loads(file.read_text())
        return str(demo["base_url"]), str(demo["keys"][tenant])
    except FileNotFoundError as error:
        raise CommandError(f"no {file}: give --base-url and --key") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{file} has no key of {tenant!r}: give one with --key") from error
