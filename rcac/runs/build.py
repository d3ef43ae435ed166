"""From a checked configuration to the learner it describes. Names meet code here and in `environments` only."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from rcac import registry
from rcac.errors import InputError, needs
from rcac.learner import Learner, State
from rcac.problem import RCMDP
from rcac.runs.config import FAMILIES, Config, checked
from rcac.runs.environments import env_id, make_envs, prefix_field
from rcac.spaces import space_card

if TYPE_CHECKING:
    from rcac.uncertainty.base import Uncertainty

__all__ = ["Built", "Modules", "build", "check_model", "make_envs", "make_settings", "make_uncertainty"]


class Modules(NamedTuple):
    """Networks of the user's, for deep methods; None for ours."""

    actor: Any = None
    critic: Any = None


class Built(NamedTuple):
    learner: Learner
    labels: list[str]  # of the terms, objective first
    identity: dict[str, Any]  # what a checkpoint must share with the run that resumes from it
    close: Callable[[], None]
    draw: Callable[[], dict[str, np.ndarray]]  # pictures of where the learner is, uint8 (H, W, 3)
    images_every: int  # evaluations or steps between pictures
    spaces: dict[str, Any]  # on which its policy acts
    illustrate: Callable[[str, Path], None] = lambda title, folder: None  # further plots of what was learned

    def policy(self) -> State:
        """The policy to hand out, whose card knows the spaces it acts on, and what its costs are called."""
        tensors, card = self.learner.policy()
        return State(tensors, {**card, "spaces": self.spaces, "labels": self.labels})


def build(config: Config, modules: Modules = Modules()) -> Built:
    """The learner of a configuration, ready for its first step."""
    settings = make_settings(config.algo)
    # one module for each family, loaded when it is asked for: a deep run has no use for numba, nor a tabular for torch
    with needs(f"algo {config.algo['name']}"):
        family = import_module(f"rcac.runs.families.{settings.family}")
    return family.build(config, settings, modules)


def make_settings(row: dict[str, Any]) -> Any:
    family = FAMILIES[registry.choose("algo.family", row.get("family"), FAMILIES)]
    values = checked(family, {key: value for key, value in row.items() if key != "name"}, "algo.")
    with prefix_field("algo", values):
        return family(**values)


def make_uncertainty(problem: RCMDP, row: dict[str, Any]) -> "Uncertainty":
    from rcac.uncertainty.base import Uncertainty

    parameters = {key: value for key, value in row.items() if key != "name"}
    with prefix_field("uncertainty", parameters):
        made = registry.uncertainty_set(row["name"])(problem, **parameters)
        if not isinstance(made, Uncertainty):
            raise InputError(f"uncertainty: {row['name']} made {made!r}, an Uncertainty expected")
        made.check(problem)
    return made


def check_model(config: Config, problem: RCMDP | None) -> RCMDP:
    if problem is None:
        name, able = config.algo["name"], ", ".join(registry.algorithms("deep"))
        raise InputError(f"algo: {name} given, but {env_id(config.env)} has no model; one of {able} expected")
    return problem


def _spaces(env: gym.Env | VectorEnv) -> tuple[gym.Space, gym.Space]:
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def spaces_card(env: gym.Env | VectorEnv) -> dict[str, Any]:
    observation, action = _spaces(env)
    return {"observation": space_card(observation), "action": space_card(action)}


def files_digest(row: dict[str, Any]) -> dict[str, str]:
    """Digests of the files that a set is made of."""
    named = {key: Path(value) for key, value in row.items() if isinstance(value, str) and Path(value).is_file()}
    return {f"{key}_file": hashlib.sha256(path.read_bytes()).hexdigest()[:16] for key, path in named.items()}


def env_digest(env: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(env, sort_keys=True).encode()).hexdigest()[:16]


def identity(config: Config, env: gym.Env | VectorEnv) -> dict[str, Any]:
    observation, action = _spaces(env)
    return {
        "env": config.env.name,
        "env_id": env_id(config.env),
        "env_hash": env_digest(asdict(config.env)),
        "algo": config.algo["name"],
        "observations": str(observation),
        "actions": str(action),
        "seed": config.seed,
    }
