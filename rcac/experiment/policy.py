"""A trained policy, to be used anywhere: `policy = rcac.load_policy("runs/…")`, then `action = policy(observation)`.

A policy is arrays (`policy.safetensors`) and a card of plain data beside them (`policy.json`). Both are checked, and
nothing in them is executed. Acting needs NumPy alone.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete

from rcac.errors import InputError
from rcac.experiment.runfolder import CARD, POLICY, RunFolder
from rcac.learner import State
from rcac.problem import ROW_SUM_TOLERANCE

Choose = Callable[[np.ndarray, np.random.Generator | None], np.ndarray]  # observations (B, …) → actions (B, …)


class Spaces(NamedTuple):
    observation: gym.Space
    action: gym.Space


class Actor(NamedTuple):
    """What the kinds of policies have in common."""

    choose: Choose  # the likeliest actions without a generator, else drawn ones
    probabilities: Callable[[np.ndarray], np.ndarray] | None  # observations (B, …) → (B, A), of discrete actions


class Policy:
    """Acts on one observation, or on a batch of them.

    The optimum of a constrained problem is a stochastic policy in general, so actions are drawn, by a generator of
    the policy's own; with `deterministic` they are the likeliest ones (the mean, if continuous).
    """

    def __init__(self, state: State, deterministic: bool = False, seed: int = 0) -> None:
        self.card = state.data
        self.deterministic = deterministic
        self.spaces = Spaces(*(space_from_card(self.card["spaces"][name]) for name in Spaces._fields))
        self._actor = ACTORS[self.card["kind"]](state)
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation: Any) -> Any:
        return self._one(observation, None if self.deterministic else self._rng)

    def sample(self, observation: Any, rng: np.random.Generator) -> Any:
        """An action drawn with the caller's generator."""
        return self._one(observation, rng)

    def batch(self, observations: Any) -> np.ndarray:
        """Actions (B, …) for observations (B, …)."""
        return self._actor.choose(np.asarray(observations), None if self.deterministic else self._rng)

    def probabilities(self, observations: Any) -> np.ndarray:
        """(B, A) for observations (B, …), whether or not the likeliest is taken; of discrete actions."""
        if self._actor.probabilities is None:
            raise InputError(f"probabilities: the actions are {self.spaces.action}, a Discrete space expected")
        return self._actor.probabilities(np.asarray(observations))

    def _one(self, observation: Any, rng: np.random.Generator | None) -> Any:
        action = self._actor.choose(np.asarray(observation)[None], rng)[0]
        return int(action) if isinstance(self.spaces.action, Discrete) else action


def load_policy(path: str | Path, deterministic: bool = False, seed: int = 0) -> Policy:
    """The policy of a run, given its folder or its `policy.safetensors`. See `Policy`."""
    path = Path(path)
    if path.name in (POLICY, CARD):
        path = path.parent
    if not path.is_dir():
        raise InputError(f"path: {str(path)!r} given, the folder of a run or its {POLICY} expected")
    state = RunFolder(path).read_policy()
    try:
        return Policy(state, deterministic, seed)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"{path / CARD}: not the card of a policy ({error!r})") from error


# Kinds of policies


def _tabular(state: State) -> Actor:
    table = state.tensors["policy"]  # (S, A)
    if table.ndim != 2 or not (table >= 0).all() or not (np.abs(table.sum(axis=1) - 1) <= ROW_SUM_TOLERANCE).all():
        raise InputError(f"policy: shape {table.shape} given, an array (S, A) of distributions expected")
    edges = np.cumsum(table, axis=1)

    def states(observations: np.ndarray) -> np.ndarray:
        """Indices (B,) as they are, or one-hot rows (B, S)."""
        if observations.ndim == 2 and observations.shape[1] == len(table):
            observations = observations.argmax(axis=1)
        whole = observations.ndim == 1 and observations.dtype.kind in "iu"
        if not whole or not ((observations >= 0) & (observations < len(table))).all():
            raise InputError(f"observation: {observations} given, states 0 to {len(table) - 1} or one-hot expected")
        return observations

    def choose(observations: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        index = states(observations)
        if rng is None:
            return table[index].argmax(axis=1)
        # the last edge is never compared, so that rounding cannot pass the end
        passed = edges[index, :-1] <= (rng.random(len(index)) * edges[index, -1])[:, None]
        return passed.sum(axis=1)

    return Actor(choose, lambda observations: table[states(observations)])


def _deep(state: State) -> Actor:
    from rcac.deep.act import Policy as Network

    likeliest, drawn = Network(state, deterministic=True), Network(state, deterministic=False)

    def choose(observations: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        if rng is None:
            return likeliest.batch(observations)
        drawn.rng = rng
        return drawn.batch(observations)

    return Actor(choose, likeliest.probabilities if likeliest.actions.kind == "categorical" else None)


ACTORS: dict[str, Callable[[State], Actor]] = {"tabular": _tabular, "deep": _deep}


# Spaces as plain data


def space_card(space: gym.Space) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, Box):
        ends = {"low": _end(space.low), "high": _end(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **ends}
    raise InputError(f"space: {space} given, a Discrete or a Box space expected")


def space_from_card(card: dict[str, Any]) -> gym.Space:
    if card["type"] == "Discrete":
        return Discrete(card["n"], start=card["start"])
    if card["type"] == "Box":
        shape, dtype = tuple(card["shape"]), np.dtype(card["dtype"])
        low, high = _bound(card["low"], shape, -np.inf, dtype), _bound(card["high"], shape, np.inf, dtype)
        return Box(low, high, shape, dtype.type)
    raise InputError(f"space: {card['type']!r} given, Discrete or Box expected")


def _end(bound: np.ndarray) -> list[float | None]:
    """One number where all are the same, as they are for pictures; None for an infinite one, which JSON has not."""
    flat = bound.ravel()[:1] if (bound == bound.ravel()[:1]).all() else bound.ravel()
    return [x if np.isfinite(x) else None for x in flat.tolist()]


def _bound(end: list[float | None], shape: tuple[int, ...], infinite: float, dtype: np.dtype) -> np.ndarray:
    flat = np.array([infinite if x is None else x for x in end])
    return np.broadcast_to(flat[0] if len(flat) == 1 else flat.reshape(shape), shape).astype(dtype)
