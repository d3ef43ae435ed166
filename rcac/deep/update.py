"""What an actor step is given, what it returns, and what the steps share.

L_n(θ) = E[ π_θ(a|s)/π_old(a|s) · A_n(s,a) ]       the surrogate of cost n: at θ_old its gradient is that of J_n,
                                                   but for the factor `Task.steps`
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.forward import ActorShape
from rcac.deep.settings import DeepSettings

SHRINK = 0.8  # a refused step keeps this share of its length


class Batch(NamedTuple):
    """The transitions of one rollout, reset steps left out."""

    observations: Tensor  # (B, d)
    actions: Tensor  # (B,) or (B, D)
    advantages: Tensor  # (K, B), cost form
    targets: Tensor  # (K, B), for the critics


class Task(NamedTuple):
    """One actor step to take."""

    shape: ActorShape
    parameters: Tensor  # θ_old (P,)
    batch: Batch
    chosen: int  # the cost that the switch chose
    weight: float  # the switch's factor on it
    excess: np.ndarray  # (N,) J_n − b_n + ξ, discounted
    steps: float  # J_n for each unit of L_n: the discounted steps of an episode
    directions: Tensor | None  # (K, P) H⁻¹∇J_n where the advantages come with them, up to the factor of L_n
    settings: DeepSettings
    rate: float  # the schedule's factor on learning rate and KL radius
    rng: np.random.Generator  # for minibatches and subsamples


class Taken(NamedTuple):
    """The actor after a step, and what the step was."""

    parameters: Tensor  # (P,)
    skipped: bool  # not finite, or refused at every length: the actor stayed
    kl: float  # mean KL(π_old‖π)
    entropy: float  # mean entropy of π
    recovery: bool  # the step only lowered violations


def chosen_advantage(task: Task) -> Tensor:
    """(B,) of the chosen cost times the switch's weight; normalised if the settings say so (the weight drops out)."""
    advantage = task.weight * task.batch.advantages[task.chosen]
    if task.settings.normalize_advantages:
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    return advantage


def finite(tensor: Tensor, name: str) -> Tensor:
    """The tensor, or an end to the training: a gradient that is not finite comes of something that stays."""
    if not bool(torch.isfinite(tensor).all()):
        raise FloatingPointError(f"{name} is not finite")
    return tensor


def stay(task: Task, old: Tensor, recovery: bool = False) -> Taken:
    return Taken(task.parameters, True, 0.0, float(networks.entropy(task.shape, old).mean()), recovery)


def line_search(
    task: Task, direction: Tensor, old: Tensor, radius: float, accept: Callable[[Tensor], bool], recovery: bool = False
) -> Taken:
    """θ_old + direction, shortened until its KL is within `radius` and `accept` agrees with its outputs (o, B)."""
    if not bool(torch.isfinite(direction).all()):
        return stay(task, old, recovery)
    with torch.no_grad():
        for refusals in range(task.settings.backtracks + 1):
            parameters = task.parameters + direction * SHRINK**refusals
            new = networks.actor_outputs(task.shape, parameters, task.batch.observations)
            step_kl = float(networks.kl(task.shape, old, new).mean())
            if step_kl <= radius and accept(new):
                entropy = float(networks.entropy(task.shape, new).mean())
                return Taken(parameters, False, step_kl, entropy, recovery)
    return stay(task, old, recovery)
