"""One of each from outside the package, as in docs/developing.md: a folder with one module, found by its entry points.

my_extension.py                  a set, an algorithm, a cost, an environment, a perturbation
my_extension-1.0.dist-info/      what an installed package has: the names that it offers
"""

import csv
import json
import sys

import gymnasium as gym
import numpy as np
import pytest

import rcac
from rcac import cli

EPSILON = 0.02

EXTENSION = '''
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

import rcac
from rcac.uncertainty import Uncertainty, WorstCase


@dataclass(frozen=True)
class WorstJump(Uncertainty):
    """With probability ε the next state is the worst of all: sup qᵀV = (1 − ε)·pᵀV + ε·max V."""

    epsilon: float

    def sweep(self, values, rows, memory=None):  # values (K, S), M nominal rows
        nominal = (rows.matrix() @ values.T).T  # (K, M)
        return WorstCase(
            value=(1 - self.epsilon) * nominal + self.epsilon * values.max(axis=1, keepdims=True),
            indptr=rows.indptr,
            indices=rows.indices,
            entries=np.tile((1 - self.epsilon) * rows.data, (len(values), 1)),
            amount=np.full(nominal.shape, self.epsilon),
            direction=np.eye(values.shape[1])[values.argmax(axis=1)],
        )


@rcac.register_uncertainty("worst_jump")
def worst_jump(problem, epsilon: float = 0.1):
    return WorstJump(epsilon)


@rcac.register_algo("careful")
def careful():
    return {"family": "tabular", "switch": "crpo", "step": "natural", "tolerance": 0.5}


@rcac.register_cost("duration")
def duration(observation, action, next_observation, reward, info):
    return 1.0


class Corridor(gym.Env):
    """A walk on a line: action 1 goes right, where it pays."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = np.zeros(1, np.float32)
        return self.position.copy(), {}

    def step(self, action):
        self.position = np.clip(self.position + (0.25 if action else -0.25), -1.0, 1.0).astype(np.float32)
        return self.position.copy(), float(self.position[0]), False, False, {}


class Headwind(gym.RewardWrapper):
    """A perturbation: every step loses `strength` of its reward."""

    def __init__(self, env, strength):
        super().__init__(env)
        self.strength = strength

    def reward(self, reward):
        return float(reward) - self.strength


def make_corridor(headwind=0.0, render_mode=None):
    return Headwind(Corridor(), headwind)


gym.register("me/Corridor-v0", entry_point=make_corridor, max_episode_steps=20)
'''
ENTRY_POINTS = """\
[rcac.algos]
careful = my_extension:careful
[rcac.uncertainty]
worst_jump = my_extension:worst_jump
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Is the current folder and on the path; nothing stays registered."""
    folder = tmp_path_factory.mktemp("outside")
    (folder / "my_extension.py").write_text(EXTENSION)
    metadata = folder / "my_extension-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-extension\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    with pytest.MonkeyPatch.context() as patch, rcac.registry.temporary():
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield folder
    sys.modules.pop("my_extension", None)
    gym.registry.pop("me/Corridor-v0", None)


def run(command, *words):
    with pytest.raises(SystemExit) as ended:
        command([str(word) for word in words])
    assert ended.value.code == 0


def only_run(folder, pattern):
    [found] = (folder / "runs").glob(pattern)
    return found


@pytest.fixture(scope="module")
def tabular_run(folder):
    """Of an algorithm and a set that the command line knows by their entry points."""
    options = ["algo=careful", "uncertainty=worst_jump", f"uncertainty.epsilon={EPSILON}", "algo.iterations=40"]
    run(cli.train, "env=river_swim", *options, "runs=runs", "progress=false")
    return only_run(folder, "river_swim/careful/*")


def worst_jump_return(problem, policy, cost):
    """By plain iteration of V = c_π + γ ((1 − ε) P_π V + ε max V)."""
    kernel = np.einsum("sa,sat->st", policy, problem.kernel)
    costs = np.einsum("sa,sa->s", policy, problem.costs[cost])
    values = np.zeros(problem.num_states)
    for _ in range(3000):
        values = costs + problem.discount * ((1 - EPSILON) * kernel @ values + EPSILON * values.max())
    return problem.initial @ values


def test_a_set_and_an_algorithm(tabular_run):
    """The values that the run reports are the worst case over the set."""
    summary = json.loads((tabular_run / "summary.json").read_text())
    problem, policy = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp, rcac.load_policy(tabular_run)
    table = policy.probabilities(np.arange(problem.num_states))
    objective, cost = (worst_jump_return(problem, table, n) for n in (0, 1))
    assert summary["returns"] == pytest.approx([-objective, cost], rel=1e-6)
    assert summary["feasible"] == (cost <= 42)


@pytest.fixture(scope="module")
def deep_run(folder):
    """In an environment and with a cost of the module, which `module:id` imports."""
    env = ["env=gym", "env.id=my_extension:me/Corridor-v0", "env.cost=duration", "env.budgets=[25]"]
    options = ["env.kwargs={headwind:0.0}", "algo=cac", "algo.total_steps=1000", "algo.num_envs=4"]
    run(cli.train, *env, *options, "runs=runs", "progress=false")
    return only_run(folder, "me-Corridor-v0/cac/*")


def test_an_environment_and_a_cost(deep_run):
    summary = json.loads((deep_run / "summary.json").read_text())
    assert summary["costs"] == [20.0]  # 1 for each of 20 steps
    assert summary["feasible"]
    assert -20 <= summary["return"] <= 20


def test_a_perturbation(deep_run):
    """An argument of the environment can be swept, whatever is behind it, here a wrapper."""
    run(cli.evaluate, f"run={deep_run}", "episodes=3", "sweep.headwind=0,0.5")
    with (deep_run / "evaluation.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["perturbation"] == "headwind" and row["term"] == "return"]
    returns = {float(row["strength"]): float(row["mean"]) for row in rows}
    assert returns[0.5] == pytest.approx(returns[0.0] - 0.5 * 20)
