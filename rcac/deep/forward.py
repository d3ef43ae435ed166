"""Small networks in NumPy: for a few observations a NumPy pass beats torch's, and a policy needs nothing else to act.

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


Layers = list[tuple[np.ndarray, np.ndarray]]  # W (K, in, out) and b (K, 1, out) of each layer


def unpack(parameters: np.ndarray, sizes: tuple[int, ...]) -> Layers:
    """The layers of K networks, as views of their parameters (K, P)."""
    count = len(parameters)
    parts = np.split(parameters, np.cumsum(pieces(sizes))[:-1], axis=1)
    shapes = list(pairwise(sizes))
    weights = [part.reshape(count, a, b) for part, (a, b) in zip(parts[::2], shapes, strict=True)]
    return list(zip(weights, (part[:, None] for part in parts[1::2]), strict=True))


def mlp(layers: Layers, inputs: np.ndarray) -> np.ndarray:
    """Outputs (K, B, out) of K networks on inputs (B, in)."""
    hidden = inputs
    for weight, bias in layers[:-1]:
        hidden = np.matmul(hidden, weight)
        hidden += bias
        np.tanh(hidden, out=hidden)
    weight, bias = layers[-1]
    return np.matmul(hidden, weight) + bias


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


class Actor:
    """An actor's parameters (P,), ready to act."""

    def __init__(self, shape: ActorShape, parameters: np.ndarray) -> None:
        end = len(parameters) - shape.tail
        self.shape = shape
        self.layers = unpack(parameters[None, :end], shape.sizes)
        self.tail = parameters[end:]

    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """Logits (B, A), or mean and log scale (B, 2D), for observations (B, d)."""
        outputs = mlp(self.layers, observations)[0]
        if self.shape.tail:
            tail = np.broadcast_to(self.tail, (len(outputs), self.shape.tail))
            outputs = np.concatenate([outputs, tail], axis=1)
        return outputs


def actor_outputs(shape: ActorShape, parameters: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """What an actor with parameters (P,) says at observations (B, d)."""
    return Actor(shape, parameters).outputs(observations)


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


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities (B, A), float64."""
    grown = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def mode(shape: ActorShape, outputs: np.ndarray) -> np.ndarray:
    """The likeliest actions (B,) int64 or (B, D) float32."""
    return outputs[:, : shape.actions] if shape.kind == "gaussian" else np.argmax(outputs, axis=1)
