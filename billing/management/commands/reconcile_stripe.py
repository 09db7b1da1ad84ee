"""`manage.py reconcile_stripe [--day 2026-05-04]`: Stripe's sums of a day beside ours.

Reads both, changes neither. Run by operators; the beat does the same every day.
"""

from argparse import ArgumentParser
from datetime import UTC, date, datetime, timedelta
from typing import Any

import stripe
from django.core.management.base import BaseCommand, CommandError

from billing.contracts import TopUpUnavailable
from billing.pricing import decimal_string
from billing.stripe_sync.comparing import compare
from billing.stripe_sync.refunds import overdue_refunds


class Command(BaseCommand):
    """Prints what differs and exits non-zero if anything does."""

    help = "Compare Stripe's meters of one UTC day with ours, and name refunds it has not taken."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The day; yesterday unless named."""
        parser.add_argument("--day", type=date.fromisoformat, help="a UTC day, as 2026-05-04")

    def handle(self, *args: Any, **options: Any) -> None:
        """One line a difference, then the sums."""
        day = options["day"] or (datetime.now(UTC) - timedelta(days=1)).date()
        try:
            comparison = compare(day)
            overdue = overdue_refunds(datetime.now(UTC))
        except (stripe.StripeError, TopUpUnavailable) as error:
            raise CommandError(f"Stripe cannot be asked: {error}") from error
        for each in comparison.mismatches:
            self.stdout.write(
                f"{each.organization_id} {each.model} {each.token_class}:"
                f" ours {each.our_tokens}, theirs {each.their_tokens}"
            )
        untold = comparison.used_tokens - comparison.told_tokens
        self.stdout.write(
            f"{day}: {comparison.sums} sums, {comparison.used_tokens} tokens used,"
            f" {comparison.told_tokens} told, {len(comparison.mismatches)} differ"
        )
        for refund in overdue:
            self.stdout.write(
                f"{refund.organization_id} top-up {refund.top_up_id}: Stripe has not taken a refund"
                f" of {decimal_string(refund.amount_pico)} {refund.currency}"
            )
        if comparison.mismatches or untold or overdue:
            raise CommandError("Stripe and the books differ")
