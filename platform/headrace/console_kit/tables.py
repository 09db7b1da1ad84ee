"""Tables as data: pages say what is in them, one template draws them all.

A cell is text, escaped when drawn, or a piece of HTML made by `formats` or `format_html`. Called by
pages; drawn by the `table` tag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Column:
    """`is_number` columns stand at the end of their cell, in tabular figures; one that `hides`
    is left out where the screen is narrow."""

    title: str
    is_number: bool = False
    hides: bool = False
    is_hidden_title: bool = False
    """Said to screen readers only, as over buttons."""


@dataclass(frozen=True, slots=True)
class Row:
    """`href` is where the first cell leads."""

    cells: Sequence[object]
    href: str = ""
    id: str = ""
    is_muted: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """`caption` is said to screen readers; `empty` stands where there are no rows; `next_href`
    leads to the next page."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = "Nothing here yet."
    next_href: str = ""
    totals: Sequence[object] = field(default_factory=tuple)

    @property
    def drawn(self) -> list[tuple[Row, list[tuple[Column, object]]]]:
        """Each row with its cells beside their columns."""
        return [(row, list(zip(self.columns, row.cells, strict=True))) for row in self.rows]

    @property
    def drawn_totals(self) -> list[tuple[Column, object]]:
        """The last line, under its columns."""
        return list(zip(self.columns, self.totals, strict=True)) if self.totals else []
