"""Networks, spaces, statistics, settings: NumPy against torch, merged against whole, samples against probabilities."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.deep import forward, networks
from rcac.deep.critics import Critics
from rcac.deep.level import Bisection, bracket
from rcac.deep.passes import Networks
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Moments, action_codec, actions_from_card, encoder_from_card, normalize, observation_encoder
from rcac.errors import InputError


@pytest.mark.parametrize("hidden", [[], [5], [7, 6]])
def test_numpy_and_torch_agree(hidden):
    rng = np.random.default_rng(0)
    sizes = (4, *hidden, 3)
    rows = networks.initial_rows(rng, sizes, 3, 1.0) + 0.1
    inputs = rng.normal(size=(11, 4)).astype(np.float32)
    ours = forward.mlp(forward.unpack(rows, sizes), inputs)
    theirs = Networks(torch.tensor(rows), sizes).at(torch.tensor(inputs)).outputs.mT.numpy()
    assert ours.shape == (3, 11, 3)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
@pytest.mark.parametrize("scale", ["independent", "dependent"])
def test_actor_outputs_agree(kind, scale):
    rng = np.random.default_rng(0)
    shape = forward.actor_shape(4, [6], kind, 3, scale)
    parameters = networks.initial_actor(rng, shape, -0.7)
    assert parameters.shape == (shape.length,)
    inputs = rng.normal(size=(5, 4)).astype(np.float32)
    ours = forward.actor_outputs(shape, parameters, inputs)
    theirs = networks.actor_outputs(shape, torch.tensor(parameters), torch.tensor(inputs)).T.numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    if kind == "gaussian":
        np.testing.assert_allclose(ours[:, 3:], -0.7, atol=0.1)


def test_samples_follow_their_distributions():
    rng = np.random.default_rng(0)
    shape = forward.actor_shape(1, [], "categorical", 3, "independent")
    probabilities = np.array([0.2, 0.5, 0.3])
    outputs = np.log(probabilities)[None].repeat(60_000, axis=0)
    drawn = forward.sample(shape, outputs, forward.noise(shape, rng, (60_000,)))
    np.testing.assert_allclose(np.bincount(drawn) / 60_000, probabilities, atol=0.01)
    assert forward.sample(shape, outputs[:2], np.array([0.0, 1.0])).tolist() == [0, 2]
    assert forward.mode(shape, outputs[:1]).tolist() == [1]
    shape = forward.actor_shape(1, [], "gaussian", 1, "independent")
    outputs = np.tile([[3.0, np.log(0.5)]], (60_000, 1))
    drawn = forward.sample(shape, outputs, forward.noise(shape, rng, (60_000,)))
    assert (drawn.mean(), drawn.std()) == pytest.approx((3.0, 0.5), abs=0.01)


def test_critics_keep_their_values_when_rescaled():
    rows = networks.initial_rows(np.random.default_rng(0), (3, 8, 1), 2, 1.0) + 0.05
    critics = Critics(torch.tensor(rows), (3, 8, 1))
    inputs = np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    critics.rescale(np.array([1.0, 2.0]))  # from zero, where there is no unit and no value yet
    before, norms = critics.values(inputs), critics.norms("all")
    assert (before != 0).all()
    critics.rescale(np.array([10.0, 0.3]))
    np.testing.assert_allclose(critics.values(inputs), before, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(critics.norms("all"), norms, rtol=1e-5)


def test_only_the_selected_critic_is_fitted():
    rows = networks.initial_rows(np.random.default_rng(0), (3, 8, 1), 3, 1.0)
    critics = Critics(torch.tensor(rows), (3, 8, 1))
    states, targets = (torch.tensor(np.random.default_rng(1).normal(size=size)).float() for size in ((64, 3), (3, 64)))
    critics.fit(states, targets, slice(1, 2), DeepSettings(critic_batch=16), np.random.default_rng(0))
    moved = (critics.parameters.numpy() != rows).any(axis=1)
    assert moved.tolist() == [False, True, False]


def test_a_fit_is_least_squares_by_autograd_and_torchs_adam():
    rng = np.random.default_rng(0)
    rows = networks.initial_rows(rng, (3, 8, 5, 1), 2, 1.0).astype(np.float64)
    critics = Critics(torch.tensor(rows), (3, 8, 5, 1))
    critics.scales = np.array([2.0, 0.5])
    states, targets = torch.tensor(rng.normal(size=(40, 3))), torch.tensor(rng.normal(size=(2, 40)))
    options = DeepSettings(critic_batch=16, critic_epochs=3, critic_lr=0.01)
    losses = critics.fit(states, targets, slice(None), options, np.random.default_rng(5))

    modules = [torch.nn.Sequential(*(make() for make in LAYERS)).double() for _ in rows]
    for module, row, scale, target, ours, loss in zip(
        modules, rows, critics.scales, targets, critics.parameters, losses, strict=True
    ):
        for layer, (weight, bias) in zip(module[::2], forward.unpack(row[None], (3, 8, 5, 1)), strict=True):
            layer.weight.data[:], layer.bias.data[:] = torch.tensor(weight[0].T), torch.tensor(bias[0, 0])
        optimiser, order = torch.optim.Adam(module.parameters(), lr=0.01), np.random.default_rng(5)
        for _ in range(3):
            total = 0.0
            for part in torch.from_numpy(order.permutation(40)).split(16):
                error = (module(states[part])[:, 0] - target[part] / scale).square()
                optimiser.zero_grad()
                error.mean().backward()
                optimiser.step()
                total += float(error.detach().sum()) / 40
        expected = torch.cat([part for layer in module[::2] for part in (layer.weight.T.flatten(), layer.bias)])
        torch.testing.assert_close(ours, expected.detach(), rtol=1e-6, atol=1e-8)
        assert loss == pytest.approx(total, rel=1e-6)


LAYERS = (
    lambda: torch.nn.Linear(3, 8),
    torch.nn.Tanh,
    lambda: torch.nn.Linear(8, 5),
    torch.nn.Tanh,
    lambda: torch.nn.Linear(5, 1),
)


def test_a_fit_that_is_not_finite_ends_the_training():
    rows = networks.initial_rows(np.random.default_rng(0), (3, 8, 1), 2, 1.0)
    critics = Critics(torch.tensor(rows), (3, 8, 1))
    targets = torch.full((2, 64), torch.nan)
    with pytest.raises(FloatingPointError, match="a critic's gradient is not finite"):
        critics.fit(torch.ones(64, 3), targets, slice(None), DeepSettings(), np.random.default_rng(0))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_merged_moments_are_those_of_all_rows(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(loc=3, scale=2, size=(n, 2)) for n in sizes]
    moments = Moments(2)
    for batch in batches:
        moments.update(batch)
    rows = np.concatenate(batches)
    assert moments.count == len(rows)
    if len(rows):
        np.testing.assert_allclose(moments.mean, rows.mean(axis=0), atol=1e-10)
        np.testing.assert_allclose(moments.variance, rows.var(axis=0), atol=1e-10)
        np.testing.assert_allclose(moments.square, (rows**2).mean(axis=0), atol=1e-10)


def test_a_constant_observation_is_not_blown_up():
    moments = Moments(2)
    moments.update(np.array([[1.0, 5.0], [3.0, 5.0]]))
    rows = normalize(np.array([[2.0, 5.0], [3.0, 6.0]]), *moments.scale())
    np.testing.assert_allclose(rows, [[0, 0], [1, 1]])


def test_observations_of_every_kind():
    encoder = observation_encoder(Discrete(3, start=5))
    assert encoder(np.array([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert encoder_from_card(encoder.card()) == encoder
    image = observation_encoder(Box(0, 1, (2, 3)))
    assert image(np.arange(12).reshape(2, 2, 3)).shape == (2, 6)
    with pytest.raises(InputError, match="observation space"):
        observation_encoder(Dict({"a": Discrete(2)}))


def test_actions_of_every_kind():
    assert action_codec(Discrete(3, start=-1)).raw(np.array([0, 2])).tolist() == [-1, 1]
    bounded = action_codec(Box(np.array([-2.0, 0.0], dtype=np.float32), np.array([2.0, 10.0], dtype=np.float32)))
    assert bounded.raw(np.array([[0.0, 0.0], [5.0, -5.0]])).tolist() == [[0, 5], [2, 0]]
    assert actions_from_card(bounded.card()) == bounded
    free = action_codec(Box(-np.inf, np.inf, (2, 1), np.float32))
    assert free.raw(np.array([[7.0, -9.0]], dtype=np.float32)).tolist() == [[[7], [-9]]]
    with pytest.raises(InputError, match="action space"):
        action_codec(MultiDiscrete([2, 2]))


def test_bisection():
    start = bracket(-1.0, -1.0, 0.99)
    assert (start.low, start.high, start.level) == pytest.approx((-100.0, 0.0, -50.0))
    assert start.halved(reached=True) == Bisection(start.low, start.level)
    assert start.halved(reached=False) == Bisection(start.level, start.high)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("switch", "sarsa"),
        ("step", ""),
        ("gamma", 1.0),
        ("gamma", float("nan")),
        ("radius", -1e-9),
        ("lam", 0.0),
        ("num_envs", 0),
        ("num_envs", 2.5),
        ("rollout_length", True),
        ("kl_radius", float("inf")),
        ("actor_hidden", [64, 0]),
        ("epigraph_low", -3.0),
    ],
)
def test_settings_are_refused_by_name_and_value(name, value):
    with pytest.raises(InputError, match=name) as caught:
        DeepSettings(**{name: value})
    assert "expected" in str(caught.value)


def test_settings_fit_a_structured_config():
    from omegaconf import OmegaConf

    config = OmegaConf.merge(OmegaConf.structured(DeepSettings), {"step": "sqp", "critic_hidden": [8]})
    made = OmegaConf.to_object(config)
    assert made == dataclasses.replace(DeepSettings(), step="sqp", critic_hidden=[8])


def test_acting_needs_no_torch():
    code = "import sys, rcac.deep.act; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
