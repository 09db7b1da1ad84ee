"""How the rows of a summarisation job are written: JSON lines, CSV, Parquet.

Each file is written in parts, a page of rows at a time. Called by the download views. pyarrow is
imported when the first Parquet file is asked for: it is most of what a web process would weigh.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Protocol

import msgspec

from batch_jobs.contracts import SummaryResult
from billing.facade import decimal_string
from headrace.gateway.request_ids import public_request_id
from headrace.management_api.csv_rows import csv_rows

COLUMNS = (
    *("custom_id", "status", "summary", "error_code", "error_message", "source", "line"),
    *("same_as", "request_id", "prompt_tokens", "cached_tokens", "completion_tokens"),
    *("charge_pico", "charge"),
)
FAILURE_COLUMNS = ("custom_id", "status", "error_code", "error_message", "source", "line")
NUMBERS = ("prompt_tokens", "cached_tokens", "completion_tokens", "charge_pico")
PICO_DIGITS = 12


class RowFile(Protocol):
    """A file of rows that is written as it is read."""

    content_type: str

    def head(self) -> bytes:
        """What comes before all rows."""
        ...

    def rows(self, page: Sequence[SummaryResult]) -> bytes:
        """The next rows."""
        ...

    def tail(self) -> bytes:
        """What comes after all rows."""
        ...


class JsonLinesFile:
    """A JSON object a line. With `as_json` a summary that is JSON is a value and not a text."""

    content_type = "application/x-ndjson; charset=utf-8"

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def head(self) -> bytes:
        """Nothing."""
        return b""

    def rows(self, page: Sequence[SummaryResult]) -> bytes:
        """A line for each."""
        return b"".join(msgspec.json.encode(self._row(one)) + b"\n" for one in page)

    def tail(self) -> bytes:
        """Nothing."""
        return b""

    def _row(self, one: SummaryResult) -> dict[str, Any]:
        row = dict(zip(COLUMNS, _cells(one), strict=True))
        row["charge_pico"] = str(one.charge_pico)
        row["error"] = _error(one)
        del row["error_code"], row["error_message"]
        if self._as_json and one.summary is not None:
            row["summary"] = _parsed(one.summary)
        return row


class FailuresJsonLinesFile(JsonLinesFile):
    """What has no summary, a JSON object a line."""

    def __init__(self) -> None:
        super().__init__(as_json=False)

    def _row(self, one: SummaryResult) -> dict[str, Any]:
        return {
            "custom_id": one.custom_id,
            "status": one.state,
            "error": _error(one),
            "source": one.source,
            "line": one.line,
            "request_id": _request_id(one),
        }


class CsvFile:
    """A table that spreadsheets open; `headed` unless it goes on from another one."""

    content_type = "text/csv; charset=utf-8"
    columns: tuple[str, ...] = COLUMNS

    def __init__(self, *, headed: bool) -> None:
        self._headed = headed

    def head(self) -> bytes:
        """The names of the columns."""
        return csv_rows([self.columns]) if self._headed else b""

    def rows(self, page: Sequence[SummaryResult]) -> bytes:
        """A line for each."""
        return csv_rows(self.cells(one) for one in page)

    def tail(self) -> bytes:
        """Nothing."""
        return b""

    def cells(self, one: SummaryResult) -> Sequence[object]:
        """A row."""
        return _cells(one)


class FailuresCsvFile(CsvFile):
    """What has no summary, as a table."""

    columns = FAILURE_COLUMNS

    def cells(self, one: SummaryResult) -> Sequence[object]:
        """A row."""
        row = dict(zip(COLUMNS, _cells(one), strict=True))
        return [row[name] for name in FAILURE_COLUMNS]


class ParquetFile:
    """One shard as Parquet; each page is a row group of it."""

    content_type = "application/vnd.apache.parquet"

    def __init__(self) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        types = {"line": pa.int32(), "charge": pa.decimal128(38, PICO_DIGITS)}
        types |= dict.fromkeys(NUMBERS, pa.int64())
        self._arrow = pa
        self._schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
        self._sink = _Sink()
        self._writer = ParquetWriter(
            pa.PythonFile(self._sink, mode="w"), self._schema, compression="zstd"
        )

    def head(self) -> bytes:
        """The file's first bytes."""
        return self._sink.taken()

    def rows(self, page: Sequence[SummaryResult]) -> bytes:
        """The rows as a row group."""
        if not page:
            return b""
        columns = list(zip(*(_exact_cells(one) for one in page), strict=True))
        arrays = [
            self._arrow.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        return self._sink.taken()

    def tail(self) -> bytes:
        """The file's index."""
        self._writer.close()
        return self._sink.taken()


class _Sink:
    """What Parquet is written to: it keeps what nobody has taken yet."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written_bytes = 0
        self.closed = False

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._written_bytes += len(part)
        return len(part)

    def tell(self) -> int:
        return self._written_bytes

    def flush(self) -> None:
        """Everything is there at once."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        whole = b"".join(self._parts)
        self._parts.clear()
        return whole


def _cells(one: SummaryResult) -> list[object]:
    """By COLUMNS."""
    return [
        *(one.custom_id, one.state, one.summary, one.error_code, one.error_message),
        *(one.source, one.line, one.same_as, _request_id(one)),
        *(one.prompt_tokens, one.cached_tokens, one.completion_tokens),
        *(one.charge_pico, decimal_string(one.charge_pico)),
    ]


def _exact_cells(one: SummaryResult) -> list[object]:
    return [*_cells(one)[:-1], Decimal(one.charge_pico).scaleb(-PICO_DIGITS)]


def _error(one: SummaryResult) -> dict[str, str | None] | None:
    if one.error_code is None:
        return None
    return {"code": one.error_code, "message": one.error_message}


def _request_id(one: SummaryResult) -> str | None:
    return None if one.request_id is None else public_request_id(one.request_id)


def _parsed(text: str) -> Any:  # JSON of the tenant's own schema
    """The value that a text spells, or the text: an answer may have been cut off."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
