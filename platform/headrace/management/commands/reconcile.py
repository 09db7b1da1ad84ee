"""`manage.py reconcile`: print what every invariant of the books came to; exit 1 when one broke.

Needs the housekeeper's database alias. Changes nothing of the books; the operator's pages show what
the last run came to.
"""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from headrace.operator_console.reports.books import reconcile_and_keep


class Command(BaseCommand):
    """Check the invariants of money over the whole database."""

    help = (
        "Check that events, ledger, balances, holds, quotas, rollups, bulk jobs and audits agree."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Raises CommandError (exit status 1) with the number of invariants broken."""
        reports = reconcile_and_keep()
        for report in reports:
            verdict, many = ("BROKEN", "some") if report.findings else ("ok", "none")
            self.stdout.write(
                f"{verdict:6} {report.rows:>10} rows of {report.table}, {many} where:"
                f" {report.broken_when}"
            )
            for finding in report.findings:
                self.stdout.write(f"       {finding}")
        broken = sum(bool(report.findings) for report in reports)
        if broken:
            raise CommandError(f"{broken} of {len(reports)} invariants are broken")
        self.stdout.write(f"The books agree: {len(reports)} invariants hold.")
