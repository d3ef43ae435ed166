"""From an environment's spaces to a network's numbers and back, as plain data that a policy's card can hold.

Observations: a Box is flattened and, if asked for, normalised by the running mean and deviation; a Discrete is one-hot.
Actions: a Discrete is an index. In a Box of floats a dimension with two finite ends is reached by
centre + half·clip(a, −1, 1), another by a itself; what comes out is clipped to the ends, in the Box's own precision.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

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
            rows[np.arange(len(rows)), self._indices(np.asarray(observations))] = 1.0
            return rows
        return np.asarray(observations, dtype=np.float32).reshape(-1, self.size)

    def _indices(self, observations: np.ndarray) -> np.ndarray:
        """(B,) from 0 to d−1; NumPy would take a negative one for one from the end."""
        inside = (observations >= self.start) & (observations < self.start + self.size)
        if not inside.all():
            index = int(np.flatnonzero(~inside)[0])
            last = self.start + self.size - 1
            raise InputError(
                f"observation[{index}]: {observations[index]} given, a whole number from {self.start} to {last} expected"
            )
        return observations.astype(np.int64) - self.start

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
    low: list[float | None] = field(default_factory=list)  # (D,) of a Box, None where it has no end
    high: list[float | None] = field(default_factory=list)  # (D,)
    dtype: str = "float32"  # of a Box

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """What the environment takes (B, *shape), from (B,) indices or (B, D) numbers."""
        if self.kind == "categorical":
            return actions + self.start if self.start else actions
        box = self._box
        reached = box.half * np.clip(actions, -box.reach, box.reach) + box.centre
        # The ends are numbers of the Box's dtype, so that rounding to it cannot leave them again.
        return np.clip(reached, box.low, box.high).astype(self.dtype).reshape(-1, *self.shape)

    @cached_property
    def _box(self) -> "_Box":
        low, high = np.array(self.low, dtype=float), np.array(self.high, dtype=float)  # None becomes NaN
        scaled = ~(np.isnan(low) | np.isnan(high))
        # Halved before they meet: the range of a Box may be more than a float holds.
        centre, half = np.where(scaled, low / 2 + high / 2, 0.0), np.where(scaled, high / 2 - low / 2, 1.0)
        ends = np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf)
        return _Box(*ends, centre, half, np.where(scaled, 1.0, np.inf))

    def card(self) -> dict[str, Any]:
        fixed = {"kind": self.kind, "count": self.count, "shape": list(self.shape), "start": self.start}
        return {**fixed, "low": self.low, "high": self.high, "dtype": self.dtype}


class _Box(NamedTuple):
    """(D,) each, float64."""

    low: np.ndarray  # −∞ where there is no end
    high: np.ndarray
    centre: np.ndarray  # 0 in a dimension that is not scaled
    half: np.ndarray  # half the range; 1 in a dimension that is not scaled
    reach: np.ndarray  # of the actor's own actions: 1, or ∞ in a dimension that is not scaled


def actions_from_card(card: dict[str, Any]) -> Actions:
    kind, count, shape, start = str(card["kind"]), int(card["count"]), tuple(card["shape"]), int(card["start"])
    if kind == "categorical":
        return Actions(kind, count, shape, start)
    if "low" in card:
        return Actions(kind, count, shape, start, list(card["low"]), list(card["high"]), str(card["dtype"]))
    # An older card has centre and half range of a Box with all ends finite, and nothing of any other.
    ends = list(zip(card["centre"], card["half"], strict=True))
    low, high = [centre - half for centre, half in ends], [centre + half for centre, half in ends]
    return Actions(kind, count, shape, start, low or [None] * count, high or [None] * count)


def action_codec(space: Space) -> Actions:
    if isinstance(space, Discrete):
        return Actions("categorical", int(space.n), (), int(space.start))
    if isinstance(space, Box) and space.dtype.kind == "f":
        low, high = (
            [end if np.isfinite(end) else None for end in ends.astype(float).ravel().tolist()]
            for ends in (space.low, space.high)
        )
        return Actions("gaussian", len(low), tuple(space.shape), 0, low, high, space.dtype.name)
    raise InputError(f"action space: {space} given, a Discrete space or a Box of floats expected")


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
