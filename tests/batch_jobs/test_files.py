"""Stored files: written, read in spans, kept within room, swept."""

import pytest

from batch_jobs.contracts import Owner
from batch_jobs.files.reading import Span, read_spans
from batch_jobs.files.writing import write_file
from tests.batch_jobs.cast import make_tenant

pytestmark = pytest.mark.usefixtures("django_database")


def test_what_a_job_writes_is_read_back_in_spans() -> None:
    acme = make_tenant("acme")
    owner = Owner(acme.organization_id, acme.project_id, acme.key_id)
    file = write_file(owner, "staged", "shard", [b"one", b"three"])

    spans = [Span(acme.organization_id, file.file_id, at, size) for at, size in ((3, 5), (0, 3))]

    assert file.size_bytes == 8
    assert read_spans(spans) == [b"three", b"one"]
