"""From a checked configuration to the learner it describes. Names meet code here and in `environments` only."""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from rcac import registry
from rcac.envs.tabular.render import policy_image
from rcac.errors import InputError
from rcac.experiment.environments import check_costs, close, env_id, make_envs, open_env, under
from rcac.experiment.policy import space_card
from rcac.experiment.schema import FAMILIES, Config
from rcac.learner import Learner, State
from rcac.problem import RCMDP
from rcac.uncertainty.base import Uncertainty


class Built(NamedTuple):
    learner: Learner
    identity: dict[str, Any]  # what a checkpoint must share with the run that takes it up
    close: Callable[[], None]
    images_every: int  # evaluations or steps between pictures


def build(config: Config) -> Built:
    """The learner of a configuration, ready for its first step."""
    settings = make_settings(config.algo)
    return BUILDERS[settings.family](config, settings)


def make_settings(row: dict[str, Any]) -> Any:
    with under("algo", row):
        return FAMILIES[row["family"]](**{key: value for key, value in row.items() if key != "name"})


def make_uncertainty(problem: RCMDP, row: dict[str, Any]) -> Uncertainty:
    parameters = {key: value for key, value in row.items() if key != "name"}
    with under("uncertainty", parameters):
        made = registry.uncertainty_set(row["name"])(problem, **parameters)
        if not isinstance(made, Uncertainty):
            raise InputError(f"uncertainty: {row['name']} made {made!r}, an Uncertainty expected")
        made.check(problem)
    return made


# Learners


def _tabular(config: Config, settings: Any) -> Built:
    from rcac.tabular.multistart import MultiStart
    from rcac.tabular.solve import make_solvers

    single, problem, _ = open_env(config.env)
    problem = check_model(config, problem)
    assert config.uncertainty is not None
    uncertainty = make_uncertainty(problem, config.uncertainty)
    solvers = make_solvers(problem, uncertainty, settings, config.seed)

    labels, signs = problem.labels(), np.asarray(problem.signs)

    def draw(policy: State) -> dict[str, np.ndarray]:
        table, values = policy.tensors["policy"], policy.tensors["values"]
        shown = signs[:, None] * values
        images = {"policy/best": policy_image(single, table)}
        for label, row in zip(labels, shown, strict=True):
            images[f"value/{label.replace(' ', '_')}"] = policy_image(single, None, row)
        return images

    learner: Any = solvers[0] if len(solvers) == 1 else MultiStart(solvers)
    identity = _identity(config, single) | {"model": _digest(problem), "uncertainty": config.uncertainty | _files(config.uncertainty)}
    halfway = learner.total // 2 + 1  # a picture takes longer than many evaluations: one on the way, one in the end
    return Built(present(learner, single, draw), identity, single.close, halfway)


def check_model(config: Config, problem: RCMDP | None) -> RCMDP:
    if problem is None:
        name, able = config.algo["name"], ", ".join(registry.algorithms("deep"))
        raise InputError(f"algo: {name} given, but {env_id(config.env)} has no model; one of {able} expected")
    return problem


def _deep(config: Config, settings: Any) -> Built:
    from rcac.deep.trainer import Trainer

    single, problem, steps = open_env(config.env)
    with contextlib.closing(single):
        if problem is None:
            check_costs(config.env, single)
    if steps is None:
        raise InputError("env.max_episode_steps: not given and not registered, a whole number ≥ 1 expected")
    if problem is not None:
        usual = type(settings)().gamma
        if settings.gamma not in (usual, problem.discount):
            raise InputError(f"algo.gamma: {settings.gamma} given, {problem.discount} expected, the model's discount")
        settings = replace(settings, gamma=problem.discount, calibrate=False)
        config.algo |= {"gamma": settings.gamma, "calibrate": settings.calibrate}
        budgets, share = problem.budgets, 1.0  # discounted already
    elif config.env.budgets is None:
        raise InputError("env.budgets: not given, a number for each cost expected, like [25]")
    else:
        budgets, share = np.array(config.env.budgets), None
    envs = make_envs(config.env, settings.num_envs)
    shut = partial(close, envs)
    try:
        learner = Trainer(envs, budgets, settings, config.seed, steps, share)
    except BaseException:
        shut()
        raise
    components = getattr(envs, "components", None)  # an environment whose observations have limits worth a picture

    def draw(policy: State) -> dict[str, np.ndarray]:
        from rcac.experiment.plots import histogram

        return {} if components is None else {"state/histogram": histogram(learner.visited, components)}

    often = max(1, learner.total // 5)
    return Built(present(learner, envs, draw), _identity(config, envs), shut, often)


BUILDERS: dict[str, Callable[[Config, Any], Built]] = {"tabular": _tabular, "deep": _deep}


class Presented:
    """A learner whose policy knows the spaces it acts on, and that has pictures of it."""

    def __init__(self, learner: Learner, env: Any, draw: Callable[[State], dict[str, np.ndarray]]) -> None:
        self._learner, self._draw = learner, draw
        observation, action = _spaces(env)
        self._spaces = {"observation": space_card(observation), "action": space_card(action)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    @property
    def total(self) -> int:
        """A learner that has met its stopping test has no more to do."""
        return self._learner.position if self._learner.finished else self._learner.total

    def policy(self) -> State:
        tensors, card = self._learner.policy()
        return State(tensors, {**card, "spaces": self._spaces})

    def images(self) -> dict[str, np.ndarray]:
        return self._learner.images() | self._draw(self._learner.policy())


def present(learner: Any, env: Any, draw: Callable[[State], dict[str, np.ndarray]]) -> Learner:
    return cast(Learner, Presented(learner, env, draw))


def _spaces(env: Any) -> tuple[gym.Space, gym.Space]:
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _files(row: dict[str, Any]) -> dict[str, str]:
    """Digests of the files that a set is made of."""
    named = {key: Path(value) for key, value in row.items() if isinstance(value, str) and Path(value).is_file()}
    return {f"{key}_file": hashlib.sha256(path.read_bytes()).hexdigest()[:16] for key, path in named.items()}


def _identity(config: Config, env: Any) -> dict[str, Any]:
    text = json.dumps(asdict(config.env), sort_keys=True)
    observation, action = _spaces(env)
    return {
        "env": config.env.name,
        "env_id": env_id(config.env),
        "env_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "algo": config.algo["name"],
        "observations": str(observation),
        "actions": str(action),
        "seed": config.seed,
    }


def _digest(problem: RCMDP) -> str:
    """Of everything that a model says."""
    rows = problem.rows
    digest = hashlib.sha256(repr((problem.discount, problem.costs.shape)).encode())
    for array in (rows.indptr, rows.indices, rows.data, problem.costs, problem.budgets, problem.initial):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
