"""What validation finds, kept in temporary files until it is known whether the batch can run."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import IO, Any

import msgspec
from django.conf import settings
from django.db import connections

from batch_jobs.contracts import LineError
from batch_jobs.job_leases import HOUSEKEEPER_ALIAS, LeasedJob
from batch_jobs.models import BulkJob

ROWS_PAGE = 1000
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""Of COPY's text format."""
_COPY = """
    COPY bulk_item (
        line, custom_id, place, source_offset, source_bytes, organization_id, job_id, source_id,
        state, retry_at, part, parts_left, copies, bound_pico, lease_token, attempts,
        prompt_tokens, cached_tokens, completion_tokens, charge_pico
    ) FROM STDIN"""
_FRESH = "queued\t2000-01-01 00:00:00+00" + "\t0" * 10 + "\n"


@contextmanager
def empty_draft() -> Iterator["Draft"]:
    """One whose files are gone afterwards."""
    with tempfile.TemporaryFile() as rows, tempfile.TemporaryFile() as errors:
        yield Draft(rows, errors)


class Draft:
    """The items of a batch to be, or the errors of one that will not be."""

    def __init__(self, rows: IO[bytes], errors: IO[bytes]) -> None:
        self.model = ""
        self.tokens = 0
        self.rows_total = 0
        self.errors_total = 0
        self.errors_shown: list[dict[str, Any]] = []
        self._rows = rows
        self._errors = errors

    def add_row(self, line: int, custom_id: str, place: int, offset: int, size_bytes: int) -> None:
        """A line that can be run, and where it lies."""
        self.rows_total += 1
        escaped = custom_id.translate(_ESCAPES)
        self._rows.write(f"{line}\t{escaped}\t{place}\t{offset}\t{size_bytes}\n".encode())

    def add_error(self, error: LineError) -> None:
        """Something that is wrong with the input."""
        self.errors_total += 1
        if self.errors_total <= settings.BATCH_ERRORS_SHOWN_MAX:
            self.errors_shown.append(asdict(error))
        self._errors.write(msgspec.json.encode(error) + b"\n")

    def error_lines(self) -> Iterator[bytes]:
        """All errors, as JSON lines."""
        self._errors.seek(0)
        return iter(self._errors)

    def copy_items(self, job: LeasedJob, row: BulkJob) -> None:
        """Insert the rows as queued items, in the open transaction."""
        tail = f"\t{job.organization_id}\t{job.job_id}\t{row.input_file_id}\t{_FRESH}".encode()
        self._rows.seek(0)
        with (
            connections[HOUSEKEEPER_ALIAS].cursor() as cursor,
            cursor.cursor.copy(_COPY) as copy,
        ):
            while page := list(islice(self._rows, ROWS_PAGE)):
                copy.write(b"".join(line[:-1] + tail for line in page))
