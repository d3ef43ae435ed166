"""n tabular environments, stepped together in NumPy."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rcac.errors import InputError

from .. import snapshot
from ..checks import check_autoreset_mode, check_integer, final_infos
from .base import TabularEnv, check_state

VectorStep = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class TabularVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """n environments like a `TabularEnv`, which describes them: same model, same random marks, one generator for all.

    Results and `infos` are those of Gymnasium's `SyncVectorEnv` over n single environments; with one environment and
    the same seed, they are those of the single environment exactly.

    - `NEXT_STEP`: the step after an episode's end resets that environment instead: its reward is 0, and it has no cost
      (`_cost` and `_costs` are False there).
    - `SAME_STEP`: the environment is reset within the step that ends the episode; its last observation is in
      `infos["final_obs"]`, its last cost in `infos["final_info"]` and not in `infos["cost"]` (`_cost` is False).
    """

    def __init__(
        self,
        env_class: Callable[..., TabularEnv],
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **kwargs: Any,
    ) -> None:
        mode = check_autoreset_mode(autoreset_mode)
        if kwargs.get("render_mode") == "human":
            raise InputError("render_mode: 'human' given, None, 'ansi' or 'rgb_array' expected of a vector")
        self._single = env = env_class(**kwargs)  # never stepped; it renders
        self.layout = env.layout
        self.num_envs = check_integer("num_envs", num_envs, 1)
        limit = None if max_episode_steps is None else check_integer("max_episode_steps", max_episode_steps, 1)
        self._limit = np.inf if limit is None else limit
        self._same_step = mode is AutoresetMode.SAME_STEP
        self.metadata = {**env.metadata, "autoreset_mode": mode}
        self.render_mode = env.render_mode
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.rcmdp = env.rcmdp
        self._simulation = env.simulation
        self._states: np.ndarray | None = None  # (n,)
        self._marked = np.zeros((num_envs, *self._simulation.marks.probability.shape), dtype=bool)  # (n, S, K)
        self._steps = np.zeros(num_envs, dtype=np.int64)  # taken in the present episode
        self._pending = np.zeros(num_envs, dtype=bool)  # environments that the next step resets; none with SAME_STEP

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._simulation.configure(options)
        self._states = self._simulation.start(self.np_random.random(self.num_envs)).astype(np.int64)
        self._marked = self._simulation.marks.sample(self.np_random, self.num_envs)
        self._steps[:] = 0
        self._pending[:] = False
        return self._states.copy(), {}

    def step(self, actions: np.ndarray) -> VectorStep:
        states = self._require_reset()
        actions = self._check_actions(actions)
        simulation, rng = self._simulation, self.np_random
        marked = self._marked[np.arange(self.num_envs), states]  # (n, K)
        costs = simulation.costs(states, actions, marked)  # (n, N+1)
        uniform = rng.random(self.num_envs)
        states = simulation.move(states, actions, uniform).astype(np.int64)
        self._steps += 1
        active = ~self._pending
        if self._pending.any():
            states[self._pending] = simulation.start(uniform[self._pending])
            costs[self._pending] = 0.0
            self._steps[self._pending] = 0
        if simulation.marks.each_step:
            self._marked = simulation.marks.sample(rng, self.num_envs)
        else:
            self._resample_marks(self._pending)
        self._states = states
        truncated = self._steps >= self._limit
        rewards = 0.0 - costs[:, 0]  # a cost of 0 is a reward of 0, not of −0
        terminated = np.zeros(self.num_envs, dtype=bool)
        if not self._same_step:
            self._pending = truncated.copy()
            return states.copy(), rewards, terminated, truncated, _infos(costs, active)
        infos = _infos(costs, ~truncated)
        if truncated.any():
            infos |= final_infos(truncated, states, _infos(costs, truncated))
            states[truncated] = simulation.start(rng.random(int(truncated.sum())))
            self._resample_marks(truncated)
            self._steps[truncated] = 0
        return states.copy(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...] | None:
        """One picture or text for each environment."""
        if self.render_mode is None:
            gym.logger.warn("render() draws nothing without a render_mode: choose 'ansi' or 'rgb_array'")
            return None
        scenes = zip(self._require_reset(), self._marked, self._steps, strict=True)
        return tuple(self._single.show(int(s), marked, [f"step {steps}"]) for s, marked, steps in scenes)

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, mid-episode, except the kernel if it is not nominal."""
        return {
            "state": self._require_reset().copy(),
            "steps": self._steps.copy(),
            "pending": self._pending.copy(),
            "marked": self._marked.copy(),
            "generator": dict(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        states = check_state(snapshot.read_array(state, "state", (self.num_envs,), int), self.rcmdp)
        steps = snapshot.read_array(state, "steps", (self.num_envs,), int)
        pending = snapshot.read_array(state, "pending", (self.num_envs,), bool)
        marked = snapshot.read_array(state, "marked", self._marked.shape, bool)
        self.np_random = snapshot.read_generator(state)
        self._states, self._steps, self._pending, self._marked = states, steps, pending, marked

    def _require_reset(self) -> np.ndarray:
        if self._states is None:
            raise gym.error.ResetNeeded("Call reset first")
        return self._states

    def _resample_marks(self, which: np.ndarray) -> None:
        """Sample the marks of these environments again."""
        if which.any():
            self._marked[which] = self._simulation.marks.sample(self.np_random, int(which.sum()))

    def _check_actions(self, actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions)
        expected = f"({self.num_envs},) integers in 0..{self.rcmdp.num_actions - 1} expected"
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise InputError(f"actions: shape {actions.shape} of {actions.dtype} given, {expected}")
        bad = (actions < 0) | (actions >= self.rcmdp.num_actions)
        if bad.any():
            raise InputError(f"actions[{np.argmax(bad)}]: {actions[np.argmax(bad)]} given, {expected}")
        return actions.astype(np.int64)


def _infos(costs: np.ndarray, present: np.ndarray) -> dict[str, Any]:
    """Costs (n, N+1) as infos of the environments that are present, zeros for the others."""
    costs = np.where(present[:, None], costs[:, 1:], 0.0)
    first = costs[:, 0].copy() if costs.shape[1] else np.zeros(len(costs))
    return {"cost": first, "_cost": present.copy(), "costs": costs, "_costs": present.copy()}


vector = partial(TabularVectorEnv, TabularEnv)
