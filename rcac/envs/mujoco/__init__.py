"""MuJoCo: the velocity tasks, and contexts for any MuJoCo environment. Needs the extra `mujoco`."""

import gymnasium as gym

try:
    import mujoco  # noqa: F401
except ImportError as error:
    raise gym.error.DependencyNotInstalled('MuJoCo is not installed: pip install "rcac[mujoco]"') from error

from .wrapper import MujocoContexts

__all__ = ["MujocoContexts"]
