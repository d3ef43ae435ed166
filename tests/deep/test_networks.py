"""Networks, distributions, critics, statistics, settings: NumPy against torch, merged against whole, samples against probabilities."""

import dataclasses

import numpy as np
import pytest
import torch
from deep.small_actors import KINDS, SPACES, small
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rcac.deep import build
from rcac.deep.acting import _numpy_copy, outputs_of
from rcac.deep.critics import Critics
from rcac.deep.distributions import Bernoulli, Categorical, Gaussian, MultiCategorical, SquashedGaussian
from rcac.deep.networks import CLIP, MLP, Convolutions, Input, Preprocess, StandardBody, orthogonal_
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Encoder, History, Moments
from rcac.deep.switching import bracket
from rcac.errors import InputError
from rcac.switch import Bisection

# Bodies and heads


@pytest.mark.parametrize("kind", KINDS)
def test_the_numpy_copy_of_a_plain_stack_says_what_the_module_says(kind):
    actor, _, rows = small(kind, count=9)
    actor, rows = actor.float(), rows if rows.dtype == torch.uint8 else 5 * rows.float()
    if len(actor.preprocess.mean):
        actor.preprocess.set_moments(
            *(np.float32(x) + np.zeros(len(actor.preprocess.mean), np.float32) for x in (0.3, 0.2))
        )
    with torch.no_grad():
        expected = actor(rows).numpy()
    plain = _numpy_copy(actor) is not None
    assert plain == (kind in ("mlp", "history", "shared", "multi", "bernoulli", "gaussian", "dependent", "squashed"))
    np.testing.assert_allclose(outputs_of(actor)(rows.numpy()), expected, rtol=1e-4, atol=1e-5)


def test_relu_is_a_plain_stack_too():
    between = build.interface(*SPACES["mlp"][:2], DeepSettings(activation="relu"))
    made = build.networks(between, DeepSettings(activation="relu"), 1, np.random.default_rng(0))
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    with torch.no_grad():
        np.testing.assert_allclose(
            _numpy_copy(made.actor)(rows), made.actor(torch.from_numpy(rows)), rtol=1e-4, atol=1e-6
        )


def test_weights_are_orthogonal_at_first():
    body = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 7), nn.Conv2d(2, 4, 3))
    orthogonal_(body, 1.5, np.random.default_rng(0))
    for layer in body:
        weight = layer.weight.detach().flatten(1).numpy()
        gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
        np.testing.assert_allclose(gram, 1.5**2 * np.eye(len(gram)), atol=1e-5)
        assert not layer.bias.detach().any()


def test_what_a_body_is_given():
    space = Dict({"camera": Box(0, 255, (20, 24, 3), np.uint8), "speed": Box(-9, 9, (2,)), "gear": Discrete(3)})
    encoder = Encoder(space)
    pre = Preprocess(encoder, History(1, encoder.size, 2))
    pre.set_moments(np.array([1.0, 2.0], np.float32), np.array([2.0, 1e-3], np.float32))
    space.seed(0)
    seen = space.sample()
    given = pre(torch.from_numpy(encoder.one(seen)))
    np.testing.assert_allclose(given["camera"][0], seen["camera"].transpose(2, 0, 1) / 255, rtol=1e-6)
    expected = np.clip((seen["speed"] - [1, 2]) / [2, 1e-3], -CLIP, CLIP)
    np.testing.assert_allclose(given["speed"][0], expected, rtol=1e-5)
    assert given["gear"][0].tolist() == np.eye(3)[seen["gear"]].tolist()
    assert {key: part.shape for key, part in pre.space.items()} == {key: tuple(x.shape[1:]) for key, x in given.items()}
    stacked = Preprocess(encoder, History(2, encoder.size, 2))
    given = stacked(torch.zeros(4, stacked.history.size))
    assert {key: tuple(x.shape) for key, x in given.items()} == {
        "camera": (4, 6, 20, 24),
        "speed": (4, 2, 2),
        "gear": (4, 2, 3),
        "actions": (4, 1, 2),
    }


@pytest.mark.parametrize(
    ("space", "history", "key"),
    [
        (Dict({"a.b": Box(-1, 1, (1,)), "a": Dict({"b": Box(-1, 1, (2,))})}), 1, "a.b"),
        (Dict({"": Box(-1, 1, (1,)), "observation": Box(-1, 1, (2,))}), 1, "observation"),
        (Dict({"actions": Box(-1, 1, (1,)), "x": Box(-1, 1, (2,))}), 2, "actions"),
    ],
)
def test_no_part_of_an_observation_is_lost_to_another_of_its_name(space, history, key):
    encoder = Encoder(space)
    with pytest.raises(InputError, match=rf"observation space: '{key}' given as the key of two parts"):
        Preprocess(encoder, History(history, encoder.size, 2))


@pytest.mark.parametrize("shape", [(4, 84, 84), (1, 12, 12), (3, 5, 6), (3, 36, 40)])
def test_convolutions_fit_any_image(shape):
    body = Convolutions(shape)
    assert body(torch.zeros(2, *shape)).shape == (2, body.out_features)


def test_keys_meet_before_the_head():
    """The exclusive or of two keys is no sum of a function of each."""
    torch.manual_seed(0)
    body = StandardBody({key: Input((1,), "vector") for key in "ab"}, True, [8, 8], "tanh", False)
    a, b = (torch.tensor(x)[:, None].float() for x in ([0, 0, 1, 1], [0, 1, 0, 1]))
    features = body({"a": a, "b": b}).detach()
    assert float((features[0] - features[1] - features[2] + features[3]).abs().max()) > 1e-3


def test_a_shared_body_is_one():
    between = build.interface(*SPACES["shared"][:2], DeepSettings(shared_body=True))
    made = build.networks(between, DeepSettings(shared_body=True), 3, np.random.default_rng(0))
    assert all(body is made.actor.body for body in made.critics.bodies)
    names = [name for name, _ in made.critics.named_parameters()]
    assert len(names) == 4 + 3 * 2  # two layers, three heads


# Distributions


def test_log_probabilities_by_hand():
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64))
    assert float(Categorical(3).log_prob(logits, torch.tensor([1]))) == pytest.approx(np.log(0.5))
    both = torch.cat([logits, torch.log(torch.tensor([[0.1, 0.9]], dtype=torch.float64))], dim=1)
    assert float(MultiCategorical([3, 2]).log_prob(both, torch.tensor([[2, 1]]))) == pytest.approx(np.log(0.3 * 0.9))
    odds = torch.log(torch.tensor([[0.25, 4.0]], dtype=torch.float64))  # p = .2 and .8
    assert float(Bernoulli(2).log_prob(odds, torch.tensor([[1.0, 1.0]]))) == pytest.approx(np.log(0.2 * 0.8))
    outputs = torch.tensor([[1.0, np.log(2.0)]], dtype=torch.float64)
    density = np.exp(-((3 - 1) ** 2) / 8) / (2 * np.sqrt(2 * np.pi))
    assert float(Gaussian(1).log_prob(outputs, torch.tensor([[3.0]]))) == pytest.approx(np.log(density))


def test_a_squashed_density_integrates_to_one_and_has_its_entropy():
    outputs = torch.tensor([[0.4, np.log(0.8)]], dtype=torch.float64)
    y = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[1:-1]
    logs = SquashedGaussian(1).log_prob(outputs.expand(len(y), -1), torch.atanh(y)[:, None])
    assert float(torch.trapezoid(logs.exp(), y)) == pytest.approx(1.0, abs=1e-4)
    entropy = -float(torch.trapezoid(logs.exp() * logs, y))
    assert float(SquashedGaussian(1).entropy(outputs)) == pytest.approx(entropy, abs=1e-3)


def test_a_log_std_outside_its_range_is_held_at_the_end():
    law, mean, action = Gaussian(2), torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    for outside, end in ((50.0, 2.0), (-50.0, -5.0)):
        one, other = (torch.cat([mean, torch.full_like(mean, value)], dim=1) for value in (outside, end))
        torch.testing.assert_close(law.log_prob(one, action), law.log_prob(other, action))
        torch.testing.assert_close(law.kl(one, other), torch.zeros(1, dtype=torch.float64))
        assert law.metric(one, torch.ones(1, 1, 4))[0, 0, 2:].tolist() == [0.0, 0.0]


def test_samples_follow_their_distributions():
    rng, count = np.random.default_rng(0), 60_000
    p = np.array([0.2, 0.5, 0.3])

    def sampled(law, row):
        outputs = np.tile(np.array([row]), (count, 1))
        return law.sample(outputs, law.noise(rng, (count,)))

    np.testing.assert_allclose(np.bincount(sampled(Categorical(3), np.log(p))) / count, p, atol=0.01)
    assert Categorical(3).sample(np.log(p)[None].repeat(2, 0), np.array([0.0, 1.0])).tolist() == [0, 2]
    assert Categorical(3).mode(np.log(p)[None]).tolist() == [1]
    both = sampled(MultiCategorical([3, 2]), np.log([*p, 0.1, 0.9]))
    np.testing.assert_allclose(
        np.bincount(both[:, 0] * 2 + both[:, 1]) / count, np.outer(p, [0.1, 0.9]).ravel(), atol=0.01
    )
    bits = sampled(Bernoulli(2), np.log([0.25, 4.0]))
    np.testing.assert_allclose(bits.mean(axis=0), [0.2, 0.8], atol=0.01)
    assert Bernoulli(2).mode(np.log([[0.25, 4.0]])).tolist() == [[0, 1]]
    numbers = sampled(Gaussian(1), [3.0, np.log(0.5)])
    assert (numbers.mean(), numbers.std()) == pytest.approx((3.0, 0.5), abs=0.01)


# Critics


def critics(count=2, widths=(8,), dtype=torch.float32):
    encoder = Encoder(Box(-np.inf, np.inf, (3,)))
    rng = np.random.default_rng(0)
    bodies = [MLP(3, list(widths)) for _ in range(count)]
    made = Critics(Preprocess(encoder, History(1, 3, 2)), bodies, rng).to(dtype)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.tensor(0.3 * rng.normal(size=p.shape)))
    return made


def fitted(made, states, targets, chosen, options):
    optimizer = torch.optim.Adam(made.parameters(), lr=options.critic_lr, fused=True)
    return made.fit(optimizer, states, targets, chosen, options, np.random.default_rng(5))


def test_critics_keep_their_values_when_rescaled():
    made, rows = critics(), np.random.default_rng(1).normal(size=(6, 3)).astype(np.float32)
    assert not made.values(rows).any()  # before anything was seen
    made.rescale(np.array([1.0, 2.0]))  # from zero, where there is no unit and no value yet
    before, norms = made.values(rows), made.norms("all")
    assert (before != 0).all()
    made.rescale(np.array([10.0, 0.3]))
    np.testing.assert_allclose(made.values(rows), before, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made.norms("all"), norms, rtol=1e-5)


def test_only_the_selected_critics_are_fitted():
    made = critics(3)
    before = [
        [p.detach().clone() for p in (*body.parameters(), *head.parameters())]
        for body, head in zip(made.bodies, made.heads, strict=True)
    ]
    states, targets = (torch.tensor(np.random.default_rng(1).normal(size=size)).float() for size in ((64, 3), (3, 64)))
    fitted(made, states, targets, [1], DeepSettings(critic_batch=16))
    after = [[*body.parameters(), *head.parameters()] for body, head in zip(made.bodies, made.heads, strict=True)]
    moved = [any(not torch.equal(p, q) for p, q in zip(a, b, strict=True)) for a, b in zip(before, after, strict=True)]
    assert moved == [False, True, False]


def test_a_fit_is_least_squares():
    made = critics(widths=(), dtype=torch.float64)
    made.rescale(np.array([2.0, 0.5]))
    rng = np.random.default_rng(0)
    states, targets = rng.normal(size=(200, 3)), rng.normal(size=(2, 200))
    options = DeepSettings(critic_batch=200, critic_epochs=2000, critic_lr=0.01)
    losses = fitted(made, torch.tensor(states), torch.tensor(targets), [0, 1], options)
    features = np.column_stack([states, np.ones(200)])
    expected = (features @ np.linalg.lstsq(features, targets.T, rcond=None)[0]).T
    np.testing.assert_allclose(made.values(states), expected, atol=1e-4)
    np.testing.assert_allclose(losses, np.mean(((expected - targets) / [[2.0], [0.5]]) ** 2, axis=1), rtol=1e-4)


def test_a_fit_that_is_not_finite_ends_the_training():
    with pytest.raises(FloatingPointError, match="a critic's gradient is not finite"):
        fitted(critics(), torch.ones(64, 3), torch.full((2, 64), torch.nan), [0, 1], DeepSettings())


# Statistics and settings


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


def test_a_coordinate_that_never_moved_keeps_its_scale():
    moments = Moments(2)
    moments.update(np.array([[1.0, 5.0], [3.0, 5.0]]))
    mean, std = moments.scale()
    np.testing.assert_allclose((np.array([[2.0, 5.0], [3.0, 6.0]]) - mean) / std, [[0, 0], [1, 1]])


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
        ("activation", "cosine"),
        ("history", 0),
        ("kp", -1.0),
        ("device", "abacus"),
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
