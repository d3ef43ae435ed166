"""Deep actor-critics on any environment whose steps report costs."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rcac.deep.custom import name_of
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.errors import InputError
from rcac.labels import episode_labels
from rcac.runs.build import Built, Modules, identity, spaces_card
from rcac.runs.config import Config
from rcac.runs.environments import check_costs, close, make_envs, open_env


def build(config: Config, settings: DeepSettings, modules: Modules) -> Built:
    single, problem, steps = open_env(config.env)
    try:
        if problem is None:
            check_costs(config.env, single)
    finally:
        single.close()
    if steps is None:
        raise InputError("env.max_episode_steps: not given and not registered, a whole number ≥ 1 expected")
    kappa = None  # that of the horizon
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
        budgets = np.array(config.env.budgets)
    labels = episode_labels(len(budgets), config.env.cost_names)
    given: dict[str, Any] = {name: module for name, module in modules._asdict().items() if module is not None}
    envs = make_envs(config.env, settings.num_envs)
    shut = partial(close, envs)
    try:
        learner = Trainer(envs, budgets, settings, config.seed, steps, kappa, labels=labels[1:], **given)
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
