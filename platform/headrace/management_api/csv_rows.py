"""CSV that people open in spreadsheets: no cell of it is taken for a formula.

Called by the views whose answers are files of rows.
"""

import csv
import io
from collections.abc import Iterable, Sequence

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_rows(rows: Iterable[Sequence[object]]) -> bytes:
    """Some rows of a file; None is an empty cell."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows([[_harmless(cell) for cell in row] for row in rows])
    return text.getvalue().encode()


def _harmless(cell: object) -> str:
    """What tenants wrote may begin like a formula; a number of ours is one."""
    text = "" if cell is None else str(cell)
    is_number = isinstance(cell, int) and not isinstance(cell, bool)
    return f"'{text}" if text.startswith(FORMULA_STARTS) and not is_number else text
