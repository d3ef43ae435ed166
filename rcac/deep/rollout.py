"""Stepping a vector environment into arrays of T steps by n environments.

The objective enters as c_0 = −reward, constraint costs from infos["costs"] (n, N) or infos["cost"] (n,).
Both ways of starting the next episode end in the same arrays:

    SAME_STEP   the step that ends an episode already returns the next one's first observation; the true final
                observation and costs are in infos["final_obs"] and infos["final_info"].
    NEXT_STEP   the step that ends an episode returns its final observation; the step after ignores its action and
                returns the next episode's first observation. That row is no transition: `valid` is False there.
"""

from collections.abc import Callable
from textwrap import shorten
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from rcac.deep.spaces import Actions, Encoder, History, picked
from rcac.envs.contexts import contexts_of, set_contexts
from rcac.envs.failure import StepsLost
from rcac.envs.replay import OPTION, ReplayedEpisode, places
from rcac.errors import InputError
from rcac.learner import State

Act = Callable[[np.ndarray, int], np.ndarray]  # observations (n, d), step of the rollout → the actor's actions (n, …)


class Trajectory(NamedTuple):
    observations: (
        np.ndarray
    )  # (T+1, n, d) encoded, see `rcac.deep.spaces`; the last row is where the next rollout begins
    actions: np.ndarray  # (T, n) or (T, n, D), the actor's own
    costs: np.ndarray  # (N+1, T, n), objective first
    terminated: np.ndarray  # (T, n) bool
    truncated: np.ndarray  # (T, n) bool
    valid: np.ndarray  # (T, n) bool, False on the reset step of NEXT_STEP
    final_at: np.ndarray  # (m, 2) rows (t, env) whose next observation is not observations[t+1]
    final: np.ndarray  # (m, d) their true next observations
    initial: np.ndarray  # (k, d) first observations of the episodes that began
    begun: np.ndarray  # (T, n) bool, whether observations[t+1] is one of these


class Rollout:
    """A vector environment in the middle of its episodes."""

    def __init__(self, envs: VectorEnv, encoder: Encoder, history: History, actions: Actions, constraints: int) -> None:
        self.envs, self.encoder, self.history, self.actions = envs, encoder, history, actions
        self.constraints = constraints
        self.name = envs.spec.id if envs.spec is not None else type(envs.unwrapped).__name__
        mode = envs.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise InputError(f'{self.name}: autoreset_mode is {mode}, NEXT_STEP or SAME_STEP expected in "metadata"')
        self.same_step = mode == AutoresetMode.SAME_STEP
        self.steps = 0  # of every environment, since the first reset
        dtype = encoder.dtype if history.length == 1 else np.float32
        self.observations = np.zeros((envs.num_envs, history.size), dtype)  # (n, d) where the environments are
        self.resetting = np.zeros(envs.num_envs, dtype=bool)  # (n,) the next step only resets this one
        self.played: list[np.ndarray] = []  # (n, …) own actions of the last steps, as long as any episode needs them
        self.lengths = np.zeros(envs.num_envs, dtype=np.int64)  # (n,) actions of the episodes in progress
        self._recorded = False  # whether they are needed
        self.inexact: str | None = None  # why episodes did not go on where a saved state had left them

    def reset(self, seed: int) -> np.ndarray:
        """Begin anew; returns the first observations (n, d)."""
        try:
            observations, _ = self.envs.reset(seed=seed)
        except (Exception, SystemExit) as error:
            raise self._raised(error, "reset ") from error
        self.observations = self.history.first(self._encoded(observations))
        self.resetting = np.zeros(self.envs.num_envs, dtype=bool)
        self.played, self.lengths = [], np.zeros(self.envs.num_envs, dtype=np.int64)
        self._recorded = not hasattr(self.envs, "get_state") and places(self.envs) is not None
        return self.observations

    def collect(self, act: Act, length: int) -> Trajectory:
        """`length` steps of every environment."""
        n, history = self.envs.num_envs, self.history
        observations = np.empty((length + 1, *self.observations.shape), dtype=self.observations.dtype)
        actions = np.empty((length, n, *self.actions.own_shape), dtype=self.actions.own_dtype)
        costs = np.zeros((self.constraints + 1, length, n))
        terminated, truncated = np.zeros((2, length, n), dtype=bool)
        valid = np.ones((length, n), dtype=bool)
        final_at: list[tuple[int, int]] = []
        final: list[np.ndarray] = []
        observations[0] = self.observations
        for t in range(length):
            actions[t] = act(observations[t], t)
            following, reward, terminated[t], truncated[t], infos = self._step(actions[t])
            frames = self._encoded(following)
            valid[t] = ~self.resetting
            done = terminated[t] | truncated[t]
            costs[0, t] = -np.asarray(reward)
            if self.constraints:
                costs[1:, t] = self._constraint_costs(infos, valid[t], done).T
            self._check_costs(costs[:, t], valid[t])
            if history.length == 1:
                observations[t + 1] = frames
            else:
                described = self.actions.describe(actions[t])
                observations[t + 1] = history.next(observations[t], described, frames)
                begun = done if self.same_step else self.resetting
                observations[t + 1, begun] = history.first(frames[begun])
            if self.same_step:
                for env in np.flatnonzero(truncated[t] & ~terminated[t]):
                    final_at.append((t, int(env)))
                    frame = self._final_observation(infos, int(env))
                    if history.length > 1:
                        frame = history.next(observations[t, env][None], described[env][None], frame)
                    final.append(frame[0])
                self._remember(actions[t], done)
            else:
                self._remember(actions[t], self.resetting)
                self.resetting = done
            self.steps += 1
        costs[:, ~valid] = 0.0
        self.observations = observations[-1]
        begun = terminated | truncated if self.same_step else ~valid
        places = np.array(final_at, dtype=np.int64).reshape(-1, 2)
        ends = np.array(final, dtype=observations.dtype).reshape(-1, history.size)
        begins = observations[1:][begun]
        return Trajectory(observations, actions, costs, terminated, truncated, valid, places, ends, begins, begun)

    def _remember(self, actions: np.ndarray, begun: np.ndarray) -> None:
        """An action of every environment; `begun`: where it led to the first observation of an episode."""
        if self._recorded:
            self.lengths = np.where(begun, 0, self.lengths + 1)
            self.played.append(actions.copy())
            del self.played[: len(self.played) - int(self.lengths.max())]

    def _step(self, actions: np.ndarray) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        try:
            return self.envs.step(self.actions.raw(actions))
        except (Exception, SystemExit) as error:
            raise self._raised(error) from error

    def _raised(self, error: BaseException, what: str = "") -> InputError:
        return InputError(f"{self.name} {what}raised at step {self.steps}: {type(error).__name__}: {error}")

    def _encoded(self, observations: Any) -> np.ndarray:
        """(n, f), refused where it is not finite."""
        try:
            frames = self.encoder(observations).reshape(self.envs.num_envs, -1)
            if frames.shape[1] != self.encoder.size:
                raise InputError(f"observations have {frames.shape[1]} numbers each, {self.encoder.size} expected")
        except (TypeError, ValueError, KeyError, IndexError) as error:  # InputError is one
            raise InputError(f"{self.name}, step {self.steps}: {error}") from error
        self._check_finite(frames)
        return frames

    def _constraint_costs(self, infos: dict[str, Any], valid: np.ndarray, done: np.ndarray) -> np.ndarray:
        """(n, N); where a step ended an episode, "final_info" comes first: `infos` may be of the next one's reset."""
        found = np.full((len(valid), self.constraints), np.nan)
        missing = valid.copy()
        for source, of in ((infos.get("final_info", {}), done), (infos, valid)):
            for key in ("costs", "cost"):
                if key not in source:
                    continue
                present = self._present(source, key, missing & of)
                if present.any():
                    rows = self._rows(source, key, present)
                    if len(rows) == len(valid):
                        return rows  # of all, as a rule
                    found[present] = rows
                    missing &= ~present
        if missing.any():
            env = int(np.flatnonzero(missing)[0])
            raise InputError(
                f'{self.name}, environment {env}, step {self.steps}: info has no "cost" or "costs", one expected'
            )
        return found

    def _present(self, source: dict[str, Any], key: str, asked: np.ndarray) -> np.ndarray:
        """(n,) bool, the environments asked for that are there: all of them, unless a mask beside the costs says otherwise."""
        mask = np.asarray(source.get(f"_{key}", asked), dtype=bool)
        if mask.shape != asked.shape:
            raise InputError(
                f"{self.name}, step {self.steps}: info['_{key}'] has shape {mask.shape}, {asked.shape} expected"
            )
        return asked & mask

    def _rows(self, source: dict[str, Any], key: str, present: np.ndarray) -> np.ndarray:
        """(m, N) costs of the m environments that are present."""
        try:
            given = np.asarray(source[key])[present]
            rows = np.array([np.ravel(row) for row in given] if given.dtype == object else given, dtype=np.float64)
        except (IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.name}, step {self.steps}: info[{key!r}] is {shorten(repr(source[key]), 100)}, "
                f"{len(present)} costs (or rows of them) expected, one for each environment"
            ) from error
        rows = rows.reshape(len(rows), -1)
        if rows.shape[1] != self.constraints:
            raise InputError(
                f"{self.name}, step {self.steps}: info[{key!r}] has {rows.shape[1]} costs, "
                f"{self.constraints} expected, one for each budget"
            )
        return rows

    def _final_observation(self, infos: dict[str, Any], env: int) -> np.ndarray:
        """(1, f)"""
        where = f"{self.name}, environment {env}, step {self.steps}"
        if "final_obs" not in infos:
            raise InputError(f'{where}: truncated, but infos has no "final_obs"')
        try:
            frame = self.encoder.one(picked(self.encoder.space, infos["final_obs"], env))
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"{where}: final_obs: {error}") from error
        if not np.isfinite(frame).all():
            raise InputError(f"{where}: final_obs {frame[0].tolist()}, finite expected")
        return frame

    def _check_finite(self, frames: np.ndarray) -> None:
        """Refuse anything that is not finite, with its place."""
        if frames.dtype.kind == "f" and not np.isfinite(frames.sum()):
            bad = ~np.isfinite(frames).all(axis=1)
            if bad.any():
                env = int(np.flatnonzero(bad)[0])
                value = shorten(str(frames[env].tolist()), 200)
                raise InputError(
                    f"{self.name}, environment {env}, step {self.steps}: observation {value}, finite expected"
                )

    def _check_costs(self, costs: np.ndarray, valid: np.ndarray) -> None:
        bad_costs = ~np.isfinite(costs) & valid
        if bad_costs.any():
            index, env = (int(i) for i in np.argwhere(bad_costs)[0])
            label = "reward" if index == 0 else f"cost {index}"
            value = -costs[0, env] if index == 0 else costs[index, env]
            raise InputError(
                f"{self.name}, environment {env}, step {self.steps}: {label} is {value}, a finite number expected"
            )

    # Saving: an environment that has `get_state` and `set_state` (a dict of arrays and plain data) continues in the
    # middle of its episodes, and so do copies of any other, whose episodes are played again (`rcac.envs.replay`). A
    # vector environment of another kind has to begin new ones, and the state says `exact: false`.

    def state(self) -> State:
        tensors = {"observations": self.observations.copy(), "resetting": self.resetting.copy()}
        data: dict[str, Any] = {"steps": self.steps, "exact": True, "environment": {}, "places": None}
        if hasattr(self.envs, "get_state"):
            for key, value in self.envs.get_state().items():
                if isinstance(value, np.ndarray):
                    tensors[f"environment.{key}"] = value.copy()
                else:
                    data["environment"][key] = value
        elif (found := places(self.envs)) is not None:
            data["places"] = [list(place) for place in found]
            shape = (len(self.played), self.envs.num_envs, *self.actions.own_shape)
            tensors["played"] = np.array(self.played, dtype=self.actions.own_dtype).reshape(shape)
            tensors["lengths"] = self.lengths.copy()
            tensors |= {f"context.{name}": values for name, values in contexts_of(self.envs).items()}
        else:
            data["exact"] = False
        return State(tensors, data)

    def load(self, state: State) -> None:
        self.steps, self.inexact = int(state.data["steps"]), None
        if not state.data["exact"]:
            self.inexact = "its environment cannot be saved in the middle of an episode"
        elif state.data["places"] is not None:
            self._play_again(state)
        else:
            start = "environment."
            arrays = {name[len(start) :]: x for name, x in state.tensors.items() if name.startswith(start)}
            self.envs.set_state({**arrays, **state.data["environment"]})  # type: ignore[attr-defined]
        if self.inexact is None:
            self.observations, self.resetting = state.tensors["observations"], state.tensors["resetting"]

    def _play_again(self, state: State) -> None:
        """Bring every environment to where it was, and see whether it is."""
        self.played, self.lengths = list(state.tensors["played"]), state.tensors["lengths"]
        start, episodes = "context.", {}
        contexts = {name[len(start) :]: x for name, x in state.tensors.items() if name.startswith(start)}
        if contexts:
            set_contexts(self.envs, contexts)
        every = [self.actions.raw(actions) for actions in self.played]
        for env, (first, number) in enumerate(state.data["places"]):
            own = every[len(every) - int(self.lengths[env]) :]
            episodes[first] = ReplayedEpisode(number, [actions[env] for actions in own])
        seeds = [first for first, _ in state.data["places"]]
        observations, _ = self.envs.reset(seed=seeds, options={OPTION: episodes})  # type: ignore[arg-type]
        if isinstance(self.envs, StepsLost):
            self.envs.elapsed, self.envs.resetting = self.lengths.copy(), state.tensors["resetting"].copy()
        frames = self._encoded(observations)
        if not np.array_equal(frames, state.tensors["observations"][:, : self.encoder.size]):
            self.inexact = "its environment did not repeat itself from the same seeds and actions"
