"""The torch side of the networks in `rcac.deep.forward`: the same parameters, with gradients.

    V_n(s) = k_n · z_n(s)         k_n a fixed positive scale per critic, so that z_n is of order one
    ‖w_n‖₂                        last_layer: k_n·W_L          all: every parameter but b_L, with k_n·W_L

K critics are the rows of one tensor (K, P) and are computed together.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from rcac.deep.forward import LOG_STD_RANGE, ActorShape, pieces


def mlp(parameters: Tensor, sizes: tuple[int, ...], inputs: Tensor) -> Tensor:
    """Outputs (K, B, out) of K networks, parameters (K, P), on inputs (B, in)."""
    count = len(parameters)
    parts = parameters.split(pieces(sizes), dim=1)
    hidden = inputs.expand(count, *inputs.shape)
    for layer, (a, b) in enumerate(pairwise(sizes)):
        weight, bias = parts[2 * layer].view(count, a, b), parts[2 * layer + 1].view(count, 1, b)
        hidden = torch.baddbmm(bias, hidden, weight)
        if layer < len(sizes) - 2:
            hidden = torch.tanh(hidden)
    return hidden


def actor_outputs(shape: ActorShape, parameters: Tensor, observations: Tensor) -> Tensor:
    """Logits (B, A), or mean and log scale (B, 2D), for parameters (P,) and observations (B, d)."""
    end = len(parameters) - shape.tail
    outputs = mlp(parameters[None, :end], shape.sizes, observations)[0]
    if shape.tail:
        outputs = torch.cat([outputs, parameters[end:].expand(len(outputs), -1)], dim=1)
    return outputs


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


# The distributions. `outputs` is what `actor_outputs` returned.


def _gaussian(shape: ActorShape, outputs: Tensor) -> tuple[Tensor, Tensor]:
    return outputs[:, : shape.actions], outputs[:, shape.actions :].clamp(*LOG_STD_RANGE)


def log_prob(shape: ActorShape, outputs: Tensor, actions: Tensor) -> Tensor:
    """log π(a|s) (B,)."""
    if shape.kind == "gaussian":
        mean, log_std = _gaussian(shape, outputs)
        z = (actions - mean) * torch.exp(-log_std)
        return (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(dim=1)
    return torch.log_softmax(outputs, dim=1).gather(1, actions[:, None])[:, 0]


def entropy(shape: ActorShape, outputs: Tensor) -> Tensor:
    """Entropy of π(·|s) (B,)."""
    if shape.kind == "gaussian":
        return (_gaussian(shape, outputs)[1] + 0.5 * np.log(2 * np.pi * np.e)).sum(dim=1)
    logs = torch.log_softmax(outputs, dim=1)
    return -(logs.exp() * logs).sum(dim=1)


def kl(shape: ActorShape, old: Tensor, new: Tensor) -> Tensor:
    """KL(π_old(·|s) ‖ π_new(·|s)) (B,)."""
    if shape.kind == "gaussian":
        (mean, log_std), (new_mean, new_log_std) = _gaussian(shape, old), _gaussian(shape, new)
        spread = torch.exp(2 * (log_std - new_log_std)) + ((mean - new_mean) * torch.exp(-new_log_std)) ** 2
        return (new_log_std - log_std + 0.5 * spread - 0.5).sum(dim=1)
    logs, new_logs = torch.log_softmax(old, dim=1), torch.log_softmax(new, dim=1)
    return (logs.exp() * (logs - new_logs)).sum(dim=1)


def fisher_metric(shape: ActorShape, outputs: Tensor, tangent: Tensor) -> Tensor:
    """M(s) t: the Fisher matrix of the distribution in its own outputs, times a tangent (B, o).
    Categorical: diag(p) − ppᵀ. Gaussian: 1/σ² on the mean, 2 on the log scale."""
    if shape.kind == "gaussian":
        _, log_std = _gaussian(shape, outputs)
        inside = outputs[:, shape.actions :] == log_std  # a scale held at the end of its range does not move
        return tangent * torch.cat([torch.exp(-2 * log_std), 2.0 * inside], dim=1)
    p = torch.softmax(outputs, dim=1)
    return p * (tangent - (p * tangent).sum(dim=1, keepdim=True))
