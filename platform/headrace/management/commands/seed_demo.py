"""`manage.py seed_demo`: the demo's tenants, people, keys, prices and history. Idempotent.

Called by the supervisor after the migrations; prints no secret (they are in `demo.json`).
"""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from headrace.standalone.data_folder import DataFolder
from headrace.standalone.seed import seed_demo
from inference.tokenizer.bundle import load_bundle


class Command(BaseCommand):
    """Needs the housekeeper's database URL."""

    help = "Create the demo's tenants, people, keys and prices where they are missing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The address that `demo.json` tells, and whether there is a past to make up."""
        parser.add_argument("--base-url", required=True, help="what clients take as base_url")
        parser.add_argument(
            "--history", action="store_true", help="give acme, if it is new, a month of usage"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Seeds and says where the keys are."""
        folder = DataFolder(settings.DATA_FOLDER)
        seed_demo(
            folder,
            load_bundle(settings.MODEL_BUNDLE),
            options["base_url"],
            with_history=options["history"],
        )
        self.stdout.write(f"the demo's keys and passwords are in {folder.demo_file}")
