"""The torch side of the networks in `rcac.deep.forward`: first parameters, norms, and distributions with derivatives.

V_n(s) = k_n · z_n(s)         k_n a fixed positive scale per critic, so that z_n is of order one
‖w_n‖₂                        last_layer: k_n·W_L          all: every parameter but b_L, with k_n·W_L
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rcac.deep.forward import LOG_STD_RANGE, ActorShape, pieces
from rcac.deep.passes import Networks, Pass


def actor_pass(shape: ActorShape, parameters: Tensor, observations: Tensor) -> Pass:
    """An actor with parameters (P,) at observations (B, d)."""
    return Networks(parameters[None], shape.sizes, shape.tail).at(observations)


def actor_outputs(shape: ActorShape, parameters: Tensor, observations: Tensor) -> Tensor:
    """Logits (A, B), or mean and log scale (2D, B), for parameters (P,) and observations (B, d)."""
    return actor_pass(shape, parameters, observations).outputs[0]


def initial_rows(rng: np.random.Generator, sizes: tuple[int, ...], rows: int, gain: float) -> np.ndarray:
    """(rows, P) float32: orthogonal weights, hidden layers with gain √2, the last with `gain`; zero biases."""
    parameters = []
    for _ in range(rows):
        parts: list[np.ndarray] = []
        for layer, (a, b) in enumerate(pairwise(sizes)):
            square = rng.standard_normal((max(a, b), min(a, b)))
            q, r = np.linalg.qr(square)
            q = q * np.sign(np.diagonal(r))
            weight = q if a >= b else q.T
            parts += [(gain if layer == len(sizes) - 2 else np.sqrt(2.0)) * weight.ravel(), np.zeros(b)]
        parameters.append(np.concatenate(parts))
    return np.array(parameters, dtype=np.float32)


def initial_actor(rng: np.random.Generator, shape: ActorShape, log_std: float) -> np.ndarray:
    """(P,) float32: nearly the same action everywhere, scale exp(log_std)."""
    row = initial_rows(rng, shape.sizes, 1, 0.01)[0]
    if shape.kind == "gaussian" and not shape.tail:
        row[-shape.actions :] = log_std  # the bias of the log scale
    return np.concatenate([row, np.full(shape.tail, log_std, dtype=np.float32)])


def ipm_norms(parameters: np.ndarray, sizes: tuple[int, ...], scales: np.ndarray, scope: str) -> np.ndarray:
    """‖w_n‖₂ (K,) of critics (K, P) with scales (K,)."""
    last, bias = pieces(sizes)[-2:]
    rows = parameters.astype(np.float64)
    weight = rows[:, -last - bias : -bias] * scales[:, None]
    below = rows[:, : -last - bias] if scope == "all" else rows[:, :0]
    return np.sqrt(np.sum(weight**2, axis=1) + np.sum(below**2, axis=1))


def rescaled(parameters: Tensor, sizes: tuple[int, ...], ratio: Tensor) -> Tensor:
    """Critics (K, P) that say the same when their scale k_n becomes ratio_n·k_n (last layer divided by ratio (K,))."""
    last = sum(pieces(sizes)[-2:])
    changed = parameters.clone()
    changed[:, -last:] /= ratio[:, None]
    return changed


# The distributions. `outputs` (o, B) is what `actor_outputs` returned; actions are (B,) or (B, D).


def _gaussian(shape: ActorShape, outputs: Tensor) -> tuple[Tensor, Tensor]:
    return outputs[: shape.actions], outputs[shape.actions :].clamp(*LOG_STD_RANGE)


def _free(shape: ActorShape, outputs: Tensor) -> Tensor:
    """(D, B) 1, or 0 where a log scale is held at the end of its range and does not move."""
    scale = outputs[shape.actions :]
    return (scale == scale.clamp(*LOG_STD_RANGE)).to(outputs.dtype)


def log_prob(shape: ActorShape, outputs: Tensor, actions: Tensor) -> Tensor:
    """log π(a|s) (B,)."""
    if shape.kind == "gaussian":
        mean, log_std = _gaussian(shape, outputs)
        z = (actions.T - mean) * torch.exp(-log_std)
        return (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(dim=0)
    return torch.log_softmax(outputs, dim=0).gather(0, actions[None])[0]


def score(shape: ActorShape, outputs: Tensor, actions: Tensor) -> Tensor:
    """∂ log π(a|s) / ∂ outputs (o, B)."""
    if shape.kind == "gaussian":
        mean, log_std = _gaussian(shape, outputs)
        z = (actions.T - mean) * torch.exp(-log_std)
        return torch.cat([z * torch.exp(-log_std), (z**2 - 1.0) * _free(shape, outputs)])
    return torch.softmax(outputs, dim=0).neg_().scatter_(0, actions[None], 1.0, reduce="add")


def entropy(shape: ActorShape, outputs: Tensor) -> Tensor:
    """Entropy of π(·|s) (B,)."""
    if shape.kind == "gaussian":
        return (_gaussian(shape, outputs)[1] + 0.5 * np.log(2 * np.pi * np.e)).sum(dim=0)
    logs = torch.log_softmax(outputs, dim=0)
    return -(logs.exp() * logs).sum(dim=0)


def entropy_slope(shape: ActorShape, outputs: Tensor) -> Tensor:
    """∂ entropy / ∂ outputs (o, B)."""
    if shape.kind == "gaussian":
        return torch.cat([torch.zeros_like(outputs[: shape.actions]), _free(shape, outputs)])
    logs = torch.log_softmax(outputs, dim=0)
    return -logs.exp() * (logs + entropy(shape, outputs))


def kl(shape: ActorShape, old: Tensor, new: Tensor) -> Tensor:
    """KL(π_old(·|s) ‖ π_new(·|s)) (B,)."""
    if shape.kind == "gaussian":
        (mean, log_std), (new_mean, new_log_std) = _gaussian(shape, old), _gaussian(shape, new)
        spread = torch.exp(2 * (log_std - new_log_std)) + ((mean - new_mean) * torch.exp(-new_log_std)) ** 2
        return (new_log_std - log_std + 0.5 * spread - 0.5).sum(dim=0)
    logs, new_logs = torch.log_softmax(old, dim=0), torch.log_softmax(new, dim=0)
    return (logs.exp() * (logs - new_logs)).sum(dim=0)


def fisher_metric(shape: ActorShape, outputs: Tensor, tangents: Tensor) -> Tensor:
    """M(s) t: the Fisher matrix of the distribution in its own outputs, times tangents (R, o, B).
    Categorical: diag(p) − ppᵀ. Gaussian: 1/σ² on the mean, 2 on the log scale."""
    if shape.kind == "gaussian":
        _, log_std = _gaussian(shape, outputs)
        return tangents * torch.cat([torch.exp(-2 * log_std), 2.0 * _free(shape, outputs)])
    p = torch.softmax(outputs, dim=0)
    return p * (tangents - (p * tangents).sum(dim=1, keepdim=True))
