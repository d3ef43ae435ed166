"""What Gymnasium computes of a step, for n environments at once: one class per body, after `gymnasium.envs.mujoco`.

Every operation is Gymnasium's in Gymnasium's order, so that the numbers agree bit for bit. The arguments of a body
(weights, healthy ranges, …) are read from a single environment, which has checked them.
"""

from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from . import velocity


class Body:
    """HalfCheetah, and what the others do alike."""

    dimensions = 1  # in which speed is measured
    max_velocity: float | None = None  # beyond which observed velocities are clipped
    normal_velocities = True  # at the start; else uniform
    persistent = False  # whether the batch has to keep all of MjData

    def __init__(self, single: Any, batch: Batch, models: list[mujoco.MjModel]) -> None:
        self.single, self.batch, self.models = single, batch, models
        self.qpos, self.qvel = batch.bind("qpos"), batch.bind("qvel")  # (n, nq), (n, nv), live
        self.skipped = self.dimensions * single._exclude_current_positions_from_observation
        self.positions = np.zeros((len(models), self.dimensions))  # (n, k) that velocities are measured by

    def start(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Random positions (nq,) and velocities (nv,)."""
        single, scale = self.single, self.single._reset_noise_scale
        qpos = single.init_qpos + rng.uniform(low=-scale, high=scale, size=single.model.nq)
        if self.normal_velocities:
            return qpos, single.init_qvel + scale * rng.standard_normal(single.model.nv)
        return qpos, single.init_qvel + rng.uniform(low=-scale, high=scale, size=single.model.nv)

    def begin(self, which: np.ndarray) -> None:
        """After a reset of these environments."""
        self.positions[which] = self.measured()[which]

    def velocities(self) -> np.ndarray:
        """(n, k) since the last call, or the reset."""
        before, self.positions = self.positions, self.measured().copy()
        return (self.positions - before) / self.single.dt

    def measured(self) -> np.ndarray:
        return self.qpos[:, : self.dimensions]

    def rewards(self, velocities: np.ndarray, actions: np.ndarray, healthy: np.ndarray) -> np.ndarray:
        """(n,)"""
        return self.single._forward_reward_weight * velocities[:, 0] - self.control_costs(actions)

    def control_costs(self, actions: np.ndarray) -> np.ndarray:
        return self.single._ctrl_cost_weight * np.sum(np.square(actions), axis=1)

    def healthy(self) -> np.ndarray:
        """(n,)"""
        return np.ones(len(self.models), dtype=bool)

    def observe(self) -> np.ndarray:
        """(n, d)"""
        limit = self.max_velocity
        velocities = self.qvel if limit is None else np.minimum(np.maximum(self.qvel, -limit), limit)
        return np.concatenate((self.qpos[:, self.skipped :], velocities), axis=1)

    def extra_state(self) -> dict[str, np.ndarray]:
        """What is not in the simulation's state, live."""
        return {"positions": self.positions}


class Swimmer(Body):
    dimensions = 2
    normal_velocities = False


class Legged(Body):
    """Hopper and Walker2d, which fall."""

    max_velocity = 10.0
    normal_velocities = False

    def rewards(self, velocities: np.ndarray, actions: np.ndarray, healthy: np.ndarray) -> np.ndarray:
        forward = self.single._forward_reward_weight * velocities[:, 0]
        return (forward + healthy * self.single._healthy_reward) - self.control_costs(actions)

    def healthy(self) -> np.ndarray:
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        (low, high), (left, right) = self.single._healthy_z_range, self.single._healthy_angle_range
        return (low < z) & (z < high) & (left < angle) & (angle < right)


class Hopper(Legged):
    def healthy(self) -> np.ndarray:
        low, high = self.single._healthy_state_range
        state = np.concatenate((self.qpos[:, 2:], self.qvel), axis=1)
        return super().healthy() & ((low < state) & (state < high)).all(axis=1)


class Ant(Body):
    """Its observations and rewards have contact forces, which MuJoCo computes when asked, for one simulation at a time."""

    dimensions = 2
    persistent = True

    def __init__(self, single: Any, batch: Batch, models: list[mujoco.MjModel]) -> None:
        super().__init__(single, batch, models)
        self.main = single.data.body(single._main_body).id
        self.xpos = batch.bind("xpos")  # (n, nbody, 3), live
        self.forces = np.zeros((len(models), *single.data.cfrc_ext.shape))  # (n, nbody, 6), clipped
        self.data = mujoco.MjData(single.model)

    def begin(self, which: np.ndarray) -> None:
        super().begin(which)
        self.forces[which] = 0.0

    def velocities(self) -> np.ndarray:
        for index, model in enumerate(self.models):
            self.batch.get_data(index, self.data)
            mujoco.mj_rnePostConstraint(model, self.data)
            self.forces[index] = self.data.cfrc_ext
        np.clip(self.forces, *self.single._contact_force_range, out=self.forces)
        return super().velocities()

    def measured(self) -> np.ndarray:
        return self.xpos[:, self.main, :2]

    def rewards(self, velocities: np.ndarray, actions: np.ndarray, healthy: np.ndarray) -> np.ndarray:
        forward = velocities[:, 0] * self.single._forward_reward_weight
        squares = np.square(self.forces.reshape(len(self.forces), -1))
        costs = self.control_costs(actions) + self.single._contact_cost_weight * np.sum(squares, axis=1)
        return (forward + healthy * self.single._healthy_reward) - costs

    def healthy(self) -> np.ndarray:
        low, high = self.single._healthy_z_range
        finite = np.isfinite(self.qpos).all(axis=1) & np.isfinite(self.qvel).all(axis=1)
        return finite & (low <= self.qpos[:, 2]) & (self.qpos[:, 2] <= high)

    def observe(self) -> np.ndarray:
        seen = super().observe()
        if not self.single._include_cfrc_ext_in_observation:
            return seen
        return np.concatenate((seen, self.forces[:, 1:].reshape(len(seen), -1)), axis=1)

    def extra_state(self) -> dict[str, np.ndarray]:
        return {**super().extra_state(), "forces": self.forces}


BODIES: dict[type[velocity.VelocityTask], type[Body]] = {
    velocity.HopperVelocity: Hopper,
    velocity.Walker2dVelocity: Legged,
    velocity.HalfCheetahVelocity: Body,
    velocity.AntVelocity: Ant,
    velocity.SwimmerVelocity: Swimmer,
}
