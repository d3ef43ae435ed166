"""Distributions of actions, described by the actor's outputs (B, o).

    Categorical        logits of A choices                          Fisher metric M   diag(p) − ppᵀ
    MultiCategorical   logits of several independent choices                          a block of these for each
    Bernoulli          logits of m independent bits                                   p(1 − p)
    Gaussian           mean and log std of D numbers                                  1/σ² on the mean, 2 on the log std
    SquashedGaussian   the same before a tanh                                         the same: a bijection changes no KL

Derivatives are torch's. Sampling is NumPy's, from the run's own generator, so that it does not depend on the device.
M is the Fisher matrix in the outputs: the natural gradient's matrix is JᵀMJ, with J the network's Jacobian.
"""

import math
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributions as td
import torch.nn.functional as F
from torch import Tensor

from rcac.deep.spaces import Actions

LOG_STD_RANGE = (-5.0, 2.0)  # a std outside is held at the end: log-probabilities stay finite


class Distribution(Protocol):
    outputs: int  # o, numbers that describe one distribution

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        """log π(a|s) (B,)."""

    def entropy(self, outputs: Tensor) -> Tensor:
        """(B,)"""

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        """KL(π_old(·|s) ‖ π_new(·|s)) (B,)."""

    def metric(self, outputs: Tensor, tangents: Tensor) -> Tensor:
        """M(s) t for tangents (…, B, o)."""

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        """The randomness that `sample` turns into actions."""

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Actions, the actor's own."""

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        """The likeliest actions; for real numbers the mean."""


class MultiCategorical:
    """Independent choices, one logit for each possibility of each."""

    def __init__(self, choices: list[int]) -> None:
        self.choices, self.outputs = choices, sum(choices)

    def _parts(self, outputs: Tensor) -> list[td.Categorical]:
        return [td.Categorical(logits=part, validate_args=False) for part in outputs.split(self.choices, dim=-1)]

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        columns = actions.unbind(dim=-1)
        return _sum(part.log_prob(column) for part, column in zip(self._parts(outputs), columns, strict=True))

    def entropy(self, outputs: Tensor) -> Tensor:
        return _sum(part.entropy() for part in self._parts(outputs))

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return _sum(td.kl_divergence(p, q) for p, q in zip(self._parts(old), self._parts(new), strict=True))

    def metric(self, outputs: Tensor, tangents: Tensor) -> Tensor:
        blocks = zip(outputs.split(self.choices, dim=-1), tangents.split(self.choices, dim=-1), strict=True)
        products = []
        for logits, t in blocks:
            p = torch.softmax(logits, dim=-1)
            products.append(p * (t - (p * t).sum(dim=-1, keepdim=True)))
        return products[0] if len(products) == 1 else torch.cat(products, dim=-1)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        return rng.random((*batch, len(self.choices)), dtype=np.float32)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        parts = np.split(outputs, np.cumsum(self.choices)[:-1], axis=-1)
        return np.stack([_inverse(part, noise[:, k]) for k, part in enumerate(parts)], axis=1)

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        parts = np.split(outputs, np.cumsum(self.choices)[:-1], axis=-1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)


class Categorical(MultiCategorical):
    """One choice: its actions have no axis of their own."""

    def __init__(self, choices: int) -> None:
        super().__init__([choices])

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self._parts(outputs)[0].log_prob(actions)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        return rng.random(batch, dtype=np.float32)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return _inverse(outputs, noise)

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs.argmax(axis=1)

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """(B, A) float64."""
        grown = np.exp(outputs.astype(np.float64) - outputs.max(axis=1, keepdims=True))
        return grown / grown.sum(axis=1, keepdims=True)


def _sum(parts: Any) -> Tensor:
    first, *rest = parts
    return sum(rest, first)


def _inverse(logits: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Choices (B,) int64 by the inverse of the distribution function, at uniform noise (B,)."""
    weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    # The last weight is never compared, so that rounding cannot pass the end.
    passed = weights[:, :-1] <= (noise * weights[:, -1])[:, None]
    return passed.sum(axis=1, dtype=np.int64)


class Independent:
    """One of torch's distributions for each number of an action."""

    def _of(self, outputs: Tensor) -> Any:
        raise NotImplementedError

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return self._of(outputs).log_prob(actions).sum(dim=-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        return self._of(outputs).entropy().sum(dim=-1)

    def kl(self, old: Tensor, new: Tensor) -> Tensor:
        return td.kl_divergence(self._of(old), self._of(new)).sum(dim=-1)


class Bernoulli(Independent):
    """Bits."""

    def __init__(self, count: int) -> None:
        self.outputs = count

    def _of(self, outputs: Tensor) -> td.Bernoulli:
        return td.Bernoulli(logits=outputs, validate_args=False)

    def metric(self, outputs: Tensor, tangents: Tensor) -> Tensor:
        p = torch.sigmoid(outputs)
        return tangents * (p * (1 - p))

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        return rng.random((*batch, self.outputs), dtype=np.float32)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return (noise * (1.0 + np.exp(-np.clip(outputs, -60.0, 60.0))) < 1.0).astype(np.float32)

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return (outputs > 0).astype(np.float32)


class Gaussian(Independent):
    """Real numbers."""

    def __init__(self, count: int) -> None:
        self.count, self.outputs = count, 2 * count

    def _of(self, outputs: Tensor) -> td.Normal:
        mean, log_std = outputs.split(self.count, dim=-1)
        return td.Normal(mean, log_std.clamp(*LOG_STD_RANGE).exp(), validate_args=False)

    def metric(self, outputs: Tensor, tangents: Tensor) -> Tensor:
        log_std = outputs[..., self.count :]
        held = log_std.clamp(*LOG_STD_RANGE)
        free = (log_std == held).to(outputs.dtype)  # a std held at the end of its range does not move
        return tangents * torch.cat([torch.exp(-2 * held), 2.0 * free], dim=-1)

    def noise(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        return rng.standard_normal((*batch, self.count), dtype=np.float32)

    def sample(self, outputs: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return outputs[:, : self.count] + np.exp(np.clip(outputs[:, self.count :], *LOG_STD_RANGE)) * noise

    def mode(self, outputs: np.ndarray) -> np.ndarray:
        return outputs[:, : self.count]


class SquashedGaussian(Gaussian):
    """tanh(u) with u Gaussian. The actor's own actions are u: nothing is lost where tanh is flat."""

    def log_prob(self, outputs: Tensor, actions: Tensor) -> Tensor:
        return super().log_prob(outputs, actions) - _log_slope(actions).sum(dim=-1)

    def entropy(self, outputs: Tensor) -> Tensor:
        """That of u, plus E log tanh'(u) by Gauss–Hermite quadrature."""
        nodes, weights = (outputs.new_tensor(x) for x in _HERMITE)
        normal = self._of(outputs)
        u = normal.mean[..., None] + normal.stddev[..., None] * nodes
        return super().entropy(outputs) + (_log_slope(u) * weights).sum(dim=(-1, -2))


def _log_slope(u: Tensor) -> Tensor:
    """log(1 − tanh² u), exact for large |u|."""
    return 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u))


_HERMITE = tuple(x.tolist() for x in np.polynomial.hermite_e.hermegauss(32))
_HERMITE = (_HERMITE[0], [w / math.sqrt(2 * math.pi) for w in _HERMITE[1]])


def distribution(actions: Actions) -> Distribution:
    if actions.kind == "categorical":
        return Categorical(actions.choices[0])
    if actions.kind == "multi_categorical":
        return MultiCategorical(actions.choices)
    if actions.kind == "bernoulli":
        return Bernoulli(actions.count)
    return SquashedGaussian(actions.count) if actions.squash else Gaussian(actions.count)
