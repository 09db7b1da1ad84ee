"""`manage.py preview_prices FILE`: what usage would have cost at prices that are not yet published.

Of our own events (`--from`, `--to`) or of another system's usage export (`--usage`). Run by the
operator, as the housekeeper; changes nothing.
"""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing import facade as billing
from billing.contracts import DraftBook, PreviewLine, PriceBookInvalid, UsageExportInvalid
from headrace.management.arguments import HOUSEKEEPER, moment
from headrace.management.price_files import draft_of
from tenants.facade import organization_slugs


class Command(BaseCommand):
    """One line for each tenant, model and tier, then the totals; all amounts exact."""

    help = "Show what usage would have cost under a draft price book."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which prices, and which usage."""
        parser.add_argument("file", help="the draft price book; - is standard input")
        parser.add_argument("--tenant", help="the slug of the only tenant it is for")
        parser.add_argument("--from", dest="start_at", type=moment, help="first moment")
        parser.add_argument("--to", dest="end_at", type=moment, help="the moment after the last")
        parser.add_argument("--usage", type=Path, help="a CSV usage export instead of our events")
        parser.add_argument(
            "--map",
            dest="renames",
            type=_rename,
            action="append",
            default=[],
            metavar="THEIRS=OURS",
            help="which model of ours stands for one in the export",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Prints the preview; fails when the usage is not named, or the export was not all read."""
        draft = draft_of(options["file"], options["tenant"])
        try:
            if options["usage"] is not None:
                self._export(draft, options["usage"], dict(options["renames"]))
            elif options["start_at"] is not None and options["end_at"] is not None:
                lines = billing.preview_events(
                    draft, options["start_at"], options["end_at"], using=HOUSEKEEPER
                )
                self._show(lines, draft.currency, "charged")
            else:
                raise CommandError("which usage? --from and --to, or --usage")
        except (PriceBookInvalid, UsageExportInvalid) as error:
            raise CommandError(str(error)) from error

    def _export(self, draft: DraftBook, path: Path, renames: dict[str, str]) -> None:
        try:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                preview = billing.preview_export(draft, lines, renames, using=HOUSEKEEPER)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: {error}") from error
        self._show(preview.lines, draft.currency, "at prices in force")
        for refusal in preview.refusals:
            self.stderr.write(f"Not read: {refusal}")
        self.stdout.write(f"{preview.rows_read} rows read, {preview.rows_refused} refused")
        if preview.rows_refused:
            raise CommandError("the export was not read in full")

    def _show(self, lines: Iterable[PreviewLine], currency: str, now: str) -> None:
        names = {str(id_): slug for id_, slug in organization_slugs(HOUSEKEEPER).items()}
        now_pico = draft_pico = unpriced = 0
        for line in lines:
            tenant = names.get(line.tenant, line.tenant) or "-"
            self.stdout.write(
                f"{tenant}  {line.model}  {line.tier}: {line.requests} requests,"
                f" {line.counts.prompt_tokens} input + {line.counts.output_tokens} output tokens,"
                f" {_amount(line.now_pico)} {now}, {_amount(line.draft_pico)} by the draft"
            )
            unpriced += line.draft_pico is None
            now_pico += line.now_pico or 0
            draft_pico += line.draft_pico or 0
        change = billing.decimal_string(draft_pico - now_pico)
        self.stdout.write(
            f"Total: {billing.decimal_string(now_pico)} {currency} {now},"
            f" {billing.decimal_string(draft_pico)} by the draft ({change})"
        )
        if unpriced:
            self.stdout.write(f"{unpriced} lines are of models without a price, and in no total")


def _amount(amount_pico: int | None) -> str:
    return "no price" if amount_pico is None else billing.decimal_string(amount_pico)


def _rename(text: str) -> tuple[str, str]:
    theirs, equals, ours = text.partition("=")
    if not (theirs and equals and ours):
        raise ArgumentTypeError(f"{text!r} is not THEIRS=OURS")
    return theirs, ours
