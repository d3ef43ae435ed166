"""From an environment's spaces to a network's numbers and back, in NumPy.

Observations become rows of numbers, one leaf of the space after the other:

    vector     a Box, flattened; normalised inside the network if asked for
    image      a Box of rows, columns and channels (first or last), uint8 or at least 12 × 12; or a large uint8 matrix
    one_hot    a Discrete, or each part of a MultiDiscrete
    bits       a MultiBinary

With a history of k observations a row is  [ o_t, o_{t−1}, …, o_{t−k+1}, a_{t−1}, …, a_{t−k+1} ];  before the first step of
an episode the first observation is repeated and actions are zero.

Actions: a Discrete is an index, a MultiDiscrete several, a MultiBinary bits. In a Box of floats a dimension with two finite
ends is reached by centre + half·clip(a, −1, 1) (or tanh(a), if squashed), another by a itself; what comes out is clipped
to the ends, in the Box's own precision.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rcac.errors import InputError
from rcac.learner import State
from rcac.spaces import batched

IMAGE = 12  # rows and columns from which on numbers are taken for an image


class Leaf(NamedTuple):
    """One part of an observation."""

    key: str  # "" for a space alone, else the path: "camera", "arm.joints", "0"
    kind: str  # vector | image | one_hot | bits
    space: Any  # Box, Discrete, MultiDiscrete or MultiBinary
    start: int  # where its numbers begin in a frame
    size: int  # how many there are

    @property
    def shape(self) -> tuple[int, ...]:
        """What a network is given for it, batch axis left out; images with their channels first."""
        if self.kind == "vector" or self.kind == "bits":
            return self.space.shape or (1,)
        if self.kind == "one_hot":
            return (self.size,)
        shape = self.space.shape
        if len(shape) == 2:
            return (1, *shape)
        return (shape[2], *shape[:2]) if self.channels_last else shape

    @property
    def channels_last(self) -> bool:
        shape = self.space.shape
        return len(shape) == 3 and shape[2] < shape[0]


def _leaves(space: gym.Space, key: str = "") -> Iterator[tuple[str, gym.Space]]:
    if isinstance(space, Dict | Tuple):
        parts = space.spaces.items() if isinstance(space, Dict) else enumerate(space.spaces)
        for name, part in parts:
            yield from _leaves(part, f"{key}.{name}" if key else str(name))
    else:
        yield key, space


def _kind(space: gym.Space) -> str:
    if isinstance(space, Discrete | MultiDiscrete):
        return "one_hot"
    if isinstance(space, MultiBinary):
        return "bits"
    if isinstance(space, Box):
        bytes_, large = space.dtype == np.uint8, sum(n >= IMAGE for n in space.shape) >= 2
        image = (len(space.shape) == 3 and (bytes_ or large)) or (len(space.shape) == 2 and bytes_ and large)
        return "image" if image else "vector"
    raise InputError(
        f"observation space: {space} given, Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple expected; "
        "gymnasium.wrappers.TransformObservation can make one of it"
    )


class Encoder:
    """Observations of one space as rows of numbers: uint8 where all of it is uint8, else float32."""

    def __init__(self, space: gym.Space) -> None:
        self.space = space
        self.leaves: list[Leaf] = []
        for key, part in _leaves(space):
            kind = _kind(part)
            if isinstance(part, Discrete):
                size = int(part.n)
            else:
                size = int(part.nvec.sum()) if isinstance(part, MultiDiscrete) else int(np.prod(part.shape or ()))
            self.leaves.append(Leaf(key, kind, part, self.size, size))
        if not self.size:
            raise InputError(f"observation space: {space} given, at least one number expected")
        images = all(isinstance(leaf.space, Box) and leaf.space.dtype == np.uint8 for leaf in self.leaves)
        self.dtype = np.uint8 if images else np.float32
        # (c,) numbers of a frame that running moments normalise
        self.continuous = np.concatenate(
            [np.arange(x.start, x.start + x.size) for x in self.leaves if x.kind == "vector"] or [np.zeros(0, int)]
        )

    @property
    def size(self) -> int:
        """f, numbers per observation."""
        return self.leaves[-1].start + self.leaves[-1].size if self.leaves else 0

    @property
    def states(self) -> int | None:
        """How many different observations there are, if they can be counted."""
        [leaf, *more] = self.leaves
        return leaf.size if not more and isinstance(leaf.space, Discrete) else None

    def __call__(self, observations: Any) -> np.ndarray:
        """(B, f) from a batch of raw observations, in the structure of the space."""
        parts = [_encoded(leaf, part) for leaf, part in zip(self.leaves, _parts(self.space, observations), strict=True)]
        row = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return row.astype(self.dtype, copy=False)

    def one(self, observation: Any) -> np.ndarray:
        """(1, f) from a single one."""
        return self(batched(self.space, observation))

    def check_finite(self, rows: np.ndarray, name: str = "observation") -> None:
        if rows.dtype.kind == "f" and not np.isfinite(rows.sum()):
            bad = np.argwhere(~np.isfinite(rows))
            if len(bad):
                index, place = bad[0]
                [leaf] = [x for x in self.leaves if x.start <= place < x.start + x.size]
                where = f"{name}[{index}]{f' {leaf.key!r}' if leaf.key else ''}[{place - leaf.start}]"
                raise InputError(f"{where}: {rows[index, place]} given, a finite number expected")


def picked(space: gym.Space, observations: Any, index: int) -> Any:
    """One of a batch of observations, from arrays in the space's structure or from a list of observations."""
    if isinstance(space, Dict) and isinstance(observations, dict):
        return {key: picked(part, observations[key], index) for key, part in space.spaces.items()}
    if isinstance(space, Tuple) and isinstance(observations, tuple):
        return tuple(picked(part, each, index) for part, each in zip(space.spaces, observations, strict=True))
    return observations[index]


def _parts(space: gym.Space, observations: Any) -> Iterator[np.ndarray]:
    if isinstance(space, Dict):
        for key, part in space.spaces.items():
            yield from _parts(part, observations[key])
    elif isinstance(space, Tuple):
        for part, each in zip(space.spaces, observations, strict=True):
            yield from _parts(part, each)
    else:
        yield np.asarray(observations)


def _encoded(leaf: Leaf, values: np.ndarray) -> np.ndarray:
    if leaf.kind != "one_hot":
        if values.dtype != np.uint8:
            values = np.asarray(values, dtype=np.float32)
        return values.reshape(-1, leaf.size)
    space = leaf.space
    choices, starts = (
        ([int(space.n)], [int(space.start)])
        if isinstance(space, Discrete)
        else (space.nvec.ravel(), space.start.ravel())
    )
    columns = values.reshape(-1, len(choices))
    rows, offset = np.zeros((len(columns), leaf.size), dtype=np.float32), 0
    for column, count, start in zip(columns.T, choices, starts, strict=True):
        inside = (column >= start) & (column < start + count)  # NumPy would take −1 for the last one
        if not inside.all():
            index = int(np.flatnonzero(~inside)[0])
            raise InputError(
                f"observation[{index}]: {column[index]} given, a whole number from {start} to {start + count - 1} expected"
            )
        rows[np.arange(len(rows)), offset + column.astype(np.int64) - start] = 1.0
        offset += count
    return rows


@dataclass(frozen=True)
class History:
    """Rows of the last k observations and the actions between them."""

    length: int  # k
    frame: int  # f, numbers of one observation
    action: int  # a, numbers of one action

    @property
    def size(self) -> int:
        return self.length * self.frame + (self.length - 1) * self.action

    def first(self, frames: np.ndarray) -> np.ndarray:
        """(B, d) where episodes begin with frames (B, f)."""
        if self.length == 1:
            return frames
        actions = np.zeros((len(frames), (self.length - 1) * self.action), dtype=np.float32)
        return np.concatenate([np.tile(frames, self.length), actions], axis=1)

    def next(self, rows: np.ndarray, actions: np.ndarray, frames: np.ndarray) -> np.ndarray:
        """(B, d) after actions (B, a) were taken at rows (B, d), and frames (B, f) came of it."""
        if self.length == 1:
            return frames
        seen = self.length * self.frame
        kept, older = rows[:, : seen - self.frame], rows[:, seen : rows.shape[1] - self.action]
        return np.concatenate([frames, kept, actions, older], axis=1)


@dataclass(frozen=True)
class Actions:
    """Actions of one space from the actor's own: indices (B,), (B, m), bits (B, m), or real numbers (B, D)."""

    space: Any
    squash: bool = False  # tanh instead of a clip

    @property
    def kind(self) -> str:
        kinds = ((Discrete, "categorical"), (MultiDiscrete, "multi_categorical"), (MultiBinary, "bernoulli"))
        return next((name for each, name in kinds if isinstance(self.space, each)), "gaussian")

    @cached_property
    def choices(self) -> list[int]:
        """Of each categorical part; [] of other kinds."""
        if isinstance(self.space, Discrete):
            return [int(self.space.n)]
        return self.space.nvec.ravel().tolist() if isinstance(self.space, MultiDiscrete) else []

    @property
    def count(self) -> int:
        """Parts or dimensions of an action."""
        return 1 if isinstance(self.space, Discrete) else int(np.prod(self.space.shape))

    @property
    def own_shape(self) -> tuple[int, ...]:
        return () if isinstance(self.space, Discrete) else (self.count,)

    @property
    def own_dtype(self) -> Any:
        return np.int64 if self.choices else np.float32

    @property
    def features(self) -> int:
        """a, numbers that describe an action in a history."""
        return sum(self.choices) if self.choices else self.count

    def describe(self, actions: np.ndarray) -> np.ndarray:
        """(B, a) for a history: one-hot, bits, or where in its range a number is."""
        if self.choices:
            columns = actions.reshape(len(actions), -1).T
            parts = [np.eye(n, dtype=np.float32)[column] for n, column in zip(self.choices, columns, strict=True)]
            return np.concatenate(parts, axis=1)
        if self.kind == "gaussian":
            inside = np.tanh(actions) if self.squash else np.clip(actions, -self.scale.reach, self.scale.reach)
            return inside.astype(np.float32)
        return actions

    def raw(self, actions: np.ndarray) -> np.ndarray:
        """What the environment takes, (B, *shape)."""
        space = self.space
        if isinstance(space, Discrete):
            return actions + int(space.start) if space.start else actions
        if isinstance(space, MultiDiscrete):
            return (actions.reshape(-1, *space.shape) + space.start).astype(space.dtype)
        if isinstance(space, MultiBinary):
            return actions.astype(space.dtype).reshape(-1, *space.shape)
        box = self.scale
        inside = np.tanh(actions) if self.squash else np.clip(actions, -box.reach, box.reach)
        # The ends are numbers of the Box's dtype, so that rounding to it cannot leave them again.
        return np.clip(box.half * inside + box.centre, box.low, box.high).astype(space.dtype).reshape(-1, *space.shape)

    @cached_property
    def scale(self) -> "Scale":
        """Of a Box."""
        low, high = (end.astype(float).ravel() for end in (self.space.low, self.space.high))
        scaled = np.isfinite(low) & np.isfinite(high)
        # Halved before they meet: the range of a Box may be more than a float holds.
        a, b = np.where(scaled, low, 0.0) / 2, np.where(scaled, high, 2.0) / 2
        return Scale(low, high, np.where(scaled, a + b, 0.0), b - a, np.where(scaled, 1.0, np.inf))


class Scale(NamedTuple):
    """(D,) each, float64."""

    low: np.ndarray  # −∞ where there is no end
    high: np.ndarray
    centre: np.ndarray  # 0 in a dimension that is not scaled
    half: np.ndarray  # half the range; 1 in a dimension that is not scaled
    reach: np.ndarray  # of the actor's own actions: 1, or ∞ in a dimension that is not scaled


def action_codec(space: gym.Space, squash: bool = False) -> Actions:
    if isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return Actions(space)
    if not np.prod(space.shape or ()):
        raise InputError(f"action space: {space} given, at least one number expected")
    if isinstance(space, Box) and space.dtype.kind == "f":
        if squash and not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InputError(f"squash: true given, but {space} has no end in some dimension; false expected")
        return Actions(space, squash)
    integers = isinstance(space, Box)
    hint = "MultiDiscrete has whole numbers; " if integers else ""
    raise InputError(
        f"action space: {space} given, a Discrete space, MultiDiscrete, MultiBinary or a Box of floats expected; "
        f"{hint}gymnasium.wrappers.TransformAction can make one of it"
    )


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
        """Mean and std (d,) float32; a coordinate that never moved keeps std 1."""
        std = np.sqrt(np.where(self.variance > 1e-12, self.variance, 1.0))
        return self.mean.astype(np.float32), std.astype(np.float32)

    def state(self) -> State:
        return State({"mean": self.mean.copy(), "variance": self.variance.copy()}, {"count": self.count})

    def load(self, state: State) -> None:
        self.mean, self.variance = state.tensors["mean"], state.tensors["variance"]
        self.count = int(state.data["count"])
