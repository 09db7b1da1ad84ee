"""What a summarisation job will take: tokens, price and time, said before it starts.

The numbers are what was measured while the documents were read, and say which of them are
estimates. Called when the last document is read.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of a whole job; amounts in pico-units. `duration_s` is None when nothing ran lately."""

    prompt_tokens: int
    completion_tokens: int
    amount_pico: int
    interactive_amount_pico: int
    duration_s: int | None
    prompt_basis: str
    """`counted` or `sampled`."""
    completion_basis: str
    """`measured` on a job with the same options, or `at_most`."""

    def to_json(self) -> dict[str, Any]:  # JSON
        """As `bulk_summary_plan.estimate` keeps it."""
        return {name: getattr(self, name) for name in self.__slots__}
