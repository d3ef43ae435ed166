"""The environments, in Gymnasium's registry.

Entry points are strings: registering loads no environment's module, and so neither torch nor matplotlib nor pygame.
"""

from typing import Any, NamedTuple

import gymnasium as gym

from .tabular import ROWS


class Registration(NamedTuple):
    """The arguments of `gymnasium.register` that our environments use, under Gymnasium's names."""

    id: str
    entry_point: str
    vector_entry_point: str | None = None
    max_episode_steps: int | None = None
    kwargs: dict[str, Any] | None = None


_CARTPOLE = "rcac.envs.control.cartpole:NoisyCartPole"
_CARTPOLES = "rcac.envs.control.cartpole_vector:NoisyCartPoleVector"
_VELOCITY, _BODIES = "rcac.envs.mujoco.velocity", ("Hopper", "Walker2d", "HalfCheetah", "Ant", "Swimmer")

ENVIRONMENTS = (
    Registration("rcac/NoisyCartPole-v0", _CARTPOLE, _CARTPOLES, 500),
    Registration("rcac/CartPoleTradeoff-v0", _CARTPOLE, _CARTPOLES, 500, {"reward": "offset"}),
    *(
        Registration(
            f"rcac/{body}Velocity-v0", f"{_VELOCITY}:{body}Velocity", f"{_VELOCITY}_vector:{body}Velocity", 1000
        )
        for body in _BODIES
    ),
    *(Registration(**row) for row in ROWS),
)


def register_envs() -> None:
    """Register every environment that is not registered yet."""
    for row in ENVIRONMENTS:
        if row.id not in gym.registry:
            gym.register(**row._asdict())


def __getattr__(name: str) -> Any:
    """`register_rcmdp`, loaded when it is first asked for."""
    if name == "register_rcmdp":
        from .tabular.base import register_rcmdp

        return register_rcmdp
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
