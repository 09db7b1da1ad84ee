"""`manage.py replay`: rebuild every balance from the log and compare; exit 1 when one differs.

Needs the housekeeper's database alias, and the owner's unless `--into` names another database.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.facade import replay


class Command(BaseCommand):
    """Prints account by account what differs."""

    help = "Rebuild all balances from events, ledger, grants and holds, and compare them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to."""
        parser.add_argument(
            "--into",
            metavar="DSN",
            help="an empty database for the replayed log, which stays there; without it, temporary",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Raises CommandError (exit status 1) with the number of differences."""
        report = replay(options["into"])
        for difference in report.differences:
            self.stdout.write(difference)
        if report.differences:
            raise CommandError(f"{len(report.differences)} of {report.accounts} balances differ")
        self.stdout.write(
            f"{report.entries} entries come to the {report.accounts} balances of the books."
        )
