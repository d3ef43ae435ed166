"""The velocity tasks, n environments stepped together by `mujoco.batch`.

How a step is divided:

    physics      one call for all, on all cores, each on a model of its own (its context); the same bits at any number
                 of threads
    the rest     observations, rewards, ends and costs of all at once, in NumPy: Gymnasium's formulas in Gymnasium's
                 order, so that results are those of n single environments, bit for bit
"""

import copy
import os
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from mujoco.batch import Batch

from rcac.errors import InputError

from .. import snapshot
from ..checks import check_autoreset_mode, check_integer, final_infos
from ..contexts import HasContexts, Parameter
from . import physics, velocity
from .bodies import BODIES
from .physics import Physics

Stepped = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class VelocityVectorEnv(HasContexts, VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """n of a `VelocityTask`, which describes them; the same arguments, and those of a vector environment.

    Results are those of Gymnasium's `SyncVectorEnv` over n single environments with the same seeds, `infos` too, which
    have the velocities and the costs of a step and no other diagnostics.

    - `NEXT_STEP`: the step after an episode's end resets that environment instead: its reward is 0, and it has no cost
      (`_cost` and `_costs` are False there).
    - `SAME_STEP`: the environment is reset within the step that ends the episode; its last observation is in
      `infos["final_obs"]`, its last cost in `infos["final_info"]` and not in `infos["cost"]` (`_cost` is False).

    `num_threads`: 0 for OMP_NUM_THREADS, or else all cores. Results do not depend on it.
    """

    def __init__(
        self,
        single: velocity.VelocityTask,
        num_envs: int = 1,
        max_episode_steps: int = 1000,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        num_threads: int = 0,
    ) -> None:
        mode = check_autoreset_mode(autoreset_mode)
        self.num_envs, self._limit = (
            check_integer("num_envs", num_envs, 1),
            check_integer("max_episode_steps", max_episode_steps, 1),
        )
        self._same_step = mode is AutoresetMode.SAME_STEP
        self.metadata = {**single.metadata, "autoreset_mode": mode}
        self.render_mode = single.render_mode
        self.single_observation_space, self.single_action_space = single.observation_space, single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._single = single  # it renders, and has the arguments; never stepped
        self._physics = [Physics(copy.copy(single.model), single.physics.nominal) for _ in range(num_envs)]
        self._models = [each.model for each in self._physics]
        body = BODIES[type(single)]
        threads = min(check_integer("num_threads", num_threads, 0) or default_threads(), num_envs)
        self._batch = Batch(single.model, num_envs, threads, persistent=body.persistent)
        self._batch.set_models(self._models)
        self._body = body(single, self._batch, self._models)
        self._ctrl = self._batch.bind("ctrl")  # (n, nu), live
        self._generators: list[np.random.Generator] = []
        self._steps = np.zeros(num_envs, dtype=np.int64)  # taken in the present episode
        self._pending = np.zeros(num_envs, dtype=bool)  # those that the next step resets; none with SAME_STEP
        self.declare(single.context_parameters)

    # Contexts

    def parameter(self, name: str) -> Parameter:
        return self._single.parameter(name)

    def check_contexts(self, contexts: dict[str, np.ndarray]) -> None:
        physics.check_factors(contexts)

    def _apply(self, which: np.ndarray) -> None:
        """Bring the models of these environments under their contexts."""
        if which.size:
            for index in which:
                self._physics[index].apply({name: float(values[index]) for name, values in self.contexts.items()})
            self._batch.set_models(self._models)

    # Episodes

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        count = self.num_envs
        seeds = [seed + i for i in range(count)] if isinstance(seed, int) else [None] * count if seed is None else seed
        if len(seeds) != count:
            raise InputError(f"seed: {len(seeds)} given, one or {count} expected")
        if not self._generators:
            self._generators = [np_random()[0] for _ in range(count)]
        self._generators = [g if s is None else np_random(s)[0] for g, s in zip(self._generators, seeds, strict=True)]
        self._pending[:] = False
        self._restart(np.arange(count))
        return self._body.observe(), {}

    def _restart(self, which: np.ndarray) -> None:
        """Begin new episodes in the environments of these indices."""
        self._apply(self.begin_contexts(which))
        self._batch.reset(which, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        for index in which:
            self._body.qpos[index], self._body.qvel[index] = self._body.start(self._generators[index])
        self._batch.forward(which)
        self._body.begin(which)
        self._steps[which] = 0

    def step(self, actions: np.ndarray) -> Stepped:
        if not self._generators:
            raise gym.error.ResetNeeded("Cannot call step before reset")
        actions = np.asarray(actions)
        if actions.shape != self._ctrl.shape:
            raise InputError(f"actions: shape {actions.shape} given, {self._ctrl.shape} expected")
        stepped, single, body = ~self._pending, self._single, self._body
        self._ctrl[:] = actions
        self._batch.step(None if stepped.all() else stepped.nonzero()[0], single.frame_skip)
        self._steps += 1
        velocities, healthy = body.velocities(), body.healthy()
        rewards = body.rewards(velocities, actions, healthy).astype(np.float64, copy=False)
        costs = (single.speed(*velocities.T) > single.velocity_threshold).astype(np.float64)
        terminated = ~healthy & getattr(single, "_terminate_when_unhealthy", False)
        truncated = self._steps >= self._limit
        if self._same_step:
            return self._end_same_step(velocities, rewards, costs, terminated, truncated)
        if self._pending.any():
            self._restart(self._pending.nonzero()[0])
            for array in (velocities, rewards, costs, terminated, truncated):
                array[self._pending] = 0
        self._pending = terminated | truncated
        return body.observe(), rewards, terminated, truncated, _infos(velocities, costs, stepped)

    def _end_same_step(
        self,
        velocities: np.ndarray,
        rewards: np.ndarray,
        costs: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> Stepped:
        """Reset where an episode has ended, and put what they ended with under `final_obs` and `final_info`."""
        observations, done = self._body.observe(), terminated | truncated
        infos = _infos(velocities, costs, ~done)
        if done.any():
            infos |= final_infos(done, observations, _infos(velocities, costs, done))
            self._restart(done.nonzero()[0])
            observations = self._body.observe()
        return observations, rewards, terminated, truncated, infos

    # Saving

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, mid-episode, contexts included."""
        if not self._generators:
            raise gym.error.ResetNeeded("Cannot call get_state before reset")
        return {
            "physics": self._batch.state.copy(),
            **{name: array.copy() for name, array in self._body.extra_state().items()},
            "steps": self._steps.copy(),
            "pending": self._pending.copy(),
            "contexts": {name: values.tolist() for name, values in self.contexts.items()},
            "next_contexts": {name: values.tolist() for name, values in self.next_contexts.items()},
            "generators": {str(i): dict(g.bit_generator.state) for i, g in enumerate(self._generators)},
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned, of as many environments."""
        values = snapshot.read_array(state, "physics", self._batch.state.shape, float)
        extra = self._body.extra_state()
        taken = {name: snapshot.read_array(state, name, array.shape, float) for name, array in extra.items()}
        steps = snapshot.read_array(state, "steps", (self.num_envs,), int)
        pending = snapshot.read_array(state, "pending", (self.num_envs,), bool)
        self.restore_contexts(state)
        self._apply(np.arange(self.num_envs))
        found = state.get("generators", {})
        self._generators = [snapshot.read_generator({"generator": found.get(str(i))}) for i in range(self.num_envs)]
        self._batch.state[:], self._steps, self._pending = values, steps, pending
        for name, array in extra.items():
            array[:] = taken[name]

    # Pictures

    def render(self) -> tuple[Any, ...] | None:
        """One picture for each environment."""
        frames = []
        for index, model in enumerate(self._models):
            self._batch.get_data(index, self._single.data)
            mujoco.mj_forward(model, self._single.data)
            frames.append(self._single.render())
        return tuple(frames)

    def close_extras(self, **kwargs: Any) -> None:
        self._single.close()


def _infos(velocities: np.ndarray, costs: np.ndarray, present: np.ndarray) -> dict[str, Any]:
    """Gymnasium's form for n infos: the values, zero where they are not present, and which environments have them."""
    infos: dict[str, Any] = {}
    for name, values in (
        *zip(("x_velocity", "y_velocity"), velocities.T, strict=False),
        ("cost", costs),
        ("costs", costs[:, None]),
    ):
        infos[name] = np.where(present.reshape(-1, *(1,) * (values.ndim - 1)), values, 0.0)
        infos[f"_{name}"] = present.copy()
    return infos


def default_threads() -> int:
    """All cores, unless OMP_NUM_THREADS says otherwise, as it does where several runs share them."""
    if (given := os.environ.get("OMP_NUM_THREADS", "")).isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def vectorised(single: Callable[..., velocity.VelocityTask]) -> Callable[..., VelocityVectorEnv]:
    """The vector entry point of a task: its arguments, and those of a vector environment."""

    def make(
        num_envs: int = 1,
        *,
        max_episode_steps: int = 1000,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        num_threads: int = 0,
        **arguments: Any,
    ) -> VelocityVectorEnv:
        return VelocityVectorEnv(single(**arguments), num_envs, max_episode_steps, autoreset_mode, num_threads)

    return make


HopperVelocity = vectorised(velocity.HopperVelocity)
Walker2dVelocity = vectorised(velocity.Walker2dVelocity)
HalfCheetahVelocity = vectorised(velocity.HalfCheetahVelocity)
AntVelocity = vectorised(velocity.AntVelocity)
SwimmerVelocity = vectorised(velocity.SwimmerVelocity)
