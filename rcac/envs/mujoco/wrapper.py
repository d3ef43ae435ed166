"""Contexts for any MuJoCo environment of Gymnasium."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from gymnasium.utils import RecordConstructorArgs

from rcac.errors import InputError

from .. import snapshot
from ..contexts import Context, HasContext, Parameter
from . import physics
from .physics import Physics


class MujocoContexts(HasContext, gym.Wrapper, RecordConstructorArgs):
    """Factors on the model's fields as parameters of a context: `rcac.envs.mujoco.physics` has the names.

    It takes any environment of Gymnasium's `MujocoEnv`, with the user's own XML or not:

        env = MujocoContexts(gym.make("Ant-v5", xml_file="./my_ant.xml"), ["body_mass:torso", "geom_friction:*"])
        env.set_context({"body_mass:torso": 1.5})

    `parameters` are those declared; without, the common ones that change something in this model. Others that the
    model has may be set too. Observations, rewards, ends and infos are the environment's own.
    """

    @staticmethod
    def takes(name: str) -> bool:
        """Whether a parameter may have this name: a model's field and which of its parts, or gravity."""
        return ":" in name or name == "gravity"

    def __init__(self, env: gym.Env, parameters: Sequence[str] | None = None) -> None:
        RecordConstructorArgs.__init__(self, parameters=parameters)
        gym.Wrapper.__init__(self, env)
        inner = env.unwrapped
        if not isinstance(inner, MujocoEnv):
            raise InputError(f"env: {type(inner).__name__} given, one of Gymnasium's MujocoEnv expected")
        self._inner: MujocoEnv = inner
        self._physics = Physics(inner.model)
        self._steps = 0
        named = physics.common_parameters(inner.model) if parameters is None else map_names(inner.model, parameters)
        self.declare(named)

    def parameter(self, name: str) -> Parameter:
        return physics.parameter(self._inner.model, name)

    def check_context(self, context: Context) -> None:
        physics.check_factors(context)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.begin_context():
            self._physics.apply(self.context)
        self._steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._steps += 1
        return super().step(action)

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, the time limit included, if the environment keeps all of
        its state in MuJoCo's, as Gymnasium's do."""
        return {
            **physics.get_state(self._inner.model, self._inner.data),
            "steps": np.array(self._steps),
            "context": dict(self.context),
            "next_context": dict(self.next_context),
            "generator": dict(self._inner.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        generator, self._steps = snapshot.read_generator(state), int(snapshot.read_array(state, "steps", (), int))
        self._inner.np_random = generator
        self.restore_context(state)
        self._physics.apply(self.context)
        physics.set_state(self._inner.model, self._inner.data, state)
        self.env.set_wrapper_attr("_elapsed_steps", self._steps, force=False)


def map_names(model: Any, names: Sequence[str]) -> dict[str, Parameter]:
    return {name: physics.parameter(model, name) for name in names}
