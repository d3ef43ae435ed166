"""`rcac/HopperVelocity-v0` and its kin: Gymnasium's MuJoCo bodies under a speed limit."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import mujoco
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.envs.mujoco.walker2d_v5 import Walker2dEnv
from gymnasium.utils import EzPickle

from rcac.errors import InputError

from .. import snapshot
from ..contexts import Context, HasContext, Parameter
from . import physics
from .physics import Physics

WALKING = ("body_mass:torso", "body_mass:*", "geom_friction:*", "actuator_gear:*", "dof_damping:*", "gravity")
SWIMMING = (
    "body_mass:torso",
    "body_mass:*",
    "actuator_gear:*",
    "density",
    "viscosity",
)  # no contact, no weight, no damping


class VelocityTask(HasContext, MujocoEnv, EzPickle):
    """
    ## Description

    A body of Gymnasium's MuJoCo environments, version 5, with a speed limit: the recipe of Safety-Gymnasium. Return
    grows with speed, cost counts the steps above the limit. With nominal parameters, the same seed and actions give
    the same observations, rewards and ends as Gymnasium's, bit for bit.

    | | body | limit (m/s) | speed |
    |---|---|---|---|
    | `rcac/HopperVelocity-v0` | `Hopper-v5` | .7402 | forward |
    | `rcac/Walker2dVelocity-v0` | `Walker2d-v5` | 2.3415 | forward |
    | `rcac/HalfCheetahVelocity-v0` | `HalfCheetah-v5` | 3.2096 | forward |
    | `rcac/AntVelocity-v0` | `Ant-v5` | 2.6222 | in the plane |
    | `rcac/SwimmerVelocity-v0` | `Swimmer-v5` | .2282 | forward |

    ## Action Space, Observation Space, Rewards, Starting State, Episode End

    The body's, as Gymnasium documents them; truncated after 1000 steps.

    ## Costs

    `info["cost"]` is 1.0 if the speed of the step exceeds the limit, else 0.0; `info["costs"]` the same as an array
    `(1,)`. The usual budget is 25 per episode.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `velocity_threshold` | as above | the speed limit |
    | `body_mass:torso`, `geom_friction:*`, … | 1 | factors on the model's fields; `rcac.envs.mujoco.physics` has the names |
    | all others | | the body's own, as Gymnasium documents them |

    A name with a colon is given as `gym.make(id, **{"body_mass:torso": 1.5})`.

    ## Contexts

    The factors, by `set_context({"body_mass:torso": 1.5})`, from the next reset on. Declared are those of
    `context_parameters`; others that the model has may be set too.
    """

    limit: ClassVar[float]
    varied: ClassVar[tuple[str, ...]] = WALKING

    def __init__(self, velocity_threshold: float | None = None, **arguments: Any) -> None:
        factors = {name: arguments[name] for name in arguments if physics.is_factor(name)}
        with quiet():
            super().__init__(**{name: value for name, value in arguments.items() if name not in factors})
        EzPickle.__init__(self, velocity_threshold, **arguments)
        self.velocity_threshold = self.limit if velocity_threshold is None else velocity_threshold
        if not self.velocity_threshold >= 0:
            raise InputError(f"velocity_threshold: {velocity_threshold!r} given, a speed ≥ 0 expected")
        self.metadata = {**self.metadata, "cost_units": ["steps above the speed limit"], "cost_range": [(0, 1)]}
        self.physics = Physics(self.model)
        self._steps = 0
        self.declare({name: self.parameter(name) for name in self.varied})
        if factors:
            self.set_context(factors)
            chosen = self.next_context
            self.declare({name: known.around(chosen[name]) for name, known in self.context_parameters.items()})
            self.physics.apply(self.context)

    def parameter(self, name: str) -> Parameter:
        return physics.parameter(self.model, name)

    def check_context(self, context: Context) -> None:
        physics.check_factors(context)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if self.begin_context():
            self.physics.apply(self.context)
        self._steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self._steps += 1
        cost = float(self.speed(info["x_velocity"], info.get("y_velocity")) > self.velocity_threshold)
        costs: dict[str, Any] = {"cost": cost, "costs": np.array([cost])}
        return observation, float(reward), bool(terminated), truncated, {**info, **costs}

    @staticmethod
    def speed(x_velocity: Any, y_velocity: Any = None) -> Any:
        """What is limited, of one environment or of many."""
        return x_velocity

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, the context included.

        `gymnasium.make` counts the time limit in a wrapper of its own, `TimeLimit`; the count is in this state too:
        after `env.unwrapped.set_state(state)`, call `env.set_wrapper_attr("_elapsed_steps", int(state["steps"]))`.
        """
        return {
            **physics.get_state(self.model, self.data),
            "steps": np.array(self._steps),
            "context": dict(self.context),
            "next_context": dict(self.next_context),
            "generator": dict(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Any, qvel: np.ndarray | None = None) -> None:
        """Continue from what `get_state` returned. With two arrays, Gymnasium's method: positions and velocities."""
        if qvel is not None:
            return super().set_state(state, qvel)
        self.np_random, self._steps = snapshot.read_generator(state), int(snapshot.read_array(state, "steps", (), int))
        self.restore_context(state)
        self.physics.apply(self.context)
        return physics.set_state(self.model, self.data, state)


class HopperVelocity(VelocityTask, HopperEnv):
    __doc__ = VelocityTask.__doc__
    limit = 0.7402


class Walker2dVelocity(VelocityTask, Walker2dEnv):
    __doc__ = VelocityTask.__doc__
    limit = 2.3415


class HalfCheetahVelocity(VelocityTask, HalfCheetahEnv):
    __doc__ = VelocityTask.__doc__
    limit = 3.2096


class AntVelocity(VelocityTask, AntEnv):
    __doc__ = VelocityTask.__doc__
    limit = 2.6222

    @staticmethod
    def speed(x_velocity: Any, y_velocity: Any = None) -> Any:
        return np.sqrt(x_velocity**2 + y_velocity**2)


class SwimmerVelocity(VelocityTask, SwimmerEnv):
    __doc__ = VelocityTask.__doc__
    limit = 0.2282
    varied = SWIMMING


_lock = threading.Lock()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Loading a model without MuJoCo's warnings about its XML, which go to a file in the working directory."""
    with _lock:
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda message: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)
