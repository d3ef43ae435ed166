"""What an actor step is given, what it returns, and what the steps share.

L_n(θ) = E[ π_θ(a|s)/π_old(a|s) · A_n(s,a) ]       the surrogate of cost n: at θ_old its gradient is that of J_n,
                                                   but for the factor `ActorStepInputs.steps`
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rcac.deep.distributions import Distribution
from rcac.deep.settings import DeepSettings

CHUNK = 4096  # rows that are evaluated at once
SHRINK = 0.8  # a rejected step keeps this much of its length


class Batch(NamedTuple):
    """The transitions of one rollout, reset steps left out."""

    observations: Tensor  # (B, d)
    actions: Tensor  # (B,) or (B, D)
    advantages: Tensor  # (K, B), cost form
    targets: Tensor  # (K, B), for the critics
    contexts: Tensor | None = None  # (B, c), for the critics


class ActorStepInputs(NamedTuple):
    """One actor step to take. A step moves `actor` in place."""

    actor: nn.Module  # rows (B, d) → outputs (B, o)
    distribution: Distribution  # what the outputs describe
    optimizer: torch.optim.Optimizer  # Adam on the actor's parameters (gradient)
    batch: Batch
    weights: np.ndarray  # (K,) of the switch, on the costs
    excess: np.ndarray  # (N,) J_n − b_n + ξ, discounted
    steps: float  # J_n for each unit of L_n: the discounted steps of an episode
    directions: Tensor | None  # (K, P) H⁻¹∇J_n where the advantages come with them, up to the factor of L_n
    settings: DeepSettings
    rate: float  # the schedule's factor on learning rate and KL radius
    rng: np.random.Generator  # for minibatches and subsamples


class ActorUpdate(NamedTuple):
    """What a step was."""

    skipped: bool  # not finite, or rejected at every length: the actor stayed
    kl: float  # mean KL(π_old‖π)
    entropy: float  # mean entropy of π
    recovery: bool = False  # the step only lowered violations


class Flat:
    """The parameters of a module as one vector (P,)."""

    def __init__(self, module: nn.Module) -> None:
        self.tensors = [p for p in module.parameters() if p.requires_grad]
        self.sizes = [p.numel() for p in self.tensors]

    def get(self) -> Tensor:
        return torch.cat([p.detach().flatten() for p in self.tensors])

    def set(self, vector: Tensor) -> None:
        with torch.no_grad():
            for p, part in zip(self.tensors, vector.split(self.sizes), strict=True):
                p.copy_(part.view_as(p))

    def split(self, rows: Tensor) -> list[Tensor]:
        """(R, P) as a list of (R, *shape)."""
        parts = rows.split(self.sizes, dim=1)
        return [
            part.unflatten(1, p.shape) if p.ndim else part.squeeze(1)
            for p, part in zip(self.tensors, parts, strict=True)
        ]

    def join(self, parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
        """A list of (R, *shape) as (R, P)."""
        return torch.cat([part.flatten(1) if part.ndim > 1 else part[:, None] for part in parts], dim=1)


def mixture(inputs: ActorStepInputs) -> Tensor:
    """(K,) what each cost's advantages are multiplied by. One cost alone: its weight. Several: each in units of its
    own spread, so that multipliers do not depend on the units of costs."""
    advantages = inputs.batch.advantages
    weights = torch.as_tensor(inputs.weights, dtype=advantages.dtype, device=advantages.device)
    if inputs.settings.normalize_advantages and np.count_nonzero(inputs.weights) > 1:
        weights = weights / (advantages.std(dim=1, correction=0) + 1e-8)
    return weights


def weighted_advantage(inputs: ActorStepInputs) -> Tensor:
    """(B,) the switch's mixture; normalised if the settings say so."""
    descended = np.flatnonzero(inputs.weights).tolist()
    advantage = mixture(inputs)[descended] @ inputs.batch.advantages[descended]
    if inputs.settings.normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    return advantage


def minibatches(size: int, rng: np.random.Generator, *samples: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """One pass over samples (B, …) in random order. What has to move to the device moves once."""
    order = torch.from_numpy(rng.permutation(len(samples[0]))).to(samples[0].device)
    yield from zip(*(sample[order].split(size) for sample in samples), strict=True)


def finite(tensor: Tensor, name: str) -> Tensor:
    """The tensor, or an end to the training: a gradient that is not finite comes of something that stays."""
    if not bool(torch.isfinite(tensor).all()):
        raise FloatingPointError(f"{name} is not finite")
    return tensor


def line_search(
    inputs: ActorStepInputs,
    direction: Tensor,
    old: Tensor,
    radius: float,
    accept: Callable[[Tensor], bool],
    recovery: bool = False,
) -> ActorUpdate:
    """θ_old + direction, shortened until its KL is within `radius` and `accept` agrees with its outputs (B, o)."""
    flat, law = Flat(inputs.actor), inputs.distribution
    start = flat.get()
    with torch.no_grad():
        if bool(torch.isfinite(direction).all()):
            for rejections in range(inputs.settings.backtracks + 1):
                flat.set(start + direction * SHRINK**rejections)
                new = inputs.actor(inputs.batch.observations)
                step_kl = float(law.kl(old, new).mean())
                if step_kl <= radius and accept(new):
                    return ActorUpdate(False, step_kl, float(law.entropy(new).mean()), recovery)
            flat.set(start)
        return ActorUpdate(True, 0.0, float(law.entropy(old).mean()), recovery)
