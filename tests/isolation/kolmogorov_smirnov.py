"""The two-sample Kolmogorov-Smirnov test: whether two samples may be of one distribution.

Pure arithmetic, for tests that ask whether timings tell something. Assumes nothing about the shape
of the distributions.
"""

import math
from collections.abc import Sequence


def statistic(first: Sequence[float], second: Sequence[float]) -> float:
    """The largest distance between the two empirical distribution functions, 0 to 1.

    Raises ValueError for an empty sample.
    """
    if not first or not second:
        raise ValueError("a sample is empty")
    left, right = sorted(first), sorted(second)
    i = j = 0
    largest = 0.0
    while i < len(left) and j < len(right):
        value = min(left[i], right[j])
        while i < len(left) and left[i] == value:
            i += 1
        while j < len(right) and right[j] == value:
            j += 1
        largest = max(largest, abs(i / len(left) - j / len(right)))
    return largest


def critical(first_size: int, second_size: int, alpha: float) -> float:
    """What the statistic of equal distributions exceeds with probability `alpha`; large samples."""
    scale = math.sqrt(-math.log(alpha / 2) / 2)
    return scale * math.sqrt((first_size + second_size) / (first_size * second_size))


def are_separable(first: Sequence[float], second: Sequence[float], alpha: float) -> bool:
    """Whether the samples differ more than chance explains."""
    return statistic(first, second) > critical(len(first), len(second), alpha)
