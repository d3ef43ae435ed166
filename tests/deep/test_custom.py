"""Bodies of the user's: what is taken, what is refused and why."""

import copy

import numpy as np
import pytest
import torch
from deep.small_actors import SPACES, Custom
from torch import nn
from torch.optim.swa_utils import AveragedModel

from rcac.deep import build
from rcac.deep.custom import check_stateless
from rcac.deep.settings import DeepSettings
from rcac.deep.steps.base import Flat
from rcac.deep.steps.fisher import Jacobian, outputs_to_differentiate
from rcac.deep.trainer import averaging
from rcac.errors import InputError


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (nn.BatchNorm1d(4), "must not depend on the rest of a batch"),
        (nn.Dropout(0.1), "the same observation must give the same output"),
    ],
)
def test_bodies_that_mix_or_drop_are_refused(part, reason):
    class Body(nn.Module):
        def __init__(self, space):
            super().__init__()
            self.layers, self.out_features = nn.Sequential(nn.Linear(3, 4), part), 4

        def forward(self, x):
            return self.layers(x)

    between = build.interface(*SPACES["mlp"][:2], DeepSettings())
    with pytest.raises(InputError, match=rf"network: {type(part).__name__} \(layers.1\) .*{reason}"):
        build.networks(between, DeepSettings(), 1, np.random.default_rng(0), Body)
    check_stateless(nn.Sequential(nn.Dropout(0.0), nn.Dropout(0.5).eval(), nn.LayerNorm(3)))


def test_bodies_without_a_width_or_that_are_none():
    between = build.interface(*SPACES["mlp"][:2], DeepSettings())
    with pytest.raises(InputError, match="network: Identity has out_features None, a width ≥ 1 expected"):
        build.networks(between, DeepSettings(), 1, np.random.default_rng(0), lambda space: nn.Identity())
    with pytest.raises(InputError, match=r"network: .* made 3, a torch.nn.Module expected"):
        build.networks(between, DeepSettings(), 1, np.random.default_rng(0), lambda space: 3)


def test_a_users_body_is_drawn_from_the_runs_seed():
    between = build.interface(*SPACES["mlp"][:2], DeepSettings())
    one, same, other = (
        build.networks(between, DeepSettings(), 1, np.random.default_rng(seed), Custom).actor.body.first.weight
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


class Plain(nn.Module):
    """What each of the bodies below differs from in one thing."""

    def __init__(self, space, width=4):
        super().__init__()
        self.layer, self.out_features = nn.Linear(3, 4), width

    def forward(self, x):
        return self.layer(x)


class Wide(Plain):
    def __init__(self, space):
        super().__init__(space, width=5)


class Mixes(Plain):
    def forward(self, x):
        return self.layer(x) - x.mean()


class Drops(Plain):
    def forward(self, x):
        return torch.dropout(self.layer(x), 0.5, True)


class Narrow(Plain):
    def forward(self, x):
        return self.layer(x[:, :2])


class Twofold(Plain):
    def forward(self, x):
        return self.layer(x), x


class Double(Plain):
    def forward(self, x):
        return self.layer(x).double()


class Counts(Plain):
    """As spectral_norm does, and whatever keeps statistics of batches."""

    def __init__(self, space):
        super().__init__(space)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


class Broken(Plain):
    def __init__(self, space):
        super().__init__(space["camera"])


def networks(body, seed=0, critic=None, **changes):
    settings = DeepSettings(**changes)
    between = build.interface(*SPACES["mlp"][:2], settings)
    return build.networks(between, settings, 2, np.random.default_rng(seed), body, critic)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (Wide, r"Wide gave \(3, 4\) for a batch of 3, \(3, 5\) expected, out_features wide"),
        (Mixes, "Mixes gave outputs that depend on the rest of a batch, one for each row expected"),
        (Drops, r"Drops gave two outputs for the same observation \(dropout, .*\), the same one expected"),
        (Narrow, r"Narrow raised RuntimeError\(.*\) for a batch of Box\(-inf, inf, \(3,\), float32\)"),
        (Twofold, r"Twofold gave tuple for a batch of 3, \(3, 4\) expected"),
        (Double, r"Double gave torch.float64, torch.float32 expected"),
        (Counts, "Counts changed its buffer calls when called, one that stays the same expected"),
        (Broken, r"Broken\(Box\(.*\)\) raised TypeError\(.*\), a torch.nn.Module expected from it"),
    ],
)
def test_a_body_is_tried_before_a_training_begins(body, line):
    with pytest.raises(InputError, match=f"network: {line}"):
        networks(body)


def test_a_body_is_given_or_named():
    with pytest.raises(InputError, match="actor: Plain given with network 'other', one of the two expected"):
        networks(Plain, network="other")
    with pytest.raises(InputError, match="critic: Plain given with shared_body, where the actor's is every critic's"):
        networks(Plain, critic=Plain, shared_body=True)


def test_a_module_is_copied_for_the_actor_and_each_critic():
    given = Plain(None)
    before = copy.deepcopy(given.state_dict())
    made = networks(given)
    bodies = [made.actor.body, *made.critics.bodies]
    assert len({id(body) for body in [given, *bodies]}) == 4
    for body in bodies:
        assert all(torch.equal(x, before[name]) for name, x in body.state_dict().items())


def test_trying_a_body_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    networks(Custom)
    assert torch.equal(torch.get_rng_state(), before)


class Picks(Plain):
    """Its buffer says which observations it takes."""

    def __init__(self, space):
        super().__init__(space)
        self.register_buffer("order", torch.arange(100))


def test_indices_in_a_body_are_not_averaged():
    body = Picks(None)
    average = AveragedModel(body, multi_avg_fn=averaging(0.989), use_buffers=True)
    average.update_parameters(body)
    with torch.no_grad():
        body.layer.bias.add_(1.0)
    average.update_parameters(body)
    assert torch.equal(average.module.order, torch.arange(100))
    torch.testing.assert_close(average.module.layer.bias, body.layer.bias - 0.989)


class Bag(Plain):
    def __init__(self, space):
        super().__init__(space)
        self.bag = nn.EmbeddingBag(5, 4)

    def forward(self, x):
        return self.bag(x.long().clamp(0, 4))


def test_a_part_without_a_second_derivative_is_named():
    actor = networks(Bag).actor
    jacobian = Jacobian(outputs_to_differentiate(actor, torch.zeros(2, 3)), Flat(actor))
    with pytest.raises(
        InputError, match=r"network: a part without a second derivative given .*_embedding_bag_backward"
    ):
        jacobian.times(torch.ones(1, sum(Flat(actor).sizes)))


class Fixed(nn.Module):
    """Nothing to learn but the head."""

    out_features = 3

    def __init__(self, space):
        super().__init__()

    def forward(self, x):
        return 2 * x


def test_the_norm_of_a_critic_whose_body_has_no_parameters_is_its_heads():
    critics = networks(Fixed).critics
    critics.rescale(np.array([1.0, 2.0]))
    assert critics.norms("last_layer").all()
    np.testing.assert_array_equal(critics.norms("all"), critics.norms("last_layer"))
