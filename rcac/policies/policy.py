"""A trained policy, to be used anywhere: `policy = rcac.load_policy("runs/…")`, then `action = policy(observation)`.

A policy is arrays (`policy.safetensors`) and a card of plain data beside them (`policy.json`). Both are checked, and
nothing in them is executed. A tabular policy acts with NumPy alone; a deep one is built with torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Dict, Discrete, Tuple

from rcac.errors import InputError, needs
from rcac.learner import State
from rcac.problem import ROW_SUM_TOLERANCE
from rcac.runs.folder import CARD, POLICY, RunFolder
from rcac.spaces import batched, space_card, space_from_card

__all__ = ["Policy", "Spaces", "load_policy", "space_card", "space_from_card"]


class Spaces(NamedTuple):
    observation: gym.Space
    action: gym.Space


class Backend(Protocol):
    """What the kinds of policies have in common. A memory is what a policy with a history has to remember."""

    def choose(
        self, observations: Any, rng: np.random.Generator | None, memory: Any, starts: np.ndarray | None
    ) -> tuple[np.ndarray, Any]:
        """Actions (B, …) for a batch of observations (the mode without a generator, else a sample), and the memory
        afterwards. `starts` (B,) says where episodes begin."""

    def probabilities(self, observations: Any, memory: Any) -> np.ndarray:
        """(B, A) of discrete actions."""


class Policy:
    """Acts on one observation, or on a batch of them.

    The optimum of a constrained problem is a stochastic policy in general, so actions are sampled, by a generator of
    the policy's own; with `deterministic` they are the mode (the mean, if continuous). None: as its training was told it
    would be deployed (`algo.deploy`).

    A policy that was trained with a history remembers what it saw: `reset()` before a new episode, or say with
    `episode_start` which of a batch begin one.
    """

    def __init__(self, state: State, deterministic: bool | None = None, seed: int = 0, network: Any = None) -> None:
        self.card = state.data
        deployed = self.card.get("settings", {}).get("deploy") == "deterministic"
        self.deterministic = deployed if deterministic is None else deterministic
        self.spaces = Spaces(*(space_from_card(self.card["spaces"][name]) for name in Spaces._fields))
        self._state, self._network = state, network
        self._backend = BACKENDS[self.card["kind"]](state, network)
        self._rng = np.random.default_rng(seed)
        self._memory: Any = None

    def __call__(self, observation: Any) -> Any:
        return self._one(observation, None if self.deterministic else self._rng)

    def sample(self, observation: Any, rng: np.random.Generator) -> Any:
        """An action sampled with the caller's generator."""
        return self._one(observation, rng)

    def batch(self, observations: Any, episode_start: Any = None) -> np.ndarray:
        """Actions (B, …) for observations (B, …), in the structure of their space."""
        starts = None if episode_start is None else np.asarray(episode_start, dtype=bool)
        rng = None if self.deterministic else self._rng
        actions, self._memory = self._backend.choose(observations, rng, self._memory, starts)
        return actions

    def reset(self) -> None:
        """Forget what was seen: the next observations are the first of their episodes."""
        self._memory = None

    def probabilities(self, observations: Any) -> np.ndarray:
        """(B, A) for observations (B, …), whether or not the mode is taken; of discrete actions."""
        return self._backend.probabilities(observations, self._memory)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool | None = None
    ) -> tuple[Any, Any]:
        """Stable-Baselines3's signature: an action for one observation, or actions for a batch, and the state to pass
        with the next observation (None unless the policy has a history)."""
        one = _is_single(self.spaces.observation, observation)
        rng = None if (self.deterministic if deterministic is None else deterministic) else self._rng
        observations = batched(self.spaces.observation, observation) if one else observation
        starts = None if episode_start is None else np.atleast_1d(np.asarray(episode_start, dtype=bool))
        actions, after = self._backend.choose(observations, rng, state, starts)
        return (actions[0] if one else actions), after

    def export(self, path: str | Path) -> Path:
        """Write the policy for use without this package: `policy.onnx` (needs the extra `onnx`) or `policy.pt`
        (TorchScript). See `rcac.deep.export` for what goes in and out."""
        if self.card["kind"] != "deep":
            raise InputError(
                f"export: a {self.card['kind']} policy given, a deep one expected; its table is policy.safetensors"
            )
        from rcac.deep.export import export

        return export(self._state, Path(path), self._network)

    def _one(self, observation: Any, rng: np.random.Generator | None) -> Any:
        batch = batched(self.spaces.observation, observation)
        actions, self._memory = self._backend.choose(batch, rng, self._memory, None)
        return int(actions[0]) if isinstance(self.spaces.action, Discrete) else actions[0]


def load_policy(path: str | Path, deterministic: bool | None = None, seed: int = 0, network: Any = None) -> Policy:
    """The policy of a run.

    Parameters
    ----------
    path : path
        Its folder, or its `policy.safetensors`.
    deterministic : bool
        Whether it takes the mode of its distribution; as it was trained to be deployed, if not given.
    seed : int
        Of its samples.
    network : class or function
        Of a body that was trained with `actor=…` and is not registered.

    Returns
    -------
    Policy

    Examples
    --------
    >>> import tempfile, rcac
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = rcac.train("rcac/RiverSwim-v0", folder=f"{folder}/run", loggers=["csv"])
    ...     policy = rcac.load_policy(f"{folder}/run")
    >>> policy.probabilities([0]).shape
    (1, 2)
    """
    path = Path(path)
    if path.name in (POLICY, CARD):
        path = path.parent
    if not path.is_dir():
        raise InputError(f"path: {str(path)!r} given, the folder of a run or its {POLICY} expected")
    state = RunFolder(path).read_policy()
    try:
        return Policy(state, deterministic, seed, network)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        if isinstance(error, InputError) and not str(error).startswith("space:"):
            raise InputError(f"{path}: {error}") from error
        raise InputError(f"{path / CARD}: not the card of a policy ({error!r})") from error


def _is_single(space: gym.Space, observation: Any) -> bool:
    if isinstance(space, Dict):
        key, part = next(iter(space.spaces.items()))
        return _is_single(part, observation[key])
    if isinstance(space, Tuple):
        return _is_single(space.spaces[0], observation[0])
    return np.ndim(observation) == len(space.shape or ())


# Kinds of policies


class TableBackend:
    """Probabilities (S, A)."""

    def __init__(self, state: State, network: Any = None) -> None:
        self.table = table = state.tensors["policy"]
        if table.ndim != 2 or not table.size:
            raise InputError(f"policy: shape {table.shape} given, an array (S, A) expected")
        sizes = [state.data["spaces"][name].get("n") for name in Spaces._fields]
        if any(size not in (None, own) for size, own in zip(sizes, table.shape, strict=True)):
            raise InputError(f"policy: shape {table.shape} given, {tuple(sizes)} expected by its spaces")
        if not (table >= 0).all() or not (np.abs(table.sum(axis=1) - 1) <= ROW_SUM_TOLERANCE).all():
            raise InputError("policy: rows that are no distributions given, numbers ≥ 0 with sum 1 expected")
        self.edges = np.cumsum(table, axis=1)

    def _states(self, observations: Any) -> np.ndarray:
        """Indices (B,) as they are, or one-hot rows (B, S)."""
        given, count = np.asarray(observations), len(self.table)
        if given.ndim == 2 and given.shape[1] == count:
            given = given.argmax(axis=1)
        whole = given.ndim == 1 and given.dtype.kind in "iu"
        if not whole or not ((given >= 0) & (given < count)).all():
            raise InputError(f"observation: {given} given, states 0 to {count - 1} or one-hot expected")
        return given

    def choose(
        self, observations: Any, rng: np.random.Generator | None, memory: Any, starts: np.ndarray | None
    ) -> tuple[np.ndarray, Any]:
        index = self._states(observations)
        if rng is None:
            return self.table[index].argmax(axis=1), None
        # the last edge is never compared, so that rounding cannot pass the end
        passed = self.edges[index, :-1] <= (rng.random(len(index)) * self.edges[index, -1])[:, None]
        return passed.sum(axis=1), None

    def probabilities(self, observations: Any, memory: Any) -> np.ndarray:
        return self.table[self._states(observations)]


def _deep(state: State, network: Any) -> Backend:
    with needs("policy of a deep method"):
        from rcac.deep.policy import DeepBackend

    return DeepBackend(state, network)


BACKENDS: dict[str, Callable[[State, Any], Backend]] = {"tabular": TableBackend, "deep": _deep}
