"""Rows of files, batches and summarisation jobs: all by project key."""

import io
from typing import Any
from uuid import UUID

from django.utils import timezone

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import Owner
from batch_jobs.facade import SummaryOrder
from batch_jobs.models import BulkItem, BulkJob
from billing.contracts import ServiceTier
from tests.billing.cast import make_offer
from tests.isolation.matrix import PROJECT_KEY, Act, Arguments, Json, Row
from tests.isolation.sides import Side


def uploaded(owner: Owner) -> UUID:
    """A file of that project's."""
    content = io.BytesIO(b"what a project keeps")
    return batch_jobs.facade.store_upload(owner, "batch", "in.jsonl", content, None).file_id


def owner_of(side: Side) -> Owner:
    """The first project."""
    return Owner(side.organization_id, side.project_id, side.key_id)


def sibling_of(side: Side) -> Owner:
    """The second project."""
    key = tenants.facade.issue_key(
        side.organization_id, side.sibling_project_id, "matrix", using="housekeeper"
    )
    return Owner(side.organization_id, side.sibling_project_id, key.key_id)


def file(side: Side) -> Arguments:
    """One of the first project's."""
    return {"file_id": f"file-{uploaded(owner_of(side)).hex}"}


def file_of_sibling(side: Side) -> Arguments:
    """One of the second project's."""
    return {"file_id": f"file-{uploaded(sibling_of(side)).hex}"}


def deleted_file(side: Side) -> Arguments:
    """One that is gone."""
    file_id = uploaded(owner_of(side))
    batch_jobs.facade.delete_file(owner_of(side), file_id)
    return {"file_id": f"file-{file_id.hex}"}


FILE_ROWS: dict[str, Row] = {
    "v1/files": Row(
        PROJECT_KEY,
        {"GET": Act(), "POST": Act({"purpose": "batch"}, file=b"{}")},
        limit_max=10_000,
    ),
    "v1/files/<str:file_id>": Row(
        PROJECT_KEY,
        {"GET": Act(), "DELETE": Act()},
        own=file,
        deleted=deleted_file,
        sibling=file_of_sibling,
    ),
    "v1/files/<str:file_id>/content": Row(
        PROJECT_KEY,
        {"GET": Act()},
        own=file,
        deleted=deleted_file,
        sibling=file_of_sibling,
    ),
}


def asked_batch(side: Side, _arguments: Arguments) -> Json:
    """A batch over a file of the first project's."""
    return {
        "input_file_id": f"file-{uploaded(owner_of(side)).hex}",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
    }


def made_batch(owner: Owner) -> Arguments:
    """A batch of that project's."""
    job = batch_jobs.facade.create_batch(
        owner,
        input_file_id=uploaded(owner),
        endpoint="/v1/chat/completions",
        metadata={},
        output_expires_s=None,
    )
    return {"batch_id": f"batch_{job.job_id.hex}"}


def batch(side: Side) -> Arguments:
    """One of the first project's."""
    return made_batch(owner_of(side))


def batch_of_sibling(side: Side) -> Arguments:
    """One of the second project's."""
    return made_batch(sibling_of(side))


BATCH_ROWS: dict[str, Row] = {
    "v1/batches": Row(PROJECT_KEY, {"GET": Act(), "POST": Act(asked_batch)}),
    "v1/batches/<str:batch_id>": Row(
        PROJECT_KEY, {"GET": Act()}, own=batch, sibling=batch_of_sibling
    ),
    "v1/batches/<str:batch_id>/cancel": Row(
        PROJECT_KEY, {"POST": Act()}, own=batch, sibling=batch_of_sibling
    ),
}


def bulk_model() -> str:
    """A model that is for sale in bulk too."""
    make_offer("bulk-in-the-matrix", 1, 1, 1)
    return make_offer("bulk-in-the-matrix", 1, 1, 1, ServiceTier.BATCH)


def asked_summary(side: Side, _arguments: Arguments) -> Json:
    """A summarisation job over a file of the first project's."""
    file_id = uploaded(owner_of(side))
    return {"input_file_ids": [f"file-{file_id.hex}"], "model": bulk_model()}


def made_summary(owner: Owner, **row: Any) -> Arguments:
    """A summarisation job of that project's, with one document; `row` is what became of it."""
    order = SummaryOrder([uploaded(owner)], {"model": bulk_model()})
    job_id = batch_jobs.facade.create_summary(owner, order).job.job_id
    jobs = BulkJob.objects.using("housekeeper").filter(id=job_id)
    jobs.update(**{"items_total": 1, "in_progress_at": timezone.now(), **row})
    state = "cancelled" if row["state"] == "cancelled" else "queued"
    BulkItem.objects.using("housekeeper").create(
        organization_id=owner.organization_id, job_id=job_id, line=1, custom_id="one", state=state
    )
    return {"summary_id": f"summary_{job_id.hex}"}


def summary_row(method: str, state: str, *, gone: bool = True) -> Row:
    """A route of a job in a state in which its owner may use it."""

    def deleted(side: Side) -> Arguments:
        made = made_summary(owner_of(side), state="cancelled")
        batch_jobs.facade.delete_results(owner_of(side), UUID(made["summary_id"][-32:]))
        return made

    return Row(
        PROJECT_KEY,
        {method: Act()},
        own=lambda side: made_summary(owner_of(side), state=state),
        sibling=lambda side: made_summary(sibling_of(side), state=state),
        deleted=deleted if gone else None,
    )


S = "api/v1/summaries"
SUMMARY_ROWS: dict[str, Row] = {
    S: Row(PROJECT_KEY, {"GET": Act(), "POST": Act(asked_summary, 201)}),
    S + "/<str:summary_id>": Row(
        PROJECT_KEY,
        {"GET": Act(), "PATCH": Act({}), "DELETE": Act()},
        own=lambda side: made_summary(owner_of(side), state="cancelled"),
        sibling=lambda side: made_summary(sibling_of(side), state="cancelled"),
    ),
    S + "/<str:summary_id>/start": summary_row("POST", "ready"),
    S + "/<str:summary_id>/preview": summary_row("POST", "ready"),
    S + "/<str:summary_id>/pause": summary_row("POST", "in_progress"),
    S + "/<str:summary_id>/resume": summary_row("POST", "paused"),
    S + "/<str:summary_id>/cancel": summary_row("POST", "in_progress"),
    S + "/<str:summary_id>/retry": summary_row("POST", "cancelled"),
    S + "/<str:summary_id>/results": summary_row("GET", "in_progress"),
    S + "/<str:summary_id>/failures": summary_row("GET", "in_progress"),
}
