"""Seeds that every environment takes, observations and actions that are where their spaces say."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from rcac.deep.seeds import COPIES, environment_seed, evaluation_seed
from rcac.deep.spaces import action_codec, actions_from_card, observation_encoder
from rcac.errors import InputError

# Seeds


@pytest.mark.parametrize("first", [0, 1_134_903_000, 2**62])
@pytest.mark.parametrize("count", [2, 30, 500, 20_000])
def test_copies_of_neighbouring_runs_never_share_a_seed(first, count):
    bases = np.sort([environment_seed(seed) for seed in range(first, first + count)])
    assert np.diff(bases).min() > 1_134_903_170 / (2.7 * count)
    assert bases[0] >= 0
    assert bases[-1] + COPIES < 2**31


def test_later_seeds_stay_clear_of_beginnings():
    runs = [0, 1, 99, 2**62]
    later = [environment_seed(seed, position) for seed in runs for position in range(0, 100_000, 1000)]
    later += [evaluation_seed(seed, episodes) for seed in runs for episodes in range(100)]
    assert len(set(later)) == len(later)
    assert min(later) >= 1_134_903_170 + COPIES  # a beginning is below, and C copies behind it
    assert max(later) + COPIES <= 2**31
    bins = np.histogram(later, 8, (1_134_903_170, 2**31))[0]
    assert bins.min() > len(later) / 16  # anywhere
    np.random.RandomState(max(later) + COPIES - 1)  # what environments do with it


# Observations


@pytest.mark.parametrize(("value", "start"), [(4, 5), (8, 5), (-1, 0), (3, 0), (float("nan"), 0)])
def test_an_observation_out_of_range_is_named(value, start):
    encoder = observation_encoder(Discrete(3, start=start))
    expected = rf"^observation\[1\]: {value} given, a whole number from {start} to {start + 2} expected"
    with pytest.raises(InputError, match=expected):
        encoder(np.array([start, value]))


# Actions

inf = np.inf


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-0.1, -0.3], [0.1, 0.7]),
        ([0.0, -1.0], [inf, 1.0]),
        ([-inf, -inf], [inf, 0.3]),
        ([0.1, -inf], [inf, inf]),
        ([-60000.0, 0.1], [60000.0, 0.1]),
    ],
)
def test_actions_stay_in_their_space(low, high, dtype):
    space = Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
    codec = action_codec(space)
    read = actions_from_card(json.loads(json.dumps(codec.card(), allow_nan=False)))
    assert read == codec
    wanted = np.random.default_rng(0).normal(size=(500, 2), scale=3).astype(np.float32)
    actions = codec.raw(wanted)
    assert all(space.contains(action) for action in actions)
    np.testing.assert_array_equal(read.raw(wanted), actions)
    for k in range(2):
        if np.isfinite(low[k]) and np.isfinite(high[k]):  # scaled: both ends are reached
            assert {actions[:, k].min(), actions[:, k].max()} == {space.low[k], space.high[k]}
        else:  # as it is, up to an end
            np.testing.assert_array_equal(
                actions[:, k], np.clip(wanted[:, k].astype(dtype), space.low[k], space.high[k])
            )


def test_the_widest_box():
    most = np.finfo(np.float64).max
    codec = action_codec(Box(-most, most, (1,), np.float64))
    assert codec.raw(np.array([[1.0], [0.5], [-2.0]])).ravel().tolist() == [most, most / 2, -most]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_a_box_of_whole_numbers_is_refused(dtype):
    with pytest.raises(
        InputError, match=r"action space: Box\(0, 5.* given, a Discrete space or a Box of floats expected"
    ):
        action_codec(Box(0, 5, (1,), dtype))


def test_older_cards_can_be_read():
    fixed = {"count": 2, "shape": [2], "start": 0}
    bounded = actions_from_card({"kind": "gaussian", **fixed, "centre": [0.0, 5.0], "half": [2.0, 5.0]})
    assert bounded == action_codec(Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)))
    free = actions_from_card({"kind": "gaussian", **fixed, "centre": [], "half": []})
    assert free == action_codec(Box(-inf, inf, (2,), np.float32))
    discrete = {"kind": "categorical", "count": 2, "shape": [], "start": 3, "centre": [], "half": []}
    assert actions_from_card(discrete) == action_codec(Discrete(2, start=3))
