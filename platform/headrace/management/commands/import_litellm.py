"""`manage.py import_litellm`: bring tenants over from LiteLLM; their keys go on to work.

A dry run unless `--apply` is given: it says what would be made and what does not fit. Run by the
operator, as the housekeeper; docs/importing.md says what becomes of what.
"""

from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from headrace.importing.blueprint import Leftover, OrganizationPlan
from headrace.importing.carrying_out import carry_out
from headrace.importing.plan import plan_import
from headrace.importing.source import SourceUnreadable, read_database, read_folder
from headrace.management.arguments import credit_pico


def _model(text: str) -> tuple[str, str]:
    name, equals, meant = text.partition("=")
    if not (name and equals and meant):
        raise ArgumentTypeError(f"{text!r} is not THEIRS=OURS")
    return name, meant


class Command(BaseCommand):
    """Running it again imports what is new and leaves the rest as it is."""

    help = "Bring organizations, teams, users, keys and budgets over from LiteLLM (dry run first)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where from, and what their models mean here."""
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument("--dsn", help="LiteLLM's database; it is only read")
        source.add_argument(
            "--tables", type=Path, help="a folder of its tables as .json, .jsonl or .csv"
        )
        parser.add_argument("--apply", action="store_true", help="make it so")
        parser.add_argument(
            "--model",
            action="append",
            type=_model,
            default=[],
            metavar="THEIRS=OURS",
            help="what a model name of theirs means here; an alias in each organization",
        )
        parser.add_argument(
            "--credit-limit",
            type=credit_pico,
            metavar="AMOUNT",
            help="how far each new organization may go below zero; without it they need a top-up",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Reads, plans, tells, and with --apply carries out."""
        try:
            tables = (
                read_database(options["dsn"]) if options["dsn"] else read_folder(options["tables"])
            )
        except SourceUnreadable as error:
            raise CommandError(str(error)) from error
        plan = plan_import(tables, datetime.now(UTC))
        for organization in plan.organizations:
            self._tell(organization)
        leftovers = list(plan.leftovers)
        if options["apply"]:
            done = carry_out(plan, dict(options["model"]), options["credit_limit"])
            leftovers += done.leftovers
            self.stdout.write(
                f"made: {done.organizations} organizations, {done.projects} projects, "
                f"{done.members} members, {done.keys} keys, {done.quotas} limits of spending, "
                f"{done.aliases} aliases; {done.keys_here_already} keys were here already"
            )
        self._tell_leftovers(leftovers)
        if not options["apply"]:
            self.stdout.write("nothing was changed: this was a dry run; --apply makes it so")

    def _tell(self, plan: OrganizationPlan) -> None:
        keys = sum(len(project.keys) for project in plan.projects)
        self.stdout.write(
            f"organization {plan.slug} ({plan.display_name}): {len(plan.projects)} projects, "
            f"{keys} keys, {len(plan.members)} members"
        )
        for project in plan.projects:
            self.stdout.write(f"  project {project.name}: {len(project.keys)} keys")

    def _tell_leftovers(self, leftovers: list[Leftover]) -> None:
        self.stdout.write(f"{len(leftovers)} things do not fit" + (":" if leftovers else ""))
        for leftover in leftovers:
            self.stdout.write(f"  {leftover.kind} {leftover.name}: {leftover.why}")
