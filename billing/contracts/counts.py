"""Tokens by price class."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """Disjoint token counts of one request, by price class; each >= 0."""

    uncached_input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cache_write_tokens: int = 0
    """Of engines that charge for filling their cache; ours never does."""

    def __post_init__(self) -> None:
        """Raises ValueError for a negative count."""
        if (
            min(
                self.uncached_input_tokens,
                self.cached_input_tokens,
                self.output_tokens,
                self.cache_write_tokens,
            )
            < 0
        ):
            raise ValueError("token counts must not be negative")

    @property
    def prompt_tokens(self) -> int:
        """All input tokens: uncached, cached, and written to a cache."""
        return self.uncached_input_tokens + self.cached_input_tokens + self.cache_write_tokens
