"""`manage.py reconcile`: print every discrepancy in the books; exit 1 when there is one.

Needs the housekeeper's database alias. Changes nothing.
"""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.facade import reconcile


class Command(BaseCommand):
    """Check the invariants of money over the whole database."""

    help = "Check that ledger, balances, holds, usage events and quota counters agree."

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Raises CommandError (exit status 1) with the number of discrepancies."""
        findings = reconcile()
        for finding in findings:
            self.stdout.write(finding)
        if findings:
            raise CommandError(f"{len(findings)} discrepancies")
        self.stdout.write("The books agree.")
