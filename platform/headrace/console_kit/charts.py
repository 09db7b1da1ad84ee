"""Charts as data: what is drawn, in which colours, and its twin as a table.

Pure. The numbers go to the page as JSON and `kit/charts.js` draws them; every chart has the same
numbers as a table beside it. Values are integers in the unit that `unit` names: `pico` amounts are
handed over in millionths of the currency, which a chart's height can't tell from exact ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.console_kit import formats
from headrace.console_kit.tables import Column, Row, Table

SERIES_MAX = 7
"""Beside `other`."""
PICO_PER_MICRO = 10**6


class Unit(StrEnum):
    """What a chart's values are."""

    TOKENS = "tokens"
    REQUESTS = "requests"
    MONEY = "money"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"


class Color(StrEnum):
    """Names of colours in kit.css: those of token classes are fixed everywhere."""

    UNCACHED = "uncached"
    CACHED = "cached"
    OUTPUT = "output"
    BATCH = "batch"
    FIRST = "series-1"
    SECOND = "series-2"
    THIRD = "series-3"
    FOURTH = "series-4"
    FIFTH = "series-5"
    SIXTH = "series-6"
    SEVENTH = "series-7"
    OTHER = "other"
    PREVIOUS = "previous"


IN_TURN = (
    *(Color.FIRST, Color.SECOND, Color.THIRD, Color.FOURTH),
    *(Color.FIFTH, Color.SIXTH, Color.SEVENTH),
)


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of a chart; a value of None is unknown, and drawn as a gap."""

    name: str
    color: Color
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars that stand on each other, or lines; `hrefs` is where a click on a bucket leads."""

    name: str
    """Of the canvas: unique on its page, letters and dashes."""
    title: str
    unit: Unit
    labels: Sequence[str]
    series: Sequence[Series]
    kind: str = "bars"
    currency: str = ""
    hrefs: Sequence[str] = ()
    csv_href: str = ""
    empty: str = "Nothing in this period."

    @property
    def data(self) -> dict[str, Any]:
        """What charts.js reads."""
        return {
            "kind": self.kind,
            "title": self.title,
            "unit": self.unit.value,
            "currency": formats.SIGNS.get(self.currency, self.currency),
            "labels": list(self.labels),
            "hrefs": list(self.hrefs),
            "series": [
                {"name": one.name, "color": one.color.value, "values": self._plotted(one.values)}
                for one in self.series
            ],
        }

    @property
    def twin(self) -> Table:
        """The same numbers as a table, exact on hover."""
        columns = [Column("Time"), *(Column(one.name, is_number=True) for one in self.series)]
        is_summed = self.kind == "bars" and len(self.series) > 1
        if is_summed:
            columns.append(Column("Sum", is_number=True))
        rows = []
        for index, label in enumerate(self.labels):
            values = [one.values[index] for one in self.series]
            if is_summed:
                values.append(sum(value or 0 for value in values))
            rows.append(
                Row([label, *(_shown(value, self.unit, self.currency) for value in values)])
            )
        return Table(self.title, columns, rows)

    @property
    def is_empty(self) -> bool:
        """Nothing but zeros and unknowns."""
        return not any(value for one in self.series for value in one.values)

    def _plotted(self, values: Sequence[int | None]) -> list[int | None]:
        if self.unit is not Unit.MONEY:
            return list(values)
        return [None if value is None else value // PICO_PER_MICRO for value in values]


@dataclass(frozen=True, slots=True)
class Axis:
    """What a direction of a scatter says, from zero."""

    title: str
    unit: Unit


@dataclass(frozen=True, slots=True)
class Dot:
    """Two values that were measured together."""

    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """Dots by two values, in the order of time: the older the fainter. Money is not drawn so."""

    name: str
    """Of the canvas: unique on its page, letters, digits and dashes."""
    title: str
    x: Axis
    y: Axis
    dots: Sequence[Dot]
    is_last_marked: bool = False
    """Whether the last of them is now."""
    empty: str = "Nothing in this period."
    csv_href: str = ""

    @property
    def data(self) -> dict[str, Any]:
        """What charts.js reads."""
        return {
            "kind": "scatter",
            "title": self.title,
            "x": {"title": self.x.title, "unit": self.x.unit.value},
            "y": {"title": self.y.title, "unit": self.y.unit.value},
            "labels": [one.label for one in self.dots],
            "dots": [{"x": one.x, "y": one.y} for one in self.dots],
            "isLastMarked": self.is_last_marked,
        }

    @property
    def twin(self) -> Table:
        """The same numbers as a table, the latest first."""
        columns = [Column("Time"), *(Column(one.title, is_number=True) for one in (self.x, self.y))]
        rows = [
            Row([one.label, _shown(one.x, self.x.unit), _shown(one.y, self.y.unit)])
            for one in reversed(self.dots)
        ]
        return Table(self.title, columns, rows, empty=self.empty)

    @property
    def is_empty(self) -> bool:
        """No dots."""
        return not self.dots


def _shown(value: int | None, unit: Unit, currency: str = "") -> object:
    match unit:
        case Unit.MONEY:
            return formats.money(value, currency)
        case Unit.MILLISECONDS:
            return formats.duration_text(value)
        case Unit.MICROSECONDS:
            return formats.short_duration_text(value)
        case _:
            return formats.count(value)
