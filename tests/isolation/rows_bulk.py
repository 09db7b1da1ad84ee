"""Rows of files, batches and summarisation jobs: all by project key."""

import io
from uuid import UUID

import batch_jobs.facade
import tenants.facade
from batch_jobs.contracts import Owner
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

SUMMARY_ROWS: dict[str, Row] = {}
