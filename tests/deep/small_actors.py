"""One small actor of each kind: network, spaces, distribution."""

from itertools import product
from unittest.mock import patch

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import nn

from rcac.deep import build, networks
from rcac.deep.distributions import (
    Bernoulli,
    Categorical,
    Gaussian,
    MultiCategorical,
    SquashedGaussian,
)
from rcac.deep.settings import DeepSettings

VECTOR = Box(-np.inf, np.inf, (3,))
MIXED = Dict({"x": Box(-1, 1, (2,)), "mode": Discrete(2), "more": Tuple([MultiBinary(2), MultiDiscrete([2, 2])])})
SPACES = {
    "mlp": (VECTOR, Discrete(3), {}),
    "relu_norm": (VECTOR, Discrete(3), {"activation": "elu", "layer_norm": True}),
    "cnn": (Box(0, 255, (5, 6, 2), np.uint8), Discrete(3), {}),
    "dict": (MIXED, Discrete(3), {}),
    "history": (VECTOR, Discrete(2), {"history": 3}),
    "shared": (VECTOR, Discrete(3), {"shared_body": True}),
    "custom": (VECTOR, Discrete(3), {}),
    "attention": (VECTOR, Discrete(3), {}),
    "multi": (VECTOR, MultiDiscrete([2, 3]), {}),
    "bernoulli": (VECTOR, MultiBinary(3), {}),
    "gaussian": (VECTOR, Box(-1, 1, (2,)), {}),
    "dependent": (VECTOR, Box(-1, 1, (2,)), {"gaussian_scale": "dependent"}),
    "squashed": (VECTOR, Box(-1, 1, (2,)), {"squash": True}),
}
KINDS = list(SPACES)


class Custom(nn.Module):
    """A body of the user's: a gate, a residual connection."""

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.first, self.gate = nn.Linear(space.shape[0], 4), nn.Linear(space.shape[0], 4)
        self.second = nn.Linear(4, 4)
        self.out_features = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) * torch.sigmoid(self.gate(x))
        return hidden + torch.tanh(self.second(hidden))


class Attention(nn.Module):
    """Fused attention over the numbers of a vector; one layer is not used, one is frozen."""

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.embed, self.frozen, self.unused = nn.Linear(1, 4), nn.Linear(4, 4), nn.Linear(3, 2)
        self.frozen.requires_grad_(False)
        self.out_features = 4

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x[..., None])[:, None]
        return self.frozen(nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)[:, 0].mean(dim=1))


CUSTOM = {"custom": Custom, "attention": Attention}


def small(kind: str, count: int = 4):
    """An actor (in float64), its distribution, and rows; its weights are not small."""
    if kind == "bandit":
        observation, action, changes = VECTOR, Discrete(4), {"actor_hidden": [8]}
    else:
        observation, action, changes = SPACES[kind]
    settings = DeepSettings(**{"actor_hidden": [4], "critic_hidden": [4], **changes})
    between = build.interface(observation, action, settings)
    rng = np.random.default_rng(0)
    thin = [(3, kernel, stride) for _, kernel, stride in networks.SMALL]  # explicit matrices are of all parameters
    with patch.object(networks, "SMALL", thin):
        made = build.networks(between, settings, 2, rng, CUSTOM.get(kind))
    if kind == "bandit":
        return made.actor, made.distribution, None
    actor = made.actor.double()
    with torch.no_grad():
        for p in actor.parameters():
            p.copy_(torch.tensor(0.5 * rng.normal(size=p.shape)))
    observation.seed(0)
    frames = np.concatenate([between.encoder.one(observation.sample()) for _ in range(count)])
    rows = between.history.first(frames)
    if settings.history > 1:
        for _ in range(3):
            frames = np.concatenate([between.encoder.one(observation.sample()) for _ in range(count)])
            rows = between.history.next(rows, np.eye(2, dtype=np.float32)[rng.integers(2, size=count)], frames)
    rows = torch.from_numpy(rows)
    return actor, made.distribution, rows if rows.dtype == torch.uint8 else rows.double()


def some_actions(law, count, seed=2):
    rng = np.random.default_rng(seed)
    if isinstance(law, Gaussian):
        return torch.tensor(rng.normal(size=(count, law.count)))
    if isinstance(law, Bernoulli):
        return torch.tensor(rng.integers(2, size=(count, law.outputs)).astype(float))
    columns = np.stack([rng.integers(n, size=count) for n in law.choices], axis=1)
    return torch.tensor(columns[:, 0] if isinstance(law, Categorical) else columns)


# Every action of a distribution with its probability; of a Gaussian, nodes of a quadrature


def _categorical(law, outputs):
    return torch.softmax(outputs[0], 0).tolist(), torch.arange(law.outputs)


def _multi(law, outputs):
    parts = [torch.softmax(part, 0) for part in outputs[0].split(law.choices)]
    actions = list(product(*(range(n) for n in law.choices)))
    return [float(np.prod([p[a] for p, a in zip(parts, action, strict=True)])) for action in actions], torch.tensor(
        actions
    )


def _bernoulli(law, outputs):
    p = torch.sigmoid(outputs[0]).numpy()
    actions = np.array(list(product((0.0, 1.0), repeat=law.outputs)))
    return np.prod(np.where(actions == 1, p, 1 - p), axis=1).tolist(), torch.tensor(actions)


def _gaussian(law, outputs):
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    weights = weights / weights.sum()
    mean, std = outputs[0, : law.count].numpy(), np.exp(outputs[0, law.count :].numpy())
    grid = list(product(range(5), repeat=law.count))
    return [float(np.prod(weights[list(k)])) for k in grid], torch.tensor(
        np.array([mean + std * nodes[list(k)] for k in grid])
    )


LAWS = {
    Categorical: _categorical,
    MultiCategorical: _multi,
    Bernoulli: _bernoulli,
    Gaussian: _gaussian,
    SquashedGaussian: _gaussian,
}
