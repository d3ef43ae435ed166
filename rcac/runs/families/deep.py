"""Deep actor-critics on any environment whose steps report costs."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rcac.contexts import Parameters
from rcac.deep.custom import name_of
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.envs.contexts import declared_ranges
from rcac.errors import InputError
from rcac.labels import episode_labels
from rcac.runs.build import Built, Modules, identity, spaces_card
from rcac.runs.config import Config
from rcac.runs.environments import check_costs, close, make_envs, open_env, prefix_field


def _uncertainty(config: Config, settings: DeepSettings) -> tuple[DeepSettings, dict[str, Any] | None]:
    """The settings with the radius of the set that was chosen, and what was said of uncertain parameters, if they are."""
    if config.uncertainty is None:
        return settings, None
    row = config.uncertainty
    chosen: dict[str, Any] = {"radius": 0.0}
    ranges: dict[str, Any] | None = None
    if row["name"] == "ipm":
        chosen = {"radius": row["radius"], "scope": row["scope"]}
    elif row["name"] == "parameters":
        ranges = {"ranges": row["ranges"] or config.env.ranges, "risk": row["risk"]}
    config.algo |= chosen
    with prefix_field("uncertainty", chosen):
        return replace(settings, **chosen), ranges


def _box(said: dict[str, Any], envs: VectorEnv) -> Parameters:
    try:
        return Parameters(said["ranges"] or declared_ranges(envs), said["risk"])
    except InputError as error:
        raise InputError(f"uncertainty.{error}") from error


def build(config: Config, settings: DeepSettings, modules: Modules) -> Built:
    single, problem, steps = open_env(config.env)
    try:
        if problem is None:
            check_costs(config.env, single)
    finally:
        single.close()
    if steps is None:
        raise InputError("env.max_episode_steps: not given and not registered, a whole number ≥ 1 expected")
    kappa, names = None, config.env.cost_names  # κ: that of the horizon
    if problem is not None:
        usual = type(settings)().gamma
        if settings.gamma not in (usual, problem.discount):
            raise InputError(f"algo.gamma: {settings.gamma} given, {problem.discount} expected, the model's discount")
        settings = replace(settings, gamma=problem.discount, calibrate=False)
        config.algo |= {"gamma": settings.gamma, "calibrate": settings.calibrate}
        budgets, kappa = problem.budgets, 1.0  # discounted already
    elif config.env.budgets is None:
        raise InputError("env.budgets: not given, a number for each cost expected, like [25]")
    else:
        limits, names = config.env.limits()
        budgets = np.array(limits)
    labels = episode_labels(len(budgets), names)
    settings, ranges = _uncertainty(config, settings)
    given: dict[str, Any] = {name: module for name, module in modules._asdict().items() if module is not None}
    envs = make_envs(config.env, settings.num_envs, replay=True)
    shut = partial(close, envs)
    try:
        box = _box(ranges, envs) if ranges is not None else None
        learner = Trainer(envs, budgets, settings, config.seed, steps, kappa, labels=labels[1:], box=box, **given)
    except BaseException:
        shut()
        raise
    components = getattr(envs, "components", None)  # an environment whose observations have limits worth a picture

    def draw() -> dict[str, np.ndarray]:
        from rcac.runs.plots import histogram

        return {} if components is None else {"state/histogram": histogram(learner.visited, components)}

    often = max(1, learner.total // 5)
    same = identity(config, envs) | {name: name_of(module) for name, module in given.items()}
    return Built(learner, labels, same, shut, draw, often, spaces_card(envs))
