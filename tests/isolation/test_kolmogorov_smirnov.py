"""The test that judges timings, judged itself: by hand-made samples and the published table."""

import random

import pytest

from tests.isolation.kolmogorov_smirnov import are_separable, critical, statistic


@pytest.mark.parametrize(
    ("first", "second", "distance"),
    [
        ([1, 2, 3], [1, 2, 3], 0),
        ([1, 2, 3], [4, 5, 6], 1),
        ([4, 5, 6], [1, 2, 3], 1),
        ([1, 2, 3, 4], [3, 4, 5, 6], 0.5),
        ([1, 1, 1, 2], [1, 2, 2, 2], 0.5),
        ([1], [0, 1, 2, 3], 0.5),
    ],
)
def test_the_statistic_is_the_largest_distance(
    first: list[float], second: list[float], distance: float
) -> None:
    assert statistic(first, second) == pytest.approx(distance)


def test_an_empty_sample_says_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        statistic([], [1])


@pytest.mark.parametrize(
    ("alpha", "scale"), [(0.10, 1.224), (0.05, 1.358), (0.01, 1.628), (0.001, 1.949)]
)
def test_the_bound_is_the_published_one(alpha: float, scale: float) -> None:
    assert critical(200, 200, alpha) == pytest.approx(scale * 0.1, abs=1e-4)


def test_a_shift_is_seen_and_its_absence_is_not() -> None:
    chance = random.Random(7)
    samples = [[chance.gauss(0, 1) for _ in range(200)] for _ in range(2)]
    shifted = [value + 1 for value in samples[1]]

    assert not are_separable(samples[0], samples[1], 0.001)
    assert are_separable(samples[0], shifted, 0.001)
