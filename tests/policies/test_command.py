"""Evaluation under perturbations: scores against plain loops and closed forms, statistics by hand, errors in one line."""

import csv
import io
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from conftest import random_policy, random_problem
from gymnasium.spaces import Box, Discrete
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console
from scipy.optimize import linprog

import rcac
from rcac import cli, registry
from rcac.config.compose import compose
from rcac.deep import build
from rcac.deep.resume import module_arrays
from rcac.deep.settings import DeepSettings
from rcac.errors import InputError
from rcac.learner import State
from rcac.policies import command as evaluation
from rcac.policies import output, perturbations, robustness
from rcac.policies.perturbations import Condition, random_kernels
from rcac.policies.robustness import Run, RunScores
from rcac.policies.robustness_plots import choose_looks, draw
from rcac.policies.robustness_summary import Method, summarise
from rcac.policies.robustness_tables import report, sweep_table
from rcac.policies.scores import TermScore
from rcac.report import style
from rcac.runs.build import env_digest
from rcac.runs.folder import RunFolder
from rcac.runs.plots import BUDGET
from rcac.seeds import evaluation_seed
from rcac.spaces import space_card
from rcac.uncertainty import ChiSquare, KLBall, KLPenalty, LinearIPM, TotalVariation, Wasserstein
from rcac.uncertainty.named import steps_between

STEPS = 40
BALANCING, FALLING = (0.2, 0.4, 4.0, 1.0), (0.0, 0.2, -1.0, 0.5)  # push right if weights · observation > 0


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """No files of figures."""
    if not request.node.get_closest_marker("pictures"):
        monkeypatch.setattr(style, "save", lambda *_: None)


@pytest.fixture
def evaluate(capsys):
    def run(text: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as ending:
            cli.evaluate(text.split())
        out, err = capsys.readouterr()
        return SimpleNamespace(code=ending.value.code, out=out, err=err)

    return run


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "evaluation.csv").open() as file:
        return list(csv.DictReader(file))


# Runs made by hand


def made(root: Path, text: str, policy: State, **summary) -> Path:
    """A finished run with this configuration and policy."""
    config = compose(text.split())
    with RunFolder.create(root, config.env.name, config.algo["name"], config.seed) as folder:
        folder.write_text("config.yaml", yaml.safe_dump(config.plain()))
        identity = {"env_hash": env_digest(asdict(config.env)), "algo": config.algo["name"], "seed": config.seed}
        folder.write_policy(policy, {"identity": identity, "hyperparameters": config.plain()})
        folder.write_json("summary.json", {"run": {"finished": True, **summary}})
    return folder.path


def linear(weights: Sequence[float], observation: gym.Space | None = None) -> State:
    """A network without hidden layers, whose likeliest action is 1 if weights · observation > 0."""
    settings = DeepSettings(actor_hidden=[])
    between = build.interface(observation or Box(-np.inf, np.inf, (len(weights),), np.float32), Discrete(2), settings)
    actor = build.networks(between, settings, 1, np.random.default_rng(0)).actor
    with torch.no_grad():
        actor.head.weight.copy_(torch.tensor(np.array([np.zeros(len(weights)), weights])))
        actor.head.bias.zero_()
    return State(module_arrays(actor), build.card(between, settings, None))


def tabular(policy: np.ndarray) -> State:
    states, actions = policy.shape
    spaces = {"observation": space_card(Discrete(states)), "action": space_card(Discrete(actions))}
    card = {"kind": "tabular", "states": states, "actions": actions, "spaces": spaces}
    return State({"policy": policy, "values": np.zeros((2, states))}, card)


CARTPOLE = f"env=cartpole env.max_episode_steps={STEPS}"


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("original")
    for algo, weights in (("rcac", BALANCING), ("cac", FALLING)):
        for seed in (0, 1):
            tilted = np.array(weights) * (1, 1, 1 + seed, 1)
            made(root, f"{CARTPOLE} algo={algo} seed={seed}", linear(tilted))
    return root


@pytest.fixture
def cartpoles(original, tmp_path) -> Path:
    """Two methods of two seeds each."""
    return Path(shutil.copytree(original, tmp_path / "runs"))


def plain_loop(weights: Sequence[float], episodes: int, seed: int, **kwargs) -> np.ndarray:
    """(episodes, 2) returns and costs in one plain environment, whose generator goes on from episode to episode."""
    env = gym.make("rcac/NoisyCartPole-v0", max_episode_steps=STEPS, **kwargs)
    start, found = evaluation_seed(seed, episodes), []
    for episode in range(episodes):
        observation, _ = env.reset(seed=start if episode == 0 else None)
        sums, over = np.zeros(2), False
        while not over:
            action = int(np.float32(weights) @ observation > 0)
            observation, reward, terminated, truncated, info = env.step(action)
            sums += reward, info["cost"]
            over = terminated or truncated
        found.append(sums)
    return np.array(found)


# Episodes


def test_a_folder_of_runs_against_a_plain_loop(cartpoles, evaluate):
    done = evaluate(f"run={cartpoles} sweep.noise=0.1,0 sweep.wind=0,2 episodes=3 num_envs=1 deterministic=true seed=5")
    assert (done.code, done.err) == (0, "")
    rows = table(cartpoles)
    assert len(rows) == 4 * 4 * 2  # runs, conditions, terms
    seen = set()
    for row in rows:
        weights = np.array({"rcac": BALANCING, "cac": FALLING}[row["algo"]]) * (1, 1, 1 + int(row["training_seed"]), 1)
        strength = float(row["strength"])
        noise, wind = (strength, 0.0) if row["perturbation"] == "noise" else (0.04, strength)
        sums = plain_loop(weights, 3, 5, noise_high=noise, wind=wind)[:, ["return", "cost"].index(row["term"])]
        assert float(row["mean"]) == pytest.approx(sums.mean(), rel=1e-9)
        assert float(row["standard_error"]) == pytest.approx(sums.std(ddof=1) / np.sqrt(3), rel=1e-6, abs=1e-9)
        assert (row["env"], row["setting"], row["episodes"], row["seed"]) == ("cartpole", "", "3", "5")
        assert row["budget"] == ("200.0" if row["term"] == "cost" else "")
        assert (cartpoles / row["run"] / "config.yaml").is_file()
        seen.add((row["algo"], row["training_seed"], row["perturbation"], row["strength"]))
    assert len(seen) == 16


def test_tables_and_report(cartpoles, evaluate):
    done = evaluate(f"run={cartpoles} sweep.wind=0,2 episodes=4 env.budgets=[0.5] deterministic=true")
    rows = table(cartpoles)
    text = (cartpoles / "evaluation.md").read_text()
    for algo, name in (("rcac", "RCAC"), ("cac", "CAC")):
        calm = [float(r["mean"]) for r in rows if (r["algo"], r["strength"], r["term"]) == (algo, "0.0", "cost")]
        assert len(calm) == 2
        kept = sum(value <= 0.5 for value in calm)
        [line] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        told = f"{np.mean(calm):.4g} [{min(calm):.4g}, {max(calm):.4g}]"  # of two values: their mean and the two
        assert told in line
        assert f"{kept} of 2" in line
        assert (f"**{told}**" in line) == (np.mean(calm) > 0.5)
        assert told in done.out
    assert "cost (≤ 0.5)" in done.out
    assert all(row["changes"] == "env.budgets=[0.5]" for row in rows)
    assert [Path(line).name for line in done.out.splitlines()[-3:]] == [
        "evaluation.md",
        "evaluation_plots",
        "evaluation.csv",
    ]


def test_share_of_episodes_within_the_budget(cartpoles, evaluate):
    """Every episode's cost against the budget, and not only their mean's."""
    costs = plain_loop(BALANCING, 9, 0, noise_high=0.04)[:, 1]
    budget = float(np.sort(costs)[3:5].mean())  # four below, five above
    run = next((cartpoles / "cartpole" / "rcac").glob("*seed0"))
    evaluate(f"run={run} episodes=9 num_envs=1 deterministic=true env.budgets=[{budget}]")
    assert {row["within"] for row in table(run)} == {str(4 / 9)}


def test_no_sweep_is_one_condition_as_in_training(cartpoles, evaluate):
    done = evaluate(f"run={cartpoles.parent} episodes=2")
    rows = table(cartpoles.parent)
    assert {(row["perturbation"], row["strength"]) for row in rows} == {("as in training", "")}
    assert len(rows) == 8
    assert "worst" not in done.out
    first = rows[0]
    evaluate(f"run={cartpoles.parent / first['run']} episodes=2")  # one run alone gets the same episodes
    alone = table(cartpoles.parent / first["run"])
    assert [row["mean"] for row in alone] == [row["mean"] for row in rows[:2]]
    assert not (cartpoles.parent / first["run"] / "evaluation.md").exists()


def test_an_evaluation_replaces_the_earlier_one(cartpoles, evaluate, monkeypatch):
    """Table, report and figures are of the same evaluation; whatever else is there stays."""
    monkeypatch.setattr(style, "save", lambda _, folder, name: (folder / f"{name}.png").write_text("a figure"))
    run = next((cartpoles / "cartpole" / "rcac").glob("*seed0"))
    for root, plots in ((run, run / "plots"), (cartpoles, cartpoles / "evaluation_plots")):
        plots.mkdir(exist_ok=True)
        for name in ("training.png", "evaluation.png"):
            (plots / name).write_text("not of an evaluation")
        for name in ("wind", "mass"):
            evaluate(f"run={root} episodes=1 sweep.{name}=1,2")
            figures = {f"evaluation_cartpole_{name}.png", f"evaluation_cartpole_{name}_worst.png"}
            figures |= set() if root == run else {f"evaluation_cartpole_{name}_pareto.png"}  # one run is no picture
            assert {path.name for path in plots.iterdir()} == {"training.png", "evaluation.png", *figures}
            assert {row["perturbation"] for row in table(root)} == {name}
            assert "wind:" not in (root / "evaluation.md").read_text() or name == "wind"
        (plots / "evaluation_cartpole_old.pdf").write_text("a figure")
        assert evaluate(f"run={root} episodes=1 sweep.nose=1").code == 2
        assert (plots / "evaluation_cartpole_mass.png").exists()  # bad input takes nothing away
        assert evaluate(f"run={root} episodes=1").code == 0
        found = {path.name for path in plots.iterdir()} - {"training.png", "evaluation.png"}
        assert found == (
            set() if root == run else {f"evaluation_cartpole_as_in_training{kind}.png" for kind in ("", "_pareto")}
        )
        assert (root / "evaluation.md").exists() == (root != run)


def test_a_progress_bar_on_a_terminal(cartpoles, evaluate, monkeypatch):
    for terminal in (True, False):
        said = io.StringIO()
        shown = Console(file=said, force_terminal=terminal, width=100)
        monkeypatch.setattr(output, "Console", lambda c=shown, stderr=False, **_: c if stderr else Console())
        assert evaluate(f"run={cartpoles} episodes=1 sweep.wind=0,2").code == 0
        if terminal:
            for part in ("0/8", "8/8", "cartpole/cac/", "wind 2"):  # four runs at two strengths, the last one named
                assert part in said.getvalue()
        else:
            assert said.getvalue() == ""


def test_nobody_reads_to_the_end(cartpoles):
    """As in `evaluate.py … | head`, of a reader who has left before the first word: nothing said, and no failure."""
    script = Path(__file__).parents[2] / "scripts" / "evaluate.py"
    command = [sys.executable, str(script), f"run={cartpoles}", "episodes=1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()  # type: ignore[union-attr]
        assert process.stderr.read() == b""  # type: ignore[union-attr]
        assert process.wait() == 0
    assert (cartpoles / "evaluation.md").is_file()
    assert len(table(cartpoles)) == 8


@pytest.mark.parametrize("wide", [False, True])
def test_a_reader_may_leave_at_any_word(cartpoles, monkeypatch, tmp_path, wide):
    """A pipe breaks in rich's table, in a line after it, or in the last flush."""
    run = cartpoles if wide else next((cartpoles / "cartpole" / "rcac").glob("*seed0"))

    class Pipe(io.TextIOWrapper):
        left = 0

        def write(self, text):
            Pipe.left -= 1
            if Pipe.left < 0:
                raise BrokenPipeError(32, "Broken pipe")
            return len(text)

        def flush(self):
            if Pipe.left <= 0:
                raise BrokenPipeError(32, "Broken pipe")

    for words in range(6):
        Pipe.left = words
        with (tmp_path / "out").open("wb") as raw, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", Pipe(raw, write_through=True))
            assert evaluation.main([f"run={run}", "episodes=1"]) == 0
            Pipe.left = 10  # closes in peace


def test_one_run_has_no_interval(cartpoles, evaluate):
    run = next((cartpoles / "cartpole" / "rcac").glob("*seed0"))
    done = evaluate(f"run={run} sweep.gravity=1,1.5 episodes=2")
    assert "[" not in (run / "evaluation.md").read_text()
    assert "n = 1" in done.out
    assert (run / "plots").is_dir()
    assert not (run / "evaluation_plots").exists()


class Echo(gym.Env):
    """Sees 0 and earns its action, and a bonus, at every step; costs what it truly saw."""

    metadata: ClassVar[dict] = {"cost_units": ["Σ|o|"]}

    def __init__(self, bonus: float = 0.0) -> None:
        self.observation_space, self.action_space = Box(-9.0, 9.0, (1,), np.float32), Discrete(2)
        self.bonus = bonus

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action) + self.bonus, False, False, {}


@pytest.fixture
def echo(tmp_path):
    gym.register("mine/Echo-v0", entry_point=Echo, max_episode_steps=10)
    text = "env=gym env.id=mine/Echo-v0 env.budgets=[1] env.cost=seen algo=rcac"
    with registry.temporary():
        rcac.register_cost("seen")(lambda observation, action, after, reward, info: abs(float(after[0])))
        yield made(tmp_path, text, linear([1.0], Box(-9.0, 9.0, (1,), np.float32)))
    del gym.registry["mine/Echo-v0"]


def test_any_environment_with_noise_and_its_own_arguments(echo, evaluate):
    """0 is not > 0: action 0 without noise, 1 half of the time with any; a flip makes it 1 as often as it happens."""
    sweeps = "sweep.observation_noise=0,0.5 sweep.action_noise=0,0.2,1 sweep.bonus=0,2"
    done = evaluate(f"run={echo} {sweeps} episodes=100 deterministic=true")
    assert done.code == 0, done.err
    rows = {(row["perturbation"], row["strength"], row["term"]): row for row in table(echo)}
    exact = {("observation_noise", "0.0"): 0, ("action_noise", "0.0"): 0, ("action_noise", "1.0"): 10}
    exact |= {("bonus", "0.0"): 0, ("bonus", "2.0"): 20}
    for key, value in exact.items():
        assert float(rows[*key, "return"]["mean"]) == value
    for key, chance in ((("observation_noise", "0.5"), 0.5), (("action_noise", "0.2"), 0.2)):
        error = np.sqrt(10 * chance * (1 - chance) / 100)
        assert float(rows[*key, "return"]["mean"]) == pytest.approx(10 * chance, abs=4 * error)
    assert all(float(row["mean"]) == 0 for row in rows.values() if row["term"] == "cost")  # of what is true, not seen


# Exact values


RIVER = "env=river_swim algo=rsqp uncertainty=kl_ball"


@pytest.fixture
def river(tmp_path, rng) -> Path:
    return made(tmp_path / "river", RIVER, tabular(rng.dirichlet(np.ones(2), size=6)))


def exact_returns(run: Path, uncertainty) -> np.ndarray:
    """Return and cost, in people's signs."""
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    found = rcac.evaluate(problem, rcac.load_policy(run).probabilities(np.arange(6)), uncertainty)
    return problem.signs * found.returns


def test_radius_is_the_exact_worst_case(river, evaluate):
    done = evaluate(f"run={river} sweep.radius=0,1e-3,0.1")
    assert done.code == 0, done.err
    rows = table(river)
    assert [row["strength"] for row in rows] == ["0.0"] * 2 + ["0.001"] * 2 + ["0.1"] * 2
    for radius in (0.0, 1e-3, 0.1):
        mine = [row for row in rows if float(row["strength"]) == radius]
        np.testing.assert_allclose(
            [float(r["worst_case"]) for r in mine], exact_returns(river, KLBall(radius)), rtol=1e-9
        )
        np.testing.assert_allclose([float(r["nominal"]) for r in mine], exact_returns(river, None), rtol=1e-9)
    assert {(row["episodes"], row["mean"], row["set"]) for row in rows} == {("0", "", "kl_ball")}
    assert "Exact values." in done.out


def test_radius_of_a_penalty_is_its_temperature(river, evaluate):
    evaluate(f"run={river} sweep.radius=5,100 uncertainty=kl_penalty")
    rows = table(river)
    assert {row["perturbation"] for row in rows} == {"temperature"}
    for theta, pair in ((5.0, rows[:2]), (100.0, rows[2:])):
        expected = exact_returns(river, KLPenalty(theta))
        np.testing.assert_allclose([float(r["worst_case"]) for r in pair], expected, rtol=1e-9)


def test_a_deep_policy_on_a_model_gets_episodes_and_exact_values(tmp_path, evaluate, rng):
    policy = linear(rng.normal(size=6), Discrete(6))
    run = made(tmp_path, "env=river_swim algo=rcac", policy)
    done = evaluate(f"run={run} sweep.radius=0.01 sweep.random=0,0.01 kernels=3 sweep.discount=0.9,0.99 episodes=40")
    assert done.code == 0, done.err
    logits = policy.tensors["head.weight"].T.astype(float)
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    worst = problem.signs * rcac.evaluate(problem, chances, KLBall(0.01)).returns
    rows = table(run)
    radius = [float(row["worst_case"]) for row in rows if row["perturbation"] == "radius"]
    np.testing.assert_allclose(radius, worst, rtol=1e-5)  # the network is of single precision
    for row in rows:
        if row["perturbation"] == "discount":
            gap = abs(float(row["mean"]) - float(row["nominal"]))
            assert gap < 4 * float(row["standard_error"]) + 0.01  # an episode is cut after 1000 steps
            assert row["discount"] == row["strength"]


def test_random_kernels_in_the_table(river, evaluate):
    evaluate(f"run={river} sweep.random=0,0.01,0.1 kernels=7 seed=3")
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    policy = rcac.load_policy(river).probabilities(np.arange(6))
    rows = table(river)
    for radius, pair in ((0.0, rows[:2]), (0.01, rows[2:4]), (0.1, rows[4:])):
        kernels = random_kernels(problem, KLBall(radius), 7, 3)
        values = np.array([rcac.evaluate(model, policy).returns for model in kernels])
        np.testing.assert_allclose(
            [float(r["kernels_mean"]) for r in pair], problem.signs * values.mean(axis=0), rtol=1e-9
        )
        worst = [-values[:, 0].max(), values[:, 1].max()]
        np.testing.assert_allclose([float(r["kernels_worst"]) for r in pair], worst, rtol=1e-9)
        assert {float(r["within"]) for r in pair} == {np.mean(values[:, 1] <= 42)}
        assert {(r["kernels"], r["episodes"]) for r in pair} == {("7", "0")}
    for row in rows:  # a return falls from nominal to worst, a cost rises
        sign = -1 if row["term"] == "return" else 1
        assert sign * float(row["kernels_worst"]) <= sign * float(row["worst_case"]) + 1e-9


def transport(p: np.ndarray, q: np.ndarray, metric: np.ndarray) -> float:
    """Least total distance that moves p to q."""
    n = len(p)
    leave, arrive = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    # the last balance follows from the others; within rounding, sums differ
    equal = np.vstack([leave, arrive[:-1]])
    return linprog(metric.ravel(), A_eq=equal, b_eq=np.concatenate([p, q[:-1]]), method="highs").fun


def kl(p, q):
    there = q > 0
    return float(np.sum(q[there] * np.log(q[there] / p[there]))) if (p[there] > 0).all() else np.inf


FEATURES = np.column_stack([np.ones(5), np.linspace(-1, 1, 5), [1, 0, 0, 0, 1]])
DISTANCES = {  # from p to q
    "kl": (KLBall, lambda p, q: kl(p, q)),
    "tv": (TotalVariation, lambda p, q: 0.5 * np.abs(q - p).sum()),
    "chi_square": (ChiSquare, lambda p, q: np.sum((q - p)[p > 0] ** 2 / p[p > 0]) + (np.inf if q[p == 0].any() else 0)),
    "wasserstein": (lambda r: Wasserstein(r, np.abs(np.subtract.outer(range(5), range(5))).astype(float)), None),
    "linear_ipm": (lambda r: LinearIPM(r, FEATURES), lambda p, q: np.linalg.norm((q - p) @ FEATURES[:, 1:])),
}


@pytest.mark.filterwarnings("ignore::rcac.uncertainty.ipm.InexactWarning")
@pytest.mark.parametrize("name", DISTANCES)
def test_random_kernels_lie_in_the_set(rng, name):
    make, distance = DISTANCES[name]
    metric = np.abs(np.subtract.outer(range(5), range(5))).astype(float)
    distance = distance or (lambda p, q: transport(p, q, metric))
    problem = random_problem(rng)
    nominal, radius, far = problem.rows.matrix().toarray(), 0.05, 0.0
    kernels = random_kernels(problem, make(radius), 6, 1)
    for model in kernels:
        rows = model.rows.matrix().toarray()
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-12)
        distances = [distance(p, q) for p, q in zip(nominal, rows, strict=True)]
        assert max(distances) <= radius * (1 + 1e-6) + 1e-9
        far = max(far, *distances)
    assert far > 0.5 * radius  # some row comes close to the boundary
    assert np.abs((kernels[0].rows.matrix() - kernels[1].rows.matrix()).toarray()).max() > 1e-3
    for model in random_kernels(problem, make(0.0), 2, 1):
        np.testing.assert_allclose(model.rows.matrix().toarray(), nominal, atol=1e-15)


@pytest.mark.parametrize("name", ["kl", "tv", "chi_square", "wasserstein"])
def test_values_under_random_kernels_lie_between_best_and_worst(rng, name):
    problem, uncertainty = random_problem(rng), DISTANCES[name][0](0.05)
    policy = random_policy(rng, problem)
    worst = rcac.evaluate(problem, policy, uncertainty).returns
    negated = rcac.RCMDP(problem.kernel, -problem.costs, -problem.budgets, problem.initial, problem.discount)
    best = -rcac.evaluate(negated, policy, uncertainty).returns
    values = np.array([rcac.evaluate(model, policy).returns for model in random_kernels(problem, uncertainty, 30, 0)])
    assert (values <= worst + 1e-9).all()
    assert (values >= best - 1e-9).all()
    spread = (values.max(axis=0) - values.min(axis=0)) / (worst - best)
    assert (spread > 0.05).all()  # and they differ


def test_random_kernels_of_a_sparse_problem_are_those_of_a_dense_one(rng):
    dense = random_problem(rng)
    sparse = rcac.RCMDP(dense.rows.matrix(), dense.costs, dense.budgets, dense.initial, dense.discount)
    metric = steps_between(dense)
    for uncertainty in (KLBall(0.1), TotalVariation(0.1), Wasserstein(0.1, metric)):
        pairs = zip(*(random_kernels(problem, uncertainty, 3, 0) for problem in (dense, sparse)), strict=True)
        for one, other in pairs:
            difference = one.rows.matrix() - other.rows.matrix()
            assert abs(difference).max() < 1e-14


# Which runs, and which belong together


def test_what_is_left_out_is_named(cartpoles, evaluate):
    names = [f.name for f in sorted((cartpoles / "cartpole" / "rcac").iterdir())]
    policies = [cartpoles / "cartpole" / "rcac" / name for name in names]
    (policies[0] / "policy.safetensors").write_bytes(b"nothing")
    (policies[1] / "policy.safetensors").unlink()
    made(cartpoles, f"{CARTPOLE} algo=rcac seed=2", linear(BALANCING), finished=False, position=7)
    broken = made(cartpoles, f"{CARTPOLE} algo=rcac seed=3", linear(BALANCING))
    (broken / "config.yaml").write_text("env: [")
    done = evaluate(f"run={cartpoles} episodes=2")
    assert done.code == 0
    lines = done.err.splitlines()
    assert len(lines) == 4
    for name, reason in (
        (names[0], "SHA-256 differs"),
        (names[1], "not finished, it has no policy yet"),
        ("-seed2", "not finished, it was stopped at 7"),
        ("-seed3", "the configuration of a run expected"),
    ):
        [line] = [line for line in lines if reason in line]
        assert line.startswith("left out: cartpole/rcac/")
        assert name in line
    assert {row["algo"] for row in table(cartpoles)} == {"cac"}


def test_settings_that_differ_make_groups_and_no_seed_counts_twice(tmp_path, evaluate):
    small = ["algo.lam=50 algo.threads=1", "algo.lam=50 algo.threads=2", "algo.lam=500", "env.kwargs.mass=2"]
    for number, changes in enumerate(small):
        made(tmp_path, f"{CARTPOLE} algo=rcac seed={number} {changes}", linear(BALANCING))
    again = made(tmp_path, f"{CARTPOLE} algo=rcac seed=2 algo.lam=500", linear(BALANCING))
    done = evaluate(f"run={tmp_path} episodes=1")
    groups = {(row["env"], row["setting"], row["training_seed"]) for row in table(tmp_path)}
    assert groups == {
        ("cartpole mass=1.0", "lam=50.0", "0"),
        ("cartpole mass=1.0", "lam=50.0", "1"),
        ("cartpole mass=1.0", "lam=500.0", "2"),
        ("cartpole mass=2", "", "3"),
    }
    assert done.err.count("\n") == 1
    assert f"the same settings and seed as cartpole/rcac/{again.name}" in done.err
    changed = evaluate(f"run={tmp_path} episodes=1 env.kwargs.mass=1.5")  # now they are the same environment
    assert changed.code == 0
    assert {row["env"] for row in table(tmp_path)} == {"cartpole"}


def test_a_sweep_is_done_where_there_is_such_a_thing(cartpoles, evaluate, rng):
    made(cartpoles, RIVER, tabular(random_policy(rng, gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp)))
    done = evaluate(f"run={cartpoles} sweep.wind=0,1 sweep.radius=0,0.1 episodes=1")
    assert done.code == 0
    assert {(row["env"], row["perturbation"]) for row in table(cartpoles)} == {
        ("cartpole", "wind"),
        ("river_swim", "radius"),
    }
    assert sorted(done.err.splitlines()) == [
        "left out: sweep.radius: there is none of cartpole",
        "left out: sweep.wind: there is none of river_swim kl_ball radius=0.01",
    ]


# Statistics


def record(seed: int, strength: float, value: float, cost: float, algo: str = "rcac") -> RunScores:
    run = Run(Path(f"{algo}{seed}"), "", None, {}, seed, "here", algo)  # type: ignore[arg-type]
    rows = [TermScore("return", None, value, 0.0, within=0.5), TermScore("cost", 10.0, cost, 0.0, within=0.5)]
    return RunScores(run, Condition("wind", strength, None), rows)  # type: ignore[arg-type]


def test_statistics_over_seeds_by_hand():
    returns = {0.0: [5, 1, 9, 7, 3], 1.0: [4, 2, 8, 9, 0]}
    costs = {0.0: [8, 12, 9, 30, 10], 1.0: [11, 6, 9, 20, 10]}
    records = [record(k, s, returns[s][k], costs[s][k]) for k in range(5) for s in (0.0, 1.0)]
    records.append(record(0, 0.0, 50, 1, "cac"))
    records.append(record(0, 1.0, 40, 2, "cac"))
    [sweep] = summarise(records)
    assert (sweep.env, sweep.perturbation, sweep.strengths, sweep.labels) == (
        "here",
        "wind",
        [0.0, 1.0],
        ["return", "cost"],
    )
    rcac_, cac = sweep.curves
    assert (rcac_.seeds, cac.seeds) == (5, 1)

    def middle(values):  # of five: the middle one, and three quarters of its neighbours
        a = sorted(values)
        return (0.75 * a[1] + a[2] + 0.75 * a[3]) / 2.5

    for point, s in zip(rcac_.points, (0.0, 1.0), strict=True):
        assert point.terms[0].estimate == pytest.approx(middle(returns[s]))
        assert point.terms[1].estimate == pytest.approx(middle(costs[s]))
        assert point.terms[0].low <= point.terms[0].estimate <= point.terms[0].high
        assert (point.feasible, point.share) == (3, 0.5)
    assert rcac_.worst.terms[0].estimate == pytest.approx(middle([4, 1, 8, 7, 0]))
    assert rcac_.worst.terms[1].estimate == pytest.approx(middle([11, 12, 9, 30, 10]))
    assert rcac_.worst.feasible == 2  # within at every strength
    assert np.isnan(cac.points[0].terms[0].low)
    assert cac.worst.terms[0].estimate == 40
    assert "| CAC | 1 | 0 | 50 | 1 | 1 of 1 | 50% |" in report([sweep], "")
    assert sweep_table(sweep).row_count == 6


def test_a_utility_is_worst_where_it_is_least():
    records = []
    for strength, value in ((0.0, 95.0), (1.0, 80.0)):
        one = record(0, strength, 1.0, 0.0)
        records.append(one._replace(rows=[one.rows[0], TermScore("utility", 90.0, value, 0.0)]))
    [sweep] = summarise(records)
    assert sweep.curves[0].worst.terms[1].estimate == 80.0
    assert [point.feasible for point in sweep.curves[0].points] == [1, 0]
    assert "utility (≥ 90)" in report([sweep], "")
    assert "| 1 | 1 | **80** | **0 of 1** |" in report([sweep], "")


# Figures


@pytest.mark.pictures
def test_figures_are_written(cartpoles, evaluate):
    evaluate(f"run={cartpoles} sweep.wind=0,2 episodes=2")
    files = {path.name: path.read_bytes()[:4] for path in (cartpoles / "evaluation_plots").iterdir()}
    stems = [f"evaluation_cartpole_wind{kind}" for kind in ("", "_worst", "_pareto")]
    assert files == {
        f"{stem}.{suffix}": magic for stem in stems for suffix, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF"))
    }


@pytest.fixture
def figures(monkeypatch) -> dict[str, Figure]:
    """What would be saved, by name."""
    kept: dict[str, Figure] = {}
    monkeypatch.setattr(style, "save", lambda shown, folder, name: kept.__setitem__(name, shown))
    return kept


def lines(axes, colour: str) -> list:
    return [line for line in axes.lines if line.get_color() == colour]


def test_what_a_figure_shows(figures):
    """Estimates, intervals, budget and feasible fraction of two methods, one of several seeds."""
    returns, costs = (
        {0.0: [5, 1, 9], 1.0: [4, 2, 8], 2.0: [3, 0, 7]},
        {0.0: [8, 9, 7], 1.0: [8, 12, 9], 2.0: [20, 12, 9]},
    )
    records = [record(k, s, returns[s][k], costs[s][k]) for k in range(3) for s in returns]
    records += [record(0, s, 6.0 - s, 9.0 + s, "cac") for s in returns]
    [sweep] = summarise(records)
    draw([sweep], Path())
    assert list(figures) == ["evaluation_here_wind", "evaluation_here_wind_worst", "evaluation_here_wind_pareto"]
    colours = [look.colour for look in choose_looks([curve.method for curve in sweep.curves]).values()]
    first, second, third = figures["evaluation_here_wind"].axes
    assert [axes.get_xlabel() for axes in (first, second, third)] == ["wind (N, to the right)"] * 3
    labels = ["mean return of an episode", "mean cost of an episode", "within every budget"]
    assert [axes.get_ylabel() for axes in (first, second, third)] == labels
    for index, axes in enumerate((first, second)):
        for colour, curve in zip(colours, sweep.curves, strict=True):
            [line] = lines(axes, colour)
            np.testing.assert_array_equal(line.get_xdata(), [0, 1, 2])
            np.testing.assert_array_equal(line.get_ydata(), [point.terms[index].estimate for point in curve.points])
        [band] = axes.collections  # the method of one seed has none
        corners = {(float(x), float(y)) for x, y in band.get_paths()[0].vertices}
        ends = [point.terms[index] for point in sweep.curves[0].points]
        assert corners == {(s, y) for s, end in zip(returns, ends, strict=True) for y in (end.low, end.high)}
        assert all(end.low < end.high for end in ends)
    [budget] = lines(second, BUDGET)
    assert list(budget.get_ydata()) == [10, 10]
    assert [text.get_text() for text in second.texts] == ["budget\n10"]
    assert not lines(first, BUDGET)
    for colour, apart, shares in ((colours[0], -0.6, [100, 200 / 3, 100 / 3]), (colours[1], 0.6, [100, 100, 0])):
        seeds, single = lines(third, colour)
        np.testing.assert_allclose(seeds.get_ydata(), np.array(shares) + apart)
        np.testing.assert_allclose(single.get_ydata(), [50, 50, 50])
        assert single.get_linestyle() == ":"


def test_what_the_figure_of_the_worst_shows(figures):
    returns, costs = {0.0: [5, 1, 9], 1.0: [4, 2, 8]}, {0.0: [8, 9, 7], 1.0: [7, 12, 9]}
    records = [record(k, s, returns[s][k], costs[s][k]) for k in range(3) for s in returns]
    records += [record(0, s, 6.0 - s, 9.0 + s, "cac") for s in returns]
    [sweep] = summarise(records)
    draw([sweep], Path())
    shown = figures["evaluation_here_wind_worst"]
    colours = [look.colour for look in choose_looks([curve.method for curve in sweep.curves]).values()]
    labels = ["least mean return of an episode", "largest mean cost of an episode"]
    assert [axes.get_xlabel() for axes in shown.axes] == labels
    middle = {"return": (0.25 * 1 + 4 + 0.25 * 8) / 1.5, "cost": (0.25 * 8 + 9 + 0.25 * 12) / 1.5}
    for axes, expected, alone in zip(shown.axes, middle.values(), (5.0, 10.0), strict=True):
        bar, mark = lines(axes, colours[0])
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (pytest.approx(expected), 1)
        low, high = bar.get_xdata()
        assert low < expected < high
        [mark] = lines(axes, colours[1])  # one seed: no interval
        assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (alone, 0)
    assert [label.get_text() for label in shown.axes[0].get_yticklabels()] == ["RCAC", "CAC"]
    [budget] = lines(shown.axes[1], BUDGET)
    assert list(budget.get_xdata()) == [10, 10]
    assert "worst over wind 0 to 1 for each seed" in shown.get_supxlabel()


def test_every_run_is_in_the_picture_of_return_against_cost(figures):
    """Mean return and largest cost over the strengths; hollow beyond the budget of 10."""
    returns, costs = {0.0: [5, 1], 1.0: [4, 2]}, {0.0: [8, 9], 1.0: [7, 12]}
    records = [record(k, s, returns[s][k], costs[s][k]) for k in range(2) for s in returns]
    records += [record(0, s, 6.0 - s, 9.0 + s, "cac") for s in returns]
    draw(summarise(records), Path())
    [axes] = figures["evaluation_here_wind_pareto"].axes
    assert axes.get_xlabel() == "largest mean cost of an episode"
    assert axes.get_ylabel() == "mean return of an episode,\nmean over the wind"
    *marks, budget = axes.lines
    assert [(mark.get_xdata()[0], mark.get_ydata()[0]) for mark in marks] == [(8, 4.5), (12, 1.5), (10, 5.5)]
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [False, True, False]
    assert list(budget.get_xdata()) == [10, 10]


def test_names_of_any_length_have_room(figures):
    """Nothing is cut off, nothing overlaps, and panels stay as wide as they are."""
    settings = "lam={}, rollout_length=128, gamma=0.995, actor_hidden=[64, 64], actor_lr=0.001, path=/where/it/is.npz"
    records = []
    for number in range(4):
        for strength in (0.0, 1.0):
            one = record(0, strength, 5.0 + number, 5.0)
            run = one.run._replace(setting=settings.format(number), folder=Path(str(number)))
            records.append(one._replace(run=run._replace(env="cartpole mass=1.0, length=2.0, gravity=1.5, force=3.0")))
    draw([sweep._replace(units=["Σ|x| (m)"]) for sweep in summarise(records)], Path())
    assert len(figures) == 3
    for shown in figures.values():
        canvas = FigureCanvasAgg(shown)
        canvas.draw()
        pen, edge = canvas.get_renderer(), shown.bbox
        ticks = {id(text) for axes in shown.axes for text in (*axes.get_xticklabels(), *axes.get_yticklabels())}
        words = [text for text in shown.findobj(Text) if text.get_visible() and id(text) not in ticks]
        words += shown.axes[0].get_yticklabels()
        boxes = [text.get_window_extent(pen) for text in words if text.get_text()]
        for box in boxes:
            assert edge.x0 <= box.x0 < box.x1 <= edge.x1
            assert edge.y0 <= box.y0 < box.y1 <= edge.y1
        for index, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:index])
        for axes in shown.axes:
            place = axes.get_window_extent(pen)
            assert place.width / shown.dpi > 1.7
            assert place.height / shown.dpi > 1.5
    assert "actor_hidden=[64,\N{NO-BREAK SPACE}64]" in " ".join(text.get_text() for text in words)


def test_the_unit_of_a_cost_is_what_the_environment_says(echo, evaluate, figures):
    evaluate(f"run={echo} episodes=1 sweep.bonus=0,1")
    lines, worst = figures.values()
    assert [axes.get_ylabel() for axes in lines.axes][:2] == [
        "mean return of an episode",
        "mean cost of an episode,\nΣ|o|",
    ]
    assert worst.axes[1].get_xlabel() == "largest mean cost of an episode,\nΣ|o|"


def test_runs_that_are_all_alike_have_no_interval(tmp_path, evaluate, figures, rng):
    """A method without chance gives every seed the same policy: no sample."""
    policy = tabular(rng.dirichlet(np.ones(2), size=6))
    for seed in (0, 1):
        made(tmp_path, f"{RIVER} seed={seed}", policy)
    done = evaluate(f"run={tmp_path} sweep.radius=0,0.01")
    assert done.code == 0, done.err
    assert len(table(tmp_path)) == 2 * 2 * 2  # every run is there
    text = (tmp_path / "evaluation.md").read_text()
    assert "[" not in text
    assert "| RSQP | 2 alike | 0 |" in text
    assert "nor have seeds whose runs are all alike" in done.out
    for shown in [*figures.values()][:2]:
        assert "n = 2, all runs of a method alike, no interval" in shown.get_supxlabel().replace("\n", " ")
        assert not any(axes.collections for axes in shown.axes)
    made(tmp_path, f"{RIVER} seed=2", tabular(rng.dirichlet(np.ones(2), size=6)))
    evaluate(f"run={tmp_path} sweep.radius=0,0.01")
    assert "| RSQP | 3 | 0 | " in (tmp_path / "evaluation.md").read_text()  # the third makes it a sample


def test_methods_look_different():
    methods = [Method(algo, setting) for algo in ("rsqp", "rcac_sqp", "cac", "mine") for setting in ("", "a=1", "a=2")]
    looks = choose_looks(methods)
    assert len({(look.colour, look.marker, str(look.dash)) for look in looks.values()}) == len(methods)
    few = choose_looks([Method("rsqp", ""), Method("rcac_sqp", ""), Method("cac", "")])
    assert len({look.colour for look in few.values()}) == 3
    assert few[Method("cac", "")].colour == style.look("cac").colour
    assert looks[Method("cac", "a=1")].name == "CAC a=1"


# Errors


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sweep.nose=1", "sweep.nose: no such perturbation of cartpole; known are action_flip, action_noise, force"),
        ("sweep.radius=1", "sweep.radius: no such perturbation of cartpole; known are"),
        ("sweep.noise=", "sweep.noise: nothing given, numbers like sweep.noise=0,0.02,0.04 expected"),
        ("sweep.noise=0,x", "sweep.noise[1]: 'x' given, numbers like"),
        ("sweep.noise=0,,1", "sweep.noise[1]: '' given, numbers like"),
        ("sweep.noise=inf", "sweep.noise[0]: inf given, finite numbers like"),
        ("sweep.=1", "sweep.: nothing given"),
        (
            "sweep.noise=0.1,0 sweep.wind=1 sweep.noise=0.2",
            "sweep.noise: given twice, all strengths in one expected, sweep.noise=0,0.1,0.2",
        ),
        ("sweep.action_flip=0,2", "sweep.action_flip: 2 given for cartpole: env.kwargs.action_flip: 2.0 given"),
        ("sweep.action_noise=-1", "sweep.action_noise: -1 given for cartpole: strength: -1.0 given"),
        ("kernels=0", "kernels: 0 given, a whole number ≥ 1 expected"),
        ("record=true", "record: true given, the folder of one run expected"),
        ("env.kwargs.nope=1", "env.kwargs.nope: no such key"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(cartpoles, evaluate, text, complaint):
    before = sorted(cartpoles.rglob("*"))
    done = evaluate(f"run={cartpoles} episodes=1 {text}")
    assert done.code == 2
    assert complaint in done.err
    assert done.err.count("\n") == 1
    assert sorted(cartpoles.rglob("*")) == before


def test_a_temperature_of_zero_and_a_set_without_a_radius(river, evaluate):
    done = evaluate(f"run={river} sweep.radius=0 uncertainty=kl_penalty")
    assert done.code == 2
    assert "sweep.temperature: 0 given for river_swim kl_penalty" in done.err
    for text in ("sweep.radius=0.1 uncertainty=nominal", "sweep.random=5 uncertainty=kl_penalty"):
        assert "no such perturbation of river_swim" in evaluate(f"run={river} {text}").err


def test_a_folder_without_runs(tmp_path, evaluate):
    done = evaluate(f"run={tmp_path}")
    assert done.code == 2
    assert done.err.endswith("given, the folder of a run or one above finished runs expected\n")


def test_strengths_are_read_in_order_and_once():
    assert perturbations.parse("sweep.noise=[0.1, 0, 1e-2,0.1]") == ("noise", [0.0, 0.01, 0.1])
    assert perturbations.parse("sweep.wind=-2") == ("wind", [-2.0])


def test_whole_numbers_stay_whole(tmp_path, rng):
    config = compose(["env=garnet", "algo=rsqp"])
    able = perturbations.known(config)
    assert able["model_seed"](3.0).config.env.kwargs["model_seed"] == 3
    assert isinstance(able["model_seed"](3.0).config.env.kwargs["model_seed"], int)
    assert able["budget"](3.0).config.env.kwargs["budget"] == 3.0
    assert "observation_noise" not in able  # its observations are states
    runs = robustness.find(made(tmp_path, "env=garnet algo=rsqp", tabular(np.full((15, 20), 0.05))), [])
    with pytest.raises(InputError, match=r"its observations are Discrete\(7\), Discrete\(15\) expected"):
        robustness.plan(runs, {"num_states": [15.0, 7.0]})
