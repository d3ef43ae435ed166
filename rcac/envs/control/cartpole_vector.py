"""`rcac/NoisyCartPole-v0` and `rcac/CartPoleTradeoff-v0`, n copies stepped together in NumPy."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode

from rcac.errors import InputError

from .. import snapshot
from ..checks import check_autoreset_mode, check_integer, final_infos
from ..contexts import HasContexts
from . import dynamics
from .dynamics import Constants, Perturbation


class NoisyCartPoleVector(HasContexts, CartPoleVectorEnv):
    """n copies of `NoisyCartPole`, which describes them; the same arguments, and the two of a vector environment.

    Results and `infos` are those of Gymnasium's `SyncVectorEnv` over n single environments, from one generator:

    - `NEXT_STEP`: the step after an episode's end resets that copy instead: its reward is 0, and it has no cost
      (`_cost` and `_costs` are False there).
    - `SAME_STEP`: the copy is reset within the step that ends the episode; its last observation is in
      `infos["final_obs"]`, its last cost in `infos["final_info"]` and not in `infos["cost"]` (`_cost` is False).

    After `set_contexts({"wind": w, …})`, each environment takes its own at its own next reset.
    """

    state: np.ndarray | None  # type: ignore[assignment]  # (4, n)
    steps: np.ndarray  # (n,) steps taken in the present episode
    prev_done: np.ndarray  # (n,) copies that the next step resets; all False with SAME_STEP

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int = 500,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        reward: str = "upright",
        render_mode: str | None = None,
        start: str = "random",
        **perturbation: Any,
    ) -> None:
        check_integer("num_envs", num_envs, 1)
        check_integer("max_episode_steps", max_episode_steps, 1)
        super().__init__(num_envs=num_envs, max_episode_steps=max_episode_steps, render_mode=render_mode)
        mode = check_autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": mode, "cost_range": [dynamics.COST_RANGE]}
        self.perturbation = Perturbation(**perturbation)
        self._reward, self._start = dynamics.choose_reward(reward), dynamics.start_bounds(start)
        self._same_step = mode is AutoresetMode.SAME_STEP
        self._constants = Constants.of(self)
        dynamics.rescale(self, self._constants, self.perturbation)
        self.declare(self.perturbation.parameters())
        # what an observation's components are, and the size beyond which an episode ends
        self.components = (
            ("position (m)", self.x_threshold),
            ("speed (m/s)", None),
            ("angle (rad)", self.theta_threshold_radians),
            ("angular speed (rad/s)", None),
        )

    def check_contexts(self, contexts: dict[str, np.ndarray]) -> None:
        self.perturbation.with_context(contexts)

    def _perturb(self) -> None:
        """Derive all constants from the contexts: a number if all have the same, which is faster."""
        same = {name: float(values[0]) for name, values in self.contexts.items() if (values == values[0]).all()}
        own = {name: values.copy() for name, values in self.contexts.items() if name not in same}
        self.perturbation = self.perturbation.with_context({**same, **own})
        dynamics.rescale(self, self._constants, self.perturbation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed, options={**self._start, **(options or {})})
        if self.begin_contexts(np.arange(self.num_envs)).size:
            self._perturb()
        assert self.state is not None
        return self._observe(self.state), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self.state is None:
            raise gym.error.ResetNeeded("Cannot call step before reset")
        action = self._checked(action)
        force = dynamics.push(self, self.perturbation, action, self.np_random)
        moved = dynamics.advance(self, self.state, force)
        state = self.state = dynamics.with_noise(self, self.perturbation, "state", moved, self.np_random)
        self.steps += 1

        cost = np.abs(state[0])  # (n,)
        reward = self._reward(self, state[0])
        terminated = (cost > self.x_threshold) | (np.abs(state[2]) > self.theta_threshold_radians)
        truncated = self.steps >= self.max_episode_steps
        if self._same_step:
            return self._end_same_step(cost, reward, terminated, truncated)

        stepped = ~self.prev_done
        fresh = self.prev_done.nonzero()[0]
        if fresh.size:
            self._restart(fresh)
            for array in (cost, reward, terminated, truncated):
                array[fresh] = 0
        self.prev_done = terminated | truncated
        return self._observe(state), reward, terminated, truncated, _costs(cost, stepped)

    def _end_same_step(
        self, cost: np.ndarray, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Reset the copies that have ended, and put what they ended with under `final_obs` and `final_info`."""
        assert self.state is not None
        observation = self._observe(self.state)
        done = terminated | truncated
        ended = done.nonzero()[0]
        if not ended.size:
            return observation, reward, terminated, truncated, _costs(cost, ~done)
        final = final_infos(done, observation, _costs(np.where(done, cost, 0.0), done))
        self._restart(ended)
        observation[ended] = self._observe(self.state[:, ended], self.perturbation.of(ended))
        infos = _costs(np.where(done, 0.0, cost), ~done) | final
        return observation, reward, terminated, truncated, infos

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, mid-episode."""
        if self.state is None:
            raise gym.error.ResetNeeded("Cannot call get_state before reset")
        return {
            "state": self.state.copy(),
            "steps": self.steps.copy(),
            "pending": self.prev_done.copy(),
            "start": np.array([self.low, self.high]),  # bounds of the starting state
            "contexts": {name: values.tolist() for name, values in self.contexts.items()},
            "next_contexts": {name: values.tolist() for name, values in self.next_contexts.items()},
            "generator": dict(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned, of as many copies."""
        physical = snapshot.read_array(state, "state", (4, self.num_envs), float)
        steps = snapshot.read_array(state, "steps", (self.num_envs,), np.int32)
        pending = snapshot.read_array(state, "pending", (self.num_envs,), bool)
        low, high = snapshot.read_array(state, "start", (2,), float)
        self.np_random = snapshot.read_generator(state)
        self.restore_contexts(state)
        self._perturb()
        self.state, self.steps, self.prev_done = physical, steps, pending
        self.low, self.high = float(low), float(high)

    def _restart(self, which: np.ndarray) -> None:
        """New starting states, and the contexts that were set, for the copies of these indices."""
        assert self.state is not None
        if self.begin_contexts(which).size:
            self._perturb()
        self.state[:, which] = self.np_random.uniform(self.low, self.high, (4, which.size))
        self.steps[which] = 0

    def _observe(self, state: np.ndarray, perturbation: Perturbation | None = None) -> np.ndarray:
        """What is seen of a state (4, k), as (k, 4)."""
        seen = dynamics.with_noise(self, perturbation or self.perturbation, "observation", state, self.np_random)
        return seen.T.astype(np.float32, order="C")

    def _checked(self, action: np.ndarray) -> np.ndarray:
        action = np.asarray(action)
        if action.shape != (self.num_envs,) or action.dtype.kind not in "iu":
            raise InputError(f"action: {action.dtype} of shape {action.shape} given, {self.num_envs} integers expected")
        wrong = action >> 1  # 0 for 0 and 1 only
        if wrong.any():
            index = int(wrong.nonzero()[0][0])
            raise InputError(f"action[{index}]: {action[index]} given, 0 or 1 expected")
        return action


def _costs(cost: np.ndarray, present: np.ndarray) -> dict[str, Any]:
    """Gymnasium's form for n infos: the values, and which copies have them."""
    return {"cost": cost, "_cost": present, "costs": cost[:, None].copy(), "_costs": present.copy()}
