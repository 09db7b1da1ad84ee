"""Parquet: a column of texts and, if there is one, of ids; batch by batch, never a whole group.

The footer is checked before a row is read. Written by strangers and read by native code: see
decision 0012 for what bounds that.
"""

from collections.abc import Iterator
from typing import Any

from batch_jobs.summaries.sources.documents import (
    ID_FIELDS,
    TEXT_FIELDS,
    Cursor,
    Document,
    Input,
    InputUnreadable,
    checked,
    name_of,
)

BATCH_ROWS = 16
BUFFER_BYTES = 1 << 20
FOOTER_BYTES_MAX = 32 << 20
COLUMN_BYTES_MAX = 4 << 30
"""Of one column in one row group, unpacked."""
RATIO_MAX = 200
"""A column may unpack to this many times its size, once it is more than RATIO_FREE_BYTES."""
RATIO_FREE_BYTES = 64 << 20


def read(source: Input, cursor: Cursor) -> Iterator[Document]:
    """The documents after `cursor`: {"group", "row", "line"}; raises InputUnreadable."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(
            source.stream,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            thrift_string_size_limit=FOOTER_BYTES_MAX,
            thrift_container_size_limit=FOOTER_BYTES_MAX,
        )
        text_column, id_column = _columns(source, file.schema_arrow.names)
        _check_footer(source, file.metadata, text_column)
        yield from _rows(source, file, text_column, id_column, cursor)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the storage, not the file
        raise InputUnreadable("invalid_parquet", f"the file is not readable: {error}") from error


def _rows(
    source: Input, file: Any, text_column: str, id_column: str | None, cursor: Cursor
) -> Iterator[Document]:
    line = cursor.get("line", 0)
    columns = [text_column] if id_column is None else [text_column, id_column]
    for group in range(cursor.get("group", 0), file.metadata.num_row_groups):
        done = cursor.get("row", 0) if group == cursor.get("group", 0) else 0
        row = 0
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
            if row + batch.num_rows <= done:
                row += batch.num_rows
                continue
            texts = batch.column(text_column)
            names = None if id_column is None else batch.column(id_column)
            for index in range(batch.num_rows):
                row += 1
                if row <= done:
                    continue
                line += 1
                after = {"group": group, "row": row, "line": line}
                name = None if names is None else _plain(names[index])
                text = _plain(texts[index])
                yield checked(name_of(name), line, after, text, source.limits.document_bytes_max)


def _plain(scalar: Any) -> object:
    value = scalar.as_py()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _columns(source: Input, names: list[str]) -> tuple[str, str | None]:
    text = _column(names, source.text_field, TEXT_FIELDS)
    name = _column(names, source.id_field, ID_FIELDS)
    if text is None:
        wanted = source.text_field or " or ".join(TEXT_FIELDS)
        raise InputUnreadable("missing_column", f"no column {wanted}; has {names[:50]}")
    if name is None and source.id_field is not None:
        raise InputUnreadable("missing_column", f"no column {source.id_field}; has {names[:50]}")
    return text, name


def _column(names: list[str], chosen: str | None, usual: tuple[str, ...]) -> str | None:
    return next((name for name in ((chosen,) if chosen else usual) if name in names), None)


def _check_footer(source: Input, footer: Any, text_column: str) -> None:
    if footer.num_rows > source.limits.documents_max:
        limit = source.limits.documents_max
        raise InputUnreadable("too_many_documents", f"more than {limit} rows")
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group)
        for index in range(rows.num_columns):
            column = rows.column(index)
            if column.path_in_schema != text_column:
                continue
            unpacked, packed = column.total_uncompressed_size, column.total_compressed_size
            if unpacked > COLUMN_BYTES_MAX or (
                unpacked > RATIO_FREE_BYTES and unpacked > RATIO_MAX * max(packed, 1)
            ):
                raise InputUnreadable(
                    "parquet_too_large", f"row group {group} unpacks to {unpacked} bytes"
                )
