"""Deep actor-critics on any environment whose steps report costs."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rcac.deep.custom import name_of
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.errors import InputError
from rcac.labels import episode_labels
from rcac.runs.build import Built, Modules, identity, spaces_card
from rcac.runs.config import Config
from rcac.runs.environments import check_costs, close, make_box, make_envs, open_env, prefix_field


def _with_radius(config: Config, settings: DeepSettings) -> DeepSettings:
    """The settings with the radius of the set that was chosen: that of the paper's norm, or none."""
    if config.uncertainty is None:
        return settings
    row = config.uncertainty
    chosen = {key: row[key] for key in ("radius", "scope")} if row["name"] == "ipm" else {"radius": 0.0}
    config.algo |= chosen
    with prefix_field("uncertainty", chosen):
        return replace(settings, **chosen)


def build(config: Config, settings: DeepSettings, modules: Modules) -> Built:
    single, problem, steps = open_env(config.env)
    try:
        if problem is None:
            check_costs(config.env, single)
    finally:
        close(single)
    if steps is None:
        raise InputError("env.max_episode_steps: not given and not registered, a whole number ≥ 1 expected")
    kappa, names = None, config.env.cost_names  # κ: that of the horizon
    if problem is not None:
        usual = type(settings)().gamma
        if settings.gamma not in (usual, problem.discount):
            raise InputError(f"algo.gamma: {settings.gamma} given, {problem.discount} expected, the model's discount")
        settings = replace(settings, gamma=problem.discount, calibrate=False)
        config.algo |= {"gamma": settings.gamma, "calibrate": settings.calibrate}
        budgets, kappa, names = problem.budgets, 1.0, problem.labels()[1:]  # discounted already
    elif config.env.budgets is None:
        raise InputError("env.budgets: not given, a number for each cost expected, like [25]")
    else:
        limits, names = config.env.limits()
        budgets = np.array(limits)
    labels = episode_labels(len(budgets), names)
    settings, row = _with_radius(config, settings), config.uncertainty
    given: dict[str, Any] = {name: module for name, module in modules._asdict().items() if module is not None}
    envs = make_envs(config.env, settings.num_envs, replay=True)
    shut = partial(close, envs)
    try:
        box = make_box(config.env, envs, row) if row is not None and row["name"] == "parameters" else None
        learner = Trainer(envs, budgets, settings, config.seed, steps, kappa, labels=labels[1:], box=box, **given)
    except BaseException:
        shut()
        raise
    components = getattr(
        envs.unwrapped, "components", None
    )  # an environment whose observations have limits worth a picture

    def draw() -> dict[str, np.ndarray]:
        from rcac.runs.plots import histogram

        return {} if components is None else {"state/histogram": histogram(learner.visited, components)}

    def illustrate(title: str, folder: Path) -> None:
        from rcac.runs.plots import MeasuredCost, contexts

        if learner.adversaries is not None and box is not None:
            points, means = learner.adversaries.measurements()
            rows = zip(labels[1:], budgets.tolist(), means[1:], strict=True)
            costs = [MeasuredCost(label, budget, points, row) for label, budget, row in rows]
            if len(points) and costs:
                contexts(box, costs, title, folder)

    often = max(1, learner.total // 5)
    same = identity(config, envs) | {name: name_of(module) for name, module in given.items()}
    return Built(learner, labels, same, shut, draw, often, spaces_card(envs), illustrate)
