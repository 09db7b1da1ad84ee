"""`/api/v1/summaries/{id}/results` and `/failures`: files of rows, however many there are.

A client reads a file as it is written, a page of rows at a time; no transaction is open meanwhile,
and no more than a page is in memory. Works while the job runs: what is done so far. The console
answers with the same files.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request

import batch_jobs.facade
from batch_jobs.contracts import Owner, SummaryResult
from headrace import errors
from headrace.gateway.database import in_database
from headrace.management_api.bulk.summaries import SummaryJobView
from headrace.management_api.bulk.summary_formats import (
    CsvFile,
    FailuresCsvFile,
    FailuresJsonLinesFile,
    JsonLinesFile,
    ParquetFile,
    RowFile,
)
from headrace.management_api.bulk.summary_shapes import PREFIX
from headrace.management_api.paging import check_query

AFTER = OpenApiParameter(
    "after", description="The id of the document behind which the file begins."
)


@dataclass(frozen=True, slots=True)
class _Asked:
    owner: Owner
    job_id: UUID
    after_row: int
    until_row: int | None
    failures: bool

    def page(self, after_row: int) -> Sequence[SummaryResult]:
        return batch_jobs.facade.read_results(
            self.owner,
            self.job_id,
            after_row=after_row,
            until_row=self.until_row,
            failures=self.failures,
        )


class SummaryResultsView(SummaryJobView):
    """What became of a job's documents."""

    @extend_schema(
        parameters=[
            OpenApiParameter("format", enum=["jsonl", "csv", "parquet"], default="jsonl"),
            OpenApiParameter("shard", int, description="Which Parquet file, from 0.", default=0),
            AFTER,
        ],
        responses={
            (200, "application/x-ndjson"): OpenApiTypes.STR,
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/vnd.apache.parquet"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, summary_id: str) -> StreamingHttpResponse:
        """A row for each document that has ended, in their order."""
        check_query(request, "format", "shard", "after")
        return results_answer(self.owner, self.job_id(summary_id), request.query_params)


class SummaryFailuresView(SummaryJobView):
    """Which documents have no summary."""

    @extend_schema(
        parameters=[OpenApiParameter("format", enum=["jsonl", "csv"], default="jsonl"), AFTER],
        responses={
            (200, "application/x-ndjson"): OpenApiTypes.STR,
            (200, "text/csv"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request, summary_id: str) -> StreamingHttpResponse:
        """A row for each, with its reason."""
        check_query(request, "format", "after")
        return failures_answer(self.owner, self.job_id(summary_id), request.query_params)


def results_answer(owner: Owner, job_id: UUID, asked: Mapping[str, str]) -> StreamingHttpResponse:
    """The file that `format`, `shard` and `after` ask for; raises ApiError 400, JobNotFound."""
    info = batch_jobs.facade.read_summary(owner, job_id)
    as_json = "schema" in info.job.options
    kind, stem = asked.get("format", "jsonl"), f"{PREFIX}{job_id.hex}"
    if kind == "parquet":
        if "after" in asked:
            raise errors.invalid("'after' is for rows; Parquet has shards.", "after")
        shard = _asked_shard(asked)
        first, last = batch_jobs.facade.shard_rows(owner, job_id, shard)
        name = f"{stem}-{shard:05d}.parquet"
        return _answer(_Asked(owner, job_id, first, last, False), ParquetFile(), name)
    if "shard" in asked:
        raise errors.invalid("'shard' is for Parquet.", "shard")
    after_row = _asked_row(owner, job_id, asked)
    rows = _Asked(owner, job_id, after_row, None, False)
    if kind == "csv":
        return _answer(rows, CsvFile(headed=after_row == 0), f"{stem}.csv")
    if kind == "jsonl":
        return _answer(rows, JsonLinesFile(as_json=as_json), f"{stem}.jsonl")
    raise errors.invalid("'format' must be 'jsonl', 'csv' or 'parquet'.", "format")


def failures_answer(owner: Owner, job_id: UUID, asked: Mapping[str, str]) -> StreamingHttpResponse:
    """The file that `format` and `after` ask for; raises ApiError 400, JobNotFound."""
    after_row = _asked_row(owner, job_id, asked)
    rows = _Asked(owner, job_id, after_row, None, True)
    kind, name = asked.get("format", "jsonl"), f"{PREFIX}{job_id.hex}-failures"
    if kind == "csv":
        return _answer(rows, FailuresCsvFile(headed=after_row == 0), f"{name}.csv")
    if kind == "jsonl":
        return _answer(rows, FailuresJsonLinesFile(), f"{name}.jsonl")
    raise errors.invalid("'format' must be 'jsonl' or 'csv'.", "format")


def _answer(asked: _Asked, file: RowFile, name: str) -> StreamingHttpResponse:
    """The file; raises JobNotFound before it begins."""
    first = asked.page(asked.after_row)
    return StreamingHttpResponse(
        _parts(asked, file, first),
        content_type=file.content_type,
        headers={
            "content-disposition": f'attachment; filename="{name}"',
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
        },
    )


async def _parts(
    asked: _Asked, file: RowFile, page: Sequence[SummaryResult]
) -> AsyncIterator[bytes]:
    """Each page is read and written on a database thread; none waits while a slow client reads."""
    yield file.head()
    encoded = await in_database(file.rows, page)
    while page:
        yield encoded
        page, encoded = await in_database(_next_page, asked, file, page[-1].row)
    yield file.tail()


def _next_page(
    asked: _Asked, file: RowFile, after_row: int
) -> tuple[Sequence[SummaryResult], bytes]:
    page = asked.page(after_row)
    return page, file.rows(page)


def _asked_row(owner: Owner, job_id: UUID, asked: Mapping[str, str]) -> int:
    after = asked.get("after")
    return batch_jobs.facade.row_of(owner, job_id, after) if after else 0


def _asked_shard(asked: Mapping[str, str]) -> int:
    text = asked.get("shard", "0")
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise errors.invalid("'shard' must be a number from 0.", "shard")
    return int(text)
