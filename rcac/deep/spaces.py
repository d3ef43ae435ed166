"""From an environment's spaces to a network's numbers and back, as plain data that a policy's card can hold.

Observations: a Box is flattened and, if asked for, normalised by the running mean and deviation; a Discrete is one-hot.
Actions: a Discrete is an index; a Box with finite ends is reached by centre + half·clip(a, −1, 1), another by a itself.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete

from rcac.errors import InputError

CLIP = 10.0  # a normalised observation further out than this many deviations is held there


@dataclass(frozen=True)
class Encoder:
    """Observations of one space as rows of float32."""

    size: int  # d, numbers per observation
    shape: tuple[int, ...]  # of one raw observation
    categories: bool  # True: indices start … start+d−1, one-hot
    start: int = 0

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """(B, d) float32 from raw observations (B, *shape)."""
        if self.categories:
            rows = np.zeros((len(observations), self.size), dtype=np.float32)
            rows[np.arange(len(rows)), np.asarray(observations, dtype=np.int64) - self.start] = 1.0
            return rows
        return np.asarray(observations, dtype=np.float32).reshape(-1, self.size)

    def card(self) -> dict[str, Any]:
        return {"size": self.size, "shape": list(self.shape), "categories": self.categories, "start": self.start}


def encoder_from_card(card: dict[str, Any]) -> Encoder:
    return Encoder(int(card["size"]), tuple(card["shape"]), bool(card["categories"]), int(card["start"]))


def observation_encoder(space: Space) -> Encoder:
    if isinstance(space, Discrete):
        return Encoder(int(space.n), (), True, int(space.start))
    if isinstance(space, Box):
        return Encoder(int(np.prod(space.shape)), tuple(space.shape), False)
    raise InputError(f"observation space: {space} given, a Box or a Discrete space expected")


@dataclass(frozen=True)
class Actions:
    """Actions of one space from the actor's own."""

    kind: str  # categorical | gaussian
    count: int  # A choices, or D dimensions
    shape: tuple[int, ...]  # of one raw action
    start: int = 0  # categorical: index of the first choice
    centre: list[float] = field(default_factory=list)  # (D,) of a bounded Box, else empty
    half: list[float] = field(default_factory=list)  # (D,) half its range, else empty

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """What the environment takes (B, *shape), from (B,) indices or (B, D) numbers."""
        if self.kind == "categorical":
            return actions + self.start if self.start else actions
        if self.half:
            reached = np.asarray(self.half) * np.clip(actions, -1.0, 1.0) + np.asarray(self.centre)
            actions = reached.astype(np.float32)
        return actions.reshape(-1, *self.shape)

    def card(self) -> dict[str, Any]:
        fixed = {"kind": self.kind, "count": self.count, "shape": list(self.shape), "start": self.start}
        return {**fixed, "centre": self.centre, "half": self.half}


def actions_from_card(card: dict[str, Any]) -> Actions:
    kind, shape = str(card["kind"]), tuple(card["shape"])
    return Actions(kind, int(card["count"]), shape, int(card["start"]), list(card["centre"]), list(card["half"]))


def action_codec(space: Space) -> Actions:
    if isinstance(space, Discrete):
        return Actions("categorical", int(space.n), (), int(space.start))
    if isinstance(space, Box):
        low, high = space.low.astype(float).ravel(), space.high.astype(float).ravel()
        size = int(np.prod(space.shape))
        if np.isfinite(low).all() and np.isfinite(high).all():
            centre, half = (low + high) / 2, (high - low) / 2
            return Actions("gaussian", size, tuple(space.shape), 0, centre.tolist(), half.tolist())
        return Actions("gaussian", size, tuple(space.shape))
    raise InputError(f"action space: {space} given, a Discrete or a Box space expected")


class Moments:
    """Running mean and variance of rows; merging batches gives what one batch of all rows would."""

    def __init__(self, size: int) -> None:
        self.mean = np.zeros(size)  # (d,)
        self.variance = np.ones(size)  # (d,), of all rows so far; 1 before the first
        self.count = 0

    def update(self, rows: np.ndarray) -> None:
        """Merge rows (B, d)."""
        if len(rows) == 0:
            return
        rows = rows.astype(np.float64)
        mean, variance, count = rows.mean(axis=0), rows.var(axis=0), len(rows)
        total = self.count + count
        shift = mean - self.mean
        # Σ(x−m)² of the union: both sums of squares, and the squared distance of the means (Chan, Golub, LeVeque).
        squares = self.variance * self.count + variance * count + shift**2 * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.variance = squares / total
        self.count = total

    @property
    def square(self) -> np.ndarray:
        """(d,) mean of x²."""
        return self.variance + self.mean**2

    def scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation (d,) float32; a coordinate that never moved keeps deviation 1."""
        deviation = np.sqrt(np.where(self.variance > 1e-12, self.variance, 1.0))
        return self.mean.astype(np.float32), deviation.astype(np.float32)


def normalize(rows: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """(…, d) float32, clipped at CLIP deviations."""
    return np.clip((rows - mean) / deviation, -CLIP, CLIP)
