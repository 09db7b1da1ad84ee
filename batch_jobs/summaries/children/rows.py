"""The program that reads Parquet files of strangers, as a child of `sources.parquet`.

Writes each row as a line of JSON, `[group, row, id, text bytes]`, with its text after it, or what
is wrong with the file as `{"code", "message"}`, to its standard output. Instead of the bytes of a
text that is none it tells null, and true where there is something else.
"""

import json
import sys
from typing import Any, NoReturn

from batch_jobs.summaries.children.limits import limit_memory, limit_time

BATCH_ROWS = 16
BUFFER_BYTES = 1 << 20
FOOTER_BYTES_MAX = 32 << 20
COLUMN_BYTES_MAX = 4 << 30
"""Of one column in one row group, unpacked."""
SKIP_TIMES = 6
"""So many times the time of a batch for all of a row group that was read before."""
RATIO_MAX = 200
"""A column may unpack to this many times its size, once it is more than RATIO_FREE_BYTES."""
RATIO_FREE_BYTES = 64 << 20


def refuse(code: str, message: str) -> NoReturn:
    """Ends the program with what is wrong."""
    print(json.dumps({"code": code, "message": message[:1000]}), flush=True)  # noqa: T201
    sys.exit(0)


def plain(value: Any, chars_max: int) -> Any:
    """What of a cell can be an id or a text."""
    if isinstance(value, bytes):
        value = value[: 4 * chars_max].decode("utf-8", "replace")
    if isinstance(value, str):
        return value[:chars_max]
    return value if isinstance(value, int | float | None) else True


def tell(group: int, row: int, name: Any, text: Any) -> None:
    """Writes a row down."""
    content = text.encode() if isinstance(text, str) else b""
    told = len(content) if isinstance(text, str) else None if text is None else True
    sys.stdout.buffer.write(json.dumps([group, row, name, told]).encode() + b"\n")
    sys.stdout.buffer.write(content)


def column_of(names: list[str], wanted: list[str], *, needed: bool) -> str | None:
    """The first of the wanted columns that there is."""
    found = next((name for name in wanted if name in names), None)
    if found is None and needed:
        refuse("missing_column", f"no column {' or '.join(wanted)}; has {names[:50]}")
    return found


def check_footer(footer: Any, text_column: str, rows_max: int) -> None:
    """Refuses what says of itself that it is too large."""
    if footer.num_rows > rows_max:
        refuse("too_many_documents", f"more than {rows_max} rows")
    for group in range(footer.num_row_groups):
        rows = footer.row_group(group)
        for index in range(rows.num_columns):
            column = rows.column(index)
            unpacked, packed = column.total_uncompressed_size, column.total_compressed_size
            if column.path_in_schema == text_column and (
                unpacked > COLUMN_BYTES_MAX
                or (unpacked > RATIO_FREE_BYTES and unpacked > RATIO_MAX * max(packed, 1))
            ):
                refuse("parquet_too_large", f"row group {group} unpacks to {unpacked} bytes")


def read(path: str, asked: dict[str, Any]) -> None:
    """Writes the rows behind the one that `asked` names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        file = pq.ParquetFile(
            path,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            thrift_string_size_limit=FOOTER_BYTES_MAX,
            thrift_container_size_limit=FOOTER_BYTES_MAX,
        )
        names = file.schema_arrow.names
        text_column = column_of(names, asked["text_fields"], needed=True)
        id_column = column_of(names, asked["id_fields"], needed=asked["id_needed"])
        assert text_column is not None
        check_footer(file.metadata, text_column, asked["rows_max"])
        write_rows(file, text_column, id_column, asked)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        refuse("invalid_parquet", f"the file is not readable: {error}")


def write_rows(file: Any, text_column: str, id_column: str | None, asked: dict[str, Any]) -> None:
    """Batch by batch, each in its own time; what was read before is passed over in one."""
    columns = [text_column] if id_column is None else [text_column, id_column]
    first_group, done = asked["group"], asked["row"]
    for group in range(first_group, file.metadata.num_row_groups):
        row = group_bytes = 0
        if group == first_group and done:
            limit_time(SKIP_TIMES * asked["cpu_s"], SKIP_TIMES * asked["wall_s"])
        for batch in file.iter_batches(
            BATCH_ROWS, row_groups=[group], columns=columns, use_threads=False
        ):
            group_bytes += batch.nbytes
            if group_bytes > COLUMN_BYTES_MAX:
                refuse("parquet_too_large", f"row group {group} decodes to {group_bytes} bytes")
            if group == first_group and row + batch.num_rows <= done:
                row += batch.num_rows
                continue
            limit_time(asked["cpu_s"], asked["wall_s"])
            texts = batch.column(text_column)
            ids = None if id_column is None else batch.column(id_column)
            for index in range(batch.num_rows):
                row += 1
                if group == first_group and row <= done:
                    continue
                name = None if ids is None else plain(ids[index].as_py(), asked["id_chars_max"])
                tell(group, row, name, plain(texts[index].as_py(), asked["text_chars_max"]))


def main() -> None:
    """`rows PATH ASKED`, the latter as JSON."""
    asked = json.loads(sys.argv[2])
    limit_memory(asked["memory_bytes_max"])
    limit_time(asked["cpu_s"], asked["wall_s"])
    read(sys.argv[1], asked)


if __name__ == "__main__":
    main()
