"""Small networks in NumPy: for networks this size a NumPy pass beats torch's, and a policy needs nothing else to act.

K tanh networks of one shape are the rows of one array:

    parameters (K, P)  =  [ W_1 (in·out), b_1 (out), W_2, b_2, … ]        z = W_L tanh(… tanh(W_1 x + b_1)) + b_L

An actor is one row. Its outputs describe the action's distribution: logits (A,) of a categorical, or mean (D,) and log
scale (D,) of a Gaussian; a log scale that does not depend on the state is a tail of D more parameters.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

LOG_STD_RANGE = (-5.0, 2.0)  # a scale outside is held at the end: log-probabilities stay finite


def pieces(sizes: tuple[int, ...]) -> list[int]:
    """Lengths of W_1, b_1, W_2, b_2, … in a row of parameters."""
    return [n for a, b in pairwise(sizes) for n in (a * b, b)]


def mlp(parameters: np.ndarray, sizes: tuple[int, ...], inputs: np.ndarray) -> np.ndarray:
    """Outputs (K, B, out) of K networks, parameters (K, P), on inputs (B, in)."""
    count = len(parameters)
    parts = np.split(parameters, np.cumsum(pieces(sizes))[:-1], axis=1)
    hidden = inputs
    for layer, (a, b) in enumerate(pairwise(sizes)):
        weight, bias = parts[2 * layer].reshape(count, a, b), parts[2 * layer + 1].reshape(count, 1, b)
        hidden = np.matmul(hidden, weight) + bias
        if layer < len(sizes) - 2:
            np.tanh(hidden, out=hidden)
    return hidden


class ActorShape(NamedTuple):
    """What the parameters of an actor mean."""

    sizes: tuple[int, ...]  # observation, hidden…, outputs of the network
    kind: str  # categorical | gaussian
    actions: int  # A choices, or D dimensions
    tail: int  # parameters after the network's: D for a Gaussian's state-independent log scale, else 0

    @property
    def length(self) -> int:
        return sum(pieces(self.sizes)) + self.tail


def actor_shape(observation: int, hidden: list[int], kind: str, actions: int, scale: str) -> ActorShape:
    """Shape of an actor; `scale` (independent | dependent on the state) is read by Gaussians only."""
    gaussian = kind == "gaussian"
    dependent = gaussian and scale == "dependent"
    outputs = 2 * actions if dependent else actions
    return ActorShape((observation, *hidden, outputs), kind, actions, actions if gaussian and not dependent else 0)


def actor_outputs(shape: ActorShape, parameters: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Logits (B, A), or mean and log scale (B, 2D), for parameters (P,) and observations (B, d)."""
    end = len(parameters) - shape.tail
    outputs = mlp(parameters[None, :end], shape.sizes, observations)[0]
    if shape.tail:
        tail = np.broadcast_to(parameters[end:], (len(outputs), shape.tail))
        outputs = np.concatenate([outputs, tail], axis=1)
    return outputs


def noise(shape: ActorShape, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
    """The randomness that `sample` turns into actions: uniform (*batch,), or standard normal (*batch, D)."""
    if shape.kind == "gaussian":
        return rng.standard_normal((*batch, shape.actions), dtype=np.float32)
    return rng.random(batch, dtype=np.float32)


def sample(shape: ActorShape, outputs: np.ndarray, randomness: np.ndarray) -> np.ndarray:
    """Actions (B,) int64 or (B, D) float32, drawn from the distributions with these outputs."""
    if shape.kind == "gaussian":
        mean, log_std = outputs[:, : shape.actions], outputs[:, shape.actions :]
        return mean + np.exp(np.clip(log_std, *LOG_STD_RANGE)) * randomness
    weights = np.cumsum(np.exp(outputs - outputs.max(axis=1, keepdims=True)), axis=1)
    # Inverse of the distribution function; the last weight is never compared, so that rounding cannot pass the end.
    passed = weights[:, :-1] <= (randomness * weights[:, -1])[:, None]
    return passed.sum(axis=1, dtype=np.int64)


def mode(shape: ActorShape, outputs: np.ndarray) -> np.ndarray:
    """The likeliest actions (B,) int64 or (B, D) float32."""
    return outputs[:, : shape.actions] if shape.kind == "gaussian" else np.argmax(outputs, axis=1)
