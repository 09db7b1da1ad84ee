"""Model fields for money: integers in Python, numeric(38, 0) in PostgreSQL.

Never a Decimal, whose arithmetic rounds silently past 28 digits, and never a bigint, which caps an
account at 9.2 million units of currency in pico-units. Used by `billing.models`.
"""

from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _Field = models.Field[int, int]
else:
    _Field = models.Field  # not subscriptable at run time


class IntegerMoneyField(_Field):
    """An exact integer of up to 38 digits."""

    description = "exact integer money"

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """The column type."""
        return "numeric(38, 0)"

    def from_db_value(self, value: Any, *_: Any) -> int | None:
        """PostgreSQL's numeric arrives as an exact Decimal without fraction."""
        return None if value is None else int(value)

    def to_python(self, value: Any) -> int | None:
        """Raises ValidationError for anything but an integer or its decimal string."""
        if value is None or type(value) is int:
            return value
        if isinstance(value, str) and value.removeprefix("-").isdecimal():
            return int(value)
        raise ValidationError(f"money is an integer, not {value!r}")

    def get_prep_value(self, value: Any) -> Any:
        """Refuses values that are not exact on their way in; expressions pass."""
        if hasattr(value, "resolve_expression"):
            return value
        return self.to_python(value)
