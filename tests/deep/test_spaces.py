"""Seeds that every environment takes, observations and actions that are where their spaces say."""

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

from rcac.deep.spaces import Encoder, History, action_codec, batched
from rcac.errors import InputError
from rcac.seeds import COPIES, environment_seed, evaluation_seed
from rcac.spaces import space_card, space_from_card

# Seeds


@pytest.mark.parametrize("first", [0, 1_134_903_000, 2**62])
@pytest.mark.parametrize("count", [2, 30, 500, 20_000])
def test_environments_of_neighbouring_runs_never_share_a_seed(first, count):
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
    encoder = Encoder(Discrete(3, start=start))
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
    read = action_codec(space_from_card(json.loads(json.dumps(space_card(space), allow_nan=False))))
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
        InputError,
        match=r"action space: Box\(0, 5.* given, .* or a Box of floats expected; MultiDiscrete has whole numbers",
    ):
        action_codec(Box(0, 5, (1,), dtype))


# Structured spaces and histories

STRUCTURED = Dict(
    {"joints": Box(-2, 2, (2,)), "mode": Discrete(3, start=5), "sub": Tuple([MultiBinary(2), MultiDiscrete([2, 3])])}
)


def test_a_structured_observation_is_one_row_of_its_parts():
    encoder = Encoder(STRUCTURED)
    assert [(leaf.key, leaf.kind, leaf.start, leaf.size) for leaf in encoder.leaves] == [
        ("joints", "vector", 0, 2),
        ("mode", "one_hot", 2, 3),
        ("sub.0", "bits", 5, 2),
        ("sub.1", "one_hot", 7, 5),
    ]
    one = {"joints": np.array([0.5, -1], np.float32), "mode": 6, "sub": (np.array([1, 0]), np.array([1, 2]))}
    row = [0.5, -1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1]
    assert encoder.one(one).tolist() == [row]
    assert encoder(batched(STRUCTURED, one)).tolist() == [row]
    assert encoder.continuous.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"observation\[0\] 'joints'\[1\]: nan given, a finite number expected"):
        encoder.check_finite(encoder.one(one | {"joints": np.array([0.5, np.nan], np.float32)}))


def test_bytes_stay_bytes():
    encoder = Encoder(Box(0, 255, (20, 30, 3), np.uint8))
    [leaf] = encoder.leaves
    assert (leaf.kind, leaf.shape, encoder.dtype) == ("image", (3, 20, 30), np.uint8)
    assert Encoder(Box(0, 255, (4, 20, 30), np.uint8)).leaves[0].shape == (4, 20, 30)
    assert Encoder(Box(0, 255, (20, 30), np.uint8)).leaves[0].shape == (1, 20, 30)
    assert Encoder(Box(-1, 1, (3, 4))).leaves[0].kind == "vector"


@pytest.mark.parametrize(
    "space",
    [Text(5), Graph(Box(-1, 1, (2,)), None), Sequence(Discrete(2)), Dict({"words": Text(3)})],
    ids=lambda s: type(s).__name__,
)
def test_other_observations_are_refused_with_a_way_out(space):
    with pytest.raises(
        InputError, match=r"observation space: .* expected; gymnasium.wrappers.TransformObservation can"
    ):
        Encoder(space)


def test_other_actions_are_refused_with_a_way_out():
    for space in (Text(5), Dict({"a": Discrete(2)}), Tuple([Discrete(2)])):
        with pytest.raises(InputError, match=r"action space: .* expected; gymnasium.wrappers.TransformAction can"):
            action_codec(space)
    with pytest.raises(InputError, match=r"action space: .* given, at least one number expected"):
        action_codec(Box(-1, 1, (0,)))
    with pytest.raises(InputError, match=r"squash: true given, but .* has no end in some dimension"):
        action_codec(Box(0, np.inf, (2,)), squash=True)


def test_actions_of_several_parts():
    many = action_codec(MultiDiscrete([2, 3], start=[1, -1]))
    assert many.raw(np.array([[0, 2], [1, 0]])).tolist() == [[1, 1], [2, -1]]
    assert many.describe(np.array([[0, 2]])).tolist() == [[1, 0, 0, 0, 1]]
    bits = action_codec(MultiBinary([2, 2]))
    assert bits.raw(np.array([[0.0, 1.0, 1.0, 0.0]])).tolist() == [[[0, 1], [1, 0]]]
    assert all(bits.space.contains(x) for x in bits.raw(np.ones((3, 4), np.float32)))
    squashed = action_codec(Box(-2, 4, (1,)), squash=True)
    np.testing.assert_allclose(squashed.raw(np.array([[0.5]])), [[1 + 3 * np.tanh(0.5)]])


def test_a_history_by_hand():
    history = History(3, frame=2, action=1)
    assert history.size == 8
    first = history.first(np.array([[1.0, 2.0]]))
    assert first.tolist() == [[1, 2, 1, 2, 1, 2, 0, 0]]
    second = history.next(first, np.array([[7.0]]), np.array([[3.0, 4.0]]))
    assert second.tolist() == [[3, 4, 1, 2, 1, 2, 7, 0]]
    third = history.next(second, np.array([[8.0]]), np.array([[5.0, 6.0]]))
    assert third.tolist() == [[5, 6, 3, 4, 1, 2, 8, 7]]
    assert history.next(third, np.array([[9.0]]), np.array([[0.0, 0.0]])).tolist() == [[0, 0, 5, 6, 3, 4, 9, 8]]
