"""Shared strategies and random problems."""

import os
import sys

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes share the cores: one thread each, in their children too
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # windows without a display

from functools import cache
from importlib import import_module

import hypothesis
import numpy as np
import pytest

from rcac import registry
from rcac.files import replace_file
from rcac.runs.versions import versions

# Nothing depends on how fast the machine is.
hypothesis.settings.register_profile("any", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any")


def random_rows(rng: np.random.Generator, count: int, states: int, sparse_share: float = 0.25) -> np.ndarray:
    """Rows (count, states) of which `sparse_share` have zeros in the support."""
    rows = rng.dirichlet(np.full(states, 0.7), size=count)
    holes = rng.random((count, states)) < 0.5
    holes[np.arange(count), rng.integers(states, size=count)] = False
    holes[rng.random(count) >= sparse_share] = False
    rows = np.where(holes, 0.0, np.maximum(rows, 1e-6))
    return rows / rows.sum(axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def forget():
    """What a test registers, and the folders that its commands put on the path, only that test knows."""
    path = [*sys.path]
    with registry.temporary():
        yield
    sys.path[:] = path


def _no_figure(shown, folder, name):
    for suffix in ("png", "pdf"):
        replace_file(folder / f"{name}.{suffix}", b"a figure")


def _no_picture(*_, **__):
    return np.zeros((8, 8, 3), np.uint8)


LIGHT = {  # what takes longer than the small trainings it tells of, and what stands for it
    "rcac.report.style.save": _no_figure,
    "rcac.runs.plots.training": lambda *arguments: _no_figure(None, arguments[-1], "training"),
    "rcac.runs.plots.histogram": _no_picture,
    "rcac.runs.families.tabular.policy_image": _no_picture,
    "rcac.runs.folder.versions": cache(versions),
}


@pytest.fixture(autouse=True, scope="session")
def drawn():
    """Runs are light: the functions that they are spared, by their paths."""
    real = {path: getattr(import_module(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in LIGHT}
    with pytest.MonkeyPatch.context() as patch:
        for path, stand_in in LIGHT.items():
            patch.setattr(path, stand_in)
        yield real


@pytest.fixture(autouse=True)
def pictures(request, drawn, monkeypatch):
    """`pictures` marks the tests whose runs are as users have them."""
    if request.node.get_closest_marker("pictures"):
        for path, function in drawn.items():
            monkeypatch.setattr(path, function)


@pytest.fixture(autouse=True, scope="session")
def no_trace_at_home(tmp_path_factory):
    """What is trusted is remembered in a folder of the tests' own."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def random_problem(rng, states=5, actions=3, constraints=1, discount=0.9, sparse_share=0.5, scale=1.0):
    """A dense RCMDP with zeros in some rows, costs of both signs, and budgets that do not matter."""
    from rcac.problem import RCMDP

    kernel = random_rows(rng, states * actions, states, sparse_share).reshape(states, actions, states)
    costs = rng.normal(size=(constraints + 1, states, actions)) * scale
    return RCMDP(kernel, costs, np.zeros(constraints), rng.dirichlet(np.ones(states)), discount)


def random_policy(rng, problem):
    return rng.dirichlet(np.ones(problem.num_actions), size=problem.num_states)


def every_set(states, rng=None, kernels=None):
    """One of each uncertainty set, for problems with this many states."""
    from rcac.uncertainty import (
        ChiSquare,
        Contamination,
        CressieRead,
        CVaR,
        FiniteKernels,
        KLBall,
        KLPenalty,
        LinearIPM,
        Nominal,
        TotalVariation,
        Wasserstein,
    )

    metric = np.abs(np.subtract.outer(np.arange(states), np.arange(states))).astype(float)
    features = np.column_stack([np.ones(states), np.linspace(-1, 1, states)]) if states > 1 else np.ones((1, 1))
    sets = {
        "nominal": Nominal(),
        "kl_ball": KLBall(0.05),
        "kl_penalty": KLPenalty(2.0),
        "tv": TotalVariation(0.1),
        "tv_support": TotalVariation(0.1, within_support=True),
        "chi_square": ChiSquare(0.2),
        "wasserstein": Wasserstein(0.3, metric),
        "linear_ipm": LinearIPM(0.01, features),
        "cressie_read": CressieRead(0.05),
        "contamination": Contamination(0.1),
        "cvar": CVaR(0.8),
    }
    if kernels is not None:
        sets["finite"] = FiniteKernels(kernels)
        sets["whole_kernels"] = FiniteKernels(kernels, rectangular=False)
    return sets


SET_NAMES = [
    "nominal",
    "kl_ball",
    "kl_penalty",
    "tv",
    "tv_support",
    "chi_square",
    "wasserstein",
    "linear_ipm",
    "cressie_read",
    "contamination",
    "cvar",
    "finite",
    "whole_kernels",
]
