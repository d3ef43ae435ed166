"""Tabular solvers on the model that an environment carries."""

import hashlib

import numpy as np

from rcac.envs.tabular.render import policy_image
from rcac.errors import InputError
from rcac.learner import Learner
from rcac.problem import RCMDP
from rcac.runs.build import Built, Modules, check_model, files_digest, identity, make_uncertainty, spaces_card
from rcac.runs.config import Config
from rcac.runs.environments import open_env
from rcac.tabular.multistart import MultiStart
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solve import make_solvers


def build(config: Config, settings: TabularSettings, modules: Modules) -> Built:
    for name, given in modules._asdict().items():
        if given is not None:
            raise InputError(f"{name}: {given!r} given with {config.algo['name']}, which has no networks")
    single, problem, _ = open_env(config.env)
    problem = check_model(config, problem)
    assert config.uncertainty is not None
    uncertainty = make_uncertainty(problem, config.uncertainty)
    solvers = make_solvers(problem, uncertainty, settings, config.seed)
    learner: Learner = solvers[0] if len(solvers) == 1 else MultiStart(solvers)
    labels, signs = problem.labels(), np.asarray(problem.signs)

    def draw() -> dict[str, np.ndarray]:
        best = learner.policy().tensors
        images = {"policy/best": policy_image(single, best["policy"])}
        for label, row in zip(labels, signs[:, None] * best["values"], strict=True):
            images[f"value/{label.replace(' ', '_')}"] = policy_image(single, None, row)
        return images

    own = {"model": _digest(problem), "uncertainty": config.uncertainty | files_digest(config.uncertainty)}
    halfway = learner.total // 2 + 1  # a picture takes longer than many evaluations: one on the way, one in the end
    return Built(learner, labels, identity(config, single) | own, single.close, draw, halfway, spaces_card(single))


def _digest(problem: RCMDP) -> str:
    """Of everything that a model says."""
    rows = problem.rows
    digest = hashlib.sha256(repr((problem.discount, problem.costs.shape)).encode())
    for array in (rows.indptr, rows.indices, rows.data, problem.costs, problem.budgets, problem.initial):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
