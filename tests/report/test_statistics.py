"""Interquartile means by hand and by scipy; bootstrap intervals by enumeration and by simulation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rcac.errors import InputError
from rcac.report.statistics import interquartile_mean, interval

NUMBERS = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([5, 8, 4, 38, 8, 6, 9, 7, 7, 3, 1, 6], 6.5),  # three cut at each end
        ([1, 3, 5, 7, 9, 11, 13, 15, 17], 9.0),  # two and a quarter
        ([1, 2, 3, 4, 100], (0.75 * 2 + 3 + 0.75 * 4) / 2.5),
        ([0, 10, 50], (0.25 * 0 + 10 + 0.25 * 50) / 1.5),
        ([2, 6], 4.0),
        ([7], 7.0),
    ],
)
def test_interquartile_mean_by_hand(values, expected):
    assert interquartile_mean(values) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_equals_scipys_trimmed_mean_where_quarters_are_whole(values, seed):
    many = np.random.default_rng(seed).permutation(np.repeat(values, 4))
    assert interquartile_mean(many) == pytest.approx(stats.trim_mean(many, 0.25), rel=1e-9, abs=1e-9)


@given(NUMBERS, st.floats(-10, 10), st.floats(0.1, 10))
def test_it_moves_and_scales_with_the_values_and_lies_within_the_quartiles(values, shift, scale):
    found = float(interquartile_mean(values))
    assert interquartile_mean(scale * np.array(values) + shift) == pytest.approx(scale * found + shift, abs=1e-6)
    assert min(values) - 1e-9 <= found <= max(values) + 1e-9


def test_one_failed_seed_does_not_move_it():
    assert interquartile_mean([500, 499, 498, 500]) == pytest.approx(interquartile_mean([500, 499, 0, 500]), abs=0.5)


def test_along_an_axis(rng):
    values = rng.normal(size=(3, 7, 4))
    expected = [[interquartile_mean(values[i, :, k]) for k in range(4)] for i in range(3)]
    np.testing.assert_allclose(interquartile_mean(values, axis=1), expected, atol=1e-12)


def test_interval_equals_the_percentiles_of_every_possible_draw():
    """With three values there are 27 draws; many resamples find their percentiles."""
    values = [1.0, 4.0, 9.0]
    every = [float(interquartile_mean(draw)) for draw in itertools.product(values, repeat=3)]
    found = interval([values], confidence=0.8, resamples=40_000)
    assert found.estimate == pytest.approx(interquartile_mean(values))
    low, high = np.quantile(every, [0.1, 0.9], method="inverted_cdf")
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_strata_are_drawn_within_and_not_across():
    """Constant strata never change, however far apart they are."""
    found = interval([[0.0] * 5, [100.0] * 5])
    assert found == pytest.approx((50.0, 50.0, 50.0))


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for k in range(200):
        found = interval([rng.normal(size=20)], confidence=0.9, resamples=300, seed=k)
        hits += found.low <= 0 <= found.high
    assert 0.80 <= hits / 200 <= 0.97


def test_deterministic_and_one_value_has_no_interval():
    values = [[3.0, 1.0, 4.0, 1.0, 5.0]]
    assert interval(values, seed=3) == interval(values, seed=3)
    alone = interval([[5.0]])
    assert alone.estimate == 5.0
    assert np.isnan(alone.low)
    assert np.isnan(alone.high)


@pytest.mark.parametrize("strata", [[], [[]], [[1.0, np.nan]], [[1.0], [[2.0]]]])
def test_what_cannot_be_averaged_is_refused(strata):
    with pytest.raises(InputError, match="strata"):
        interval(strata)


def test_no_values_at_all():
    with pytest.raises(InputError, match="values"):
        interquartile_mean([])
