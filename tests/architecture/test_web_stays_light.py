"""A web process never loads torch and stays small."""

import subprocess
import sys

import psutil

from tests.house import LiveHouse
from tests.prompts import chat

WEB_MEGABYTES_MAX = 180
HEAVY = ("torch", "triton", "kernels", "inference.engine", "inference.models", "gguf", "stripe")
BACK_OFFICE = ("tenants.admin", "billing.admin", "batch_jobs.admin", "headrace.back_office")


def test_nothing_of_engine_or_back_office_is_imported_by_web_or_worker() -> None:
    script = (
        "import sys, headrace.asgi, headrace.celery\n"
        "headrace.celery.app.loader.import_default_modules()\n"
        f"print([name for name in {HEAVY + BACK_OFFICE!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_web_process_that_has_worked_stays_small(house: LiveHouse) -> None:
    tenant = house.new_tenant()
    for _ in range(5):
        house.client(tenant.secret).chat.completions.create(
            model=house.model, messages=chat("Hello"), max_tokens=2
        )
    resident = psutil.Process(house.running.child("web").pid).memory_info().rss
    mapped = [entry.path for entry in psutil.Process(house.running.child("web").pid).memory_maps()]

    assert resident / 1024 / 1024 <= WEB_MEGABYTES_MAX
    assert not [path for path in mapped if "libtorch" in path]
