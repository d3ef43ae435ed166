"""The commands, from a line of text to a folder, an exit code, and at most one line of complaint."""

import csv
import errno
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from fragile_package import TINY as FRAGILE
from fragile_package import install
from state_hash import state_hash as hash_of_state
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rcac
from rcac import cli, registry
from rcac.config.compose import compose
from rcac.deep.plain import PlainJacobian
from rcac.deep.trainer import Trainer
from rcac.envs.replay import Replay
from rcac.policies import command as evaluation
from rcac.runs import checkpoint
from rcac.runs import train as training
from rcac.runs.environments import open_env
from rcac.runs.loggers.csv import read_metrics
from rcac.runs.loop import Callback

SCRIPTS = Path(__file__).parent.parent / "scripts"
DEEP = (
    "algo.total_steps=1200 algo.num_envs=4 algo.rollout_length=16 algo.actor_hidden=[8] algo.critic_hidden=[8] "
    "algo.window=4 algo.actor_batch=32 algo.critic_batch=32 env.max_episode_steps=30"
)  # 15 updates, then two trials


class Ran:
    """What a command left behind."""

    def __init__(self, command, text: str, capsys) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            command(text.split())
        self.code = ending.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def folder(self) -> Path:
        return Path(self.out.splitlines()[-1]).resolve()

    def json(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command puts the current folder there
    return lambda text: Ran(cli.train, text, capsys)


@pytest.fixture
def evaluate(capsys):
    return lambda text: Ran(cli.evaluate, text, capsys)


def state_hash(folder: Path) -> str:
    """Of the last checkpoint, whatever run it belongs to."""
    path = checkpoint.latest(folder)
    identity = json.loads((path / "manifest.json").read_text())["identity"]
    return hash_of_state(checkpoint.load(path, identity))


# A whole run


@pytest.mark.pictures
def test_what_a_tabular_run_leaves(run, tmp_path):
    done = run("env=river_swim algo=rsqp uncertainty=kl_ball uncertainty.radius=0.01")
    assert done.code == 0
    assert re.fullmatch(r"river_swim/rsqp/\d{8}-\d{6}-seed0", str(done.folder.relative_to(tmp_path / "runs")))
    names = {re.sub(r"^events\..*", "events", path.name) for path in done.folder.iterdir()}
    expected = (
        "config.yaml versions.json metrics.csv events checkpoints plots policy.safetensors policy.json policy.npz"
    )
    assert names == {*expected.split(), "summary.json", "run.lock"}
    assert sorted(path.name for path in (done.folder / "plots").iterdir()) == ["training.pdf", "training.png"]

    # the summary is what `rcac.solve` finds, in people's signs
    config = compose(["env=river_swim", "algo=rsqp"])
    solution = rcac.solve(open_env(config.env).problem, "rsqp", rcac.uncertainty.KLBall(0.01))
    summary = done.json("summary.json")
    assert summary["returns"] == [-solution.returns[0], solution.returns[1]]
    assert (summary["feasible"], summary["gap"]) == (solution.feasible, solution.gap)
    with np.load(done.folder / "policy.npz") as arrays:
        np.testing.assert_array_equal(arrays["policy"], solution.policy)
        assert arrays["values"].shape == (2, 6)
    for words in ("return", "budget 42, met", "feasible", "nominal model", "gap", "evaluations", "stationary"):
        assert words in done.out
    board = EventAccumulator(str(done.folder), size_guidance={"images": 0}).Reload()
    assert set(board.Tags()["images"]) == {"policy/best", "value/return", "value/cost"}


@pytest.mark.pictures
def test_what_a_deep_run_leaves(run):
    done = run(f"env=cartpole algo=rcac_npg {DEEP} seed=5")
    assert done.code == 0
    assert done.folder.parts[-3:-1] == ("cartpole", "rcac_npg")
    assert done.folder.name.endswith("-seed5")
    card = done.json("policy.json")
    assert card["hyperparameters"]["algo"]["actor_hidden"] == [8]
    assert card["card"]["spaces"]["action"] == {"type": "Discrete", "n": 2, "start": 0}
    assert (done.folder / "plots" / "training.png").stat().st_size > 5000
    assert re.search(r"cost .*budget 200, (met|exceeded)", done.out)
    assert (read_metrics(done.folder / "metrics.csv")["budget/1"][:15] == 200).all()
    board = EventAccumulator(str(done.folder), size_guidance={"images": 0}).Reload()
    assert board.Tags()["images"] == ["state/histogram"]


def test_progress_false_prints_the_folder_alone(run):
    done = run("env=river_swim progress=false")
    assert (done.err, done.out.count("\n")) == ("", 1)
    assert (done.folder / "summary.json").is_file()


@pytest.mark.parametrize(
    ("env", "algo"),
    [
        *(("river_swim", algo) for algo in sorted(registry.algorithms("tabular"))),
        *((env, "rppg") for env in ("garnet", "frozen_lake", "garbage_collector")),
    ],
)
def test_every_tabular_method_and_every_tabular_environment(run, env, algo):
    done = run(f"env={env} algo={algo} algo.iterations=5 progress=false")
    assert (done.code, done.err) == (0, "")
    assert done.json("summary.json")["evaluations"] == 5


@pytest.mark.filterwarnings("ignore::rcac.uncertainty.InexactWarning")
@pytest.mark.parametrize("name", sorted({*registry.uncertainty_names()} - {"ipm", "parameters"}))  # of deep methods
def test_every_set(run, tmp_path, name):
    np.save(tmp_path / "kernels.npy", open_env(compose(["env=river_swim"]).env).problem.kernel[None])
    given = "uncertainty.kernels=kernels.npy" if name == "finite" else ""
    done = run(f"env=river_swim algo=rnpg algo.iterations=3 progress=false uncertainty={name} {given}")
    assert done.code == 0, done.err
    returns = done.json("summary.json")["returns"]
    options = {key: value for key, value in registry.algorithm_row("rnpg").items() if key != "family"}
    nominal = rcac.solve(open_env(compose(["env=river_swim"]).env).problem, "rnpg", **{**options, "iterations": 3})
    exact = [-nominal.returns[0], nominal.returns[1]]
    if name in ("nominal", "finite"):
        np.testing.assert_allclose(returns, exact, rtol=1e-9)
    else:  # the worst case earns less and costs more
        assert returns[0] < exact[0]


def test_the_best_of_several_starts(run):
    done = run("env=garnet algo=rsqp algo.starts=3 algo.start=random seed=4")
    problem = open_env(compose(["env=garnet"]).env).problem
    options = {"seed": 4, "starts": 3, "start": "random"}
    solution = rcac.solve(problem, "rsqp", rcac.uncertainty.KLBall(0.01), **options)
    summary = done.json("summary.json")
    assert summary["returns"][0] == -solution.returns[0]
    assert summary["evaluations"] == solution.evaluations
    metrics = read_metrics(done.folder / "metrics.csv")
    assert metrics["switch/start"][-1] == 2
    assert metrics["return/best"][-1] == summary["returns"][0]


def test_a_problem_from_a_file(run, tmp_path):
    kernel = np.ones((1, 2, 1))
    rcac.RCMDP.from_rewards(kernel, [[1.0, 2.0]], [[[0.0, 1.0]]], [1.0], discount=0.5).save(tmp_path / "mine.npz")
    done = run("env=custom env.path=mine.npz uncertainty=nominal")
    assert done.folder.parts[-3:-1] == ("custom-mine-v0", "rsqp")
    # half of the steps may take the second action: (1 + ½)/(1 − ½)
    assert done.json("summary.json")["returns"][0] == pytest.approx(3.0, abs=1e-5)
    tighter = run("env=custom env.path=mine.npz uncertainty=nominal env.budgets=[0.5]")
    assert tighter.json("summary.json")["returns"][0] == pytest.approx(2.5, abs=1e-5)


# Repeating and resuming


def test_from_repeats_a_run(run):
    first = run("env=garnet algo=rnpg algo.iterations=7 algo.step_size=3 uncertainty=chi_square seed=2")
    again = run(f"--from {first.folder}")
    assert again.folder != first.folder
    assert state_hash(again.folder) == state_hash(first.folder)
    assert (again.folder / "config.yaml").read_bytes() == (first.folder / "config.yaml").read_bytes()
    other = run(f"--from={first.folder}/config.yaml algo.iterations=8")
    assert other.json("summary.json")["evaluations"] == 8


def interrupted_after(steps: int, monkeypatch) -> None:
    """SIGINT to ourselves in the given step."""
    after(steps, lambda: os.kill(os.getpid(), signal.SIGINT), monkeypatch)


class After(Callback):
    def __init__(self, steps: int, action) -> None:
        self.steps, self.action = steps, action

    def on_step(self, learner, step):
        self.steps -= 1
        if self.steps == 0:
            self.action()


def after(steps: int, action, monkeypatch) -> None:
    """Something happens after so many steps."""
    real = training.run
    monkeypatch.setattr(
        training, "run", lambda learner, parts, *rest: real(learner, [*parts, After(steps, action)], *rest)
    )


RESUMED = {
    **{f"env=river_swim algo={name} algo.iterations=12 algo.levels=3": (1, 2, 2) for name in registry.algorithms("tabular")},
    "env=garnet algo=rsqp algo.starts=3": (2, 7, 4),
    "env=frozen_lake algo=rnpg algo.iterations=12 uncertainty=kl_penalty": (2, 3, 4),
    **{f"env=cartpole algo={name} {DEEP}": (2, 7, 7) for name in registry.algorithms("deep")},  # the last in a trial
    f"env=river_swim algo=rcac_npg {DEEP}": (2, 7, 7),
}  # fmt: skip


# Of either family on its own environments, and across; every step and switch is interrupted where it is tested alone.
OFTEN = ("env=river_swim algo=epirc_pgs", "env=garnet", "env=cartpole algo=rcac_sqp", "env=river_swim algo=rcac_npg")


def resumed(text: str):
    return pytest.param(text, marks=() if text.startswith(OFTEN) else pytest.mark.slow)


@pytest.mark.parametrize("text", [resumed(text) for text in RESUMED])
def test_interrupted_three_times_equals_uninterrupted(run, monkeypatch, text):
    whole = run(f"{text} progress=false")
    assert whole.code == 0, whole.err
    command, lengths = f"{text} progress=false", []
    for steps in RESUMED[text]:
        with monkeypatch.context() as patch:
            interrupted_after(steps, patch)
            part = run(command)
        assert part.code == 130, part.err
        command = f"resume={part.folder}"
        state = checkpoint.decode_tensors((checkpoint.latest(part.folder) / "tensors.safetensors").read_bytes())
        lengths.append(state.get("episodes.length", np.ones(1)))
    assert np.concatenate(lengths).any()  # mid-episode, where there are episodes
    last = run(command)
    assert (last.code, last.folder) == (0, part.folder)
    assert state_hash(last.folder) == state_hash(whole.folder)
    assert (last.folder / "policy.safetensors").read_bytes() == (whole.folder / "policy.safetensors").read_bytes()
    mine, other = (read_metrics(folder / "metrics.csv") for folder in (last.folder, whole.folder))
    for name in mine.keys() - {"wall_time", "time/steps_per_second"}:
        np.testing.assert_array_equal(mine[name], other[name])


def test_what_is_said_of_a_run_that_was_stopped(run, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted_after(2, patch)
        part = run(f"env=cartpole {DEEP}")
    assert part.code == 130
    assert re.search(r"stopped because\W+SIGINT", part.out)
    assert f"rcac-train resume={part.out.splitlines()[-1]}" in part.out
    assert part.json("summary.json")["reason"] == "SIGINT"


def test_over_budget_by_how_much_and_a_code_of_its_own_if_strict(run):
    text = f"env=cartpole {DEEP} env.budgets=[0.001]"
    done = run(text)
    summary = done.json("summary.json")
    assert (done.code, summary["feasible"]) == (0, False)
    assert summary["violation"] == summary["costs"][0] - 0.001 > 0
    assert f"no, by {summary['violation']:.4g}" in done.out
    assert run(f"{text} strict=true").code == 5
    quiet = run(f"{text} strict=true progress=false")
    assert (quiet.code, quiet.err) == (5, f"feasible: no, by {summary['violation']:.4g}\n")
    assert run(f"env=cartpole {DEEP} strict=true").code == 0


@pytest.mark.slow
def test_a_sweep_over_budget_has_that_code_too(run):
    sweep = run(f"-m env=cartpole {DEEP} env.budgets=[0.001] strict=true seed=0 hydra/launcher=basic")
    assert sweep.code == 5, sweep.err


def test_what_resume_refuses(run, tmp_path):
    first = run("env=river_swim algo=rnpg algo.iterations=3")
    for text, complaint in {
        f"resume={first.folder} seed=3": "seed: given with resume, which keeps a run's own configuration",
        f"resume={first.folder} env=garnet": "env: given with resume",
        f"resume={first.folder} --from {first.folder}": "--from: given with resume",
        "resume=nowhere": "nowhere given, the folder of a run expected",
    }.items():
        again = run(text)
        assert again.code == 2
        assert complaint in again.err
        assert again.err.count("\n") == 1
    config = yaml.safe_load((first.folder / "config.yaml").read_text())
    for change, complaint in {
        "seed": "seed: 0 in the checkpoint, 9 now",
        "algo": "algo: 'rnpg' in the checkpoint, 'rppg' now",
        "env": "env: 'river_swim' in the checkpoint, 'garnet' now",
    }.items():
        changed = {**config, "seed": 9} if change == "seed" else dict(config)
        if change == "algo":
            changed["algo"] = compose(["env=river_swim", "algo=rppg"]).plain()["algo"]
        if change == "env":
            changed["env"] = compose(["env=garnet"]).plain()["env"]
        (first.folder / "config.yaml").write_text(yaml.safe_dump(changed))
        again = run(f"resume={first.folder}")
        assert again.code == 2
        assert complaint in again.err
    (first.folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert run(f"resume={first.folder} progress=false").code == 0  # finished before, and still


def test_resume_refuses_files_that_have_changed(run, tmp_path, monkeypatch):
    path = tmp_path / "radii.npy"
    np.save(path, np.full((6, 2), 0.01))
    with monkeypatch.context() as patch:
        interrupted_after(2, patch)
        part = run(
            f"env=river_swim algo=rnpg algo.iterations=8 uncertainty=kl_ball uncertainty.radius={path} progress=false"
        )
    assert part.code == 130
    np.save(path, np.full((6, 2), 0.02))
    again = run(f"resume={part.folder}")
    assert again.code == 2
    assert "radius_file" in again.err
    np.save(path, np.full((6, 2), 0.01))
    assert run(f"resume={part.folder}").code == 0


# Bad input

BAD = {
    "": "env: not given, one of ant_velocity, cartpole, ",
    "env=pond": "env: 'pond' given, one of",
    "env=river_swim algo=rnpgg": "algo: 'rnpgg' given, one of",
    "env=river_swim uncertainty=ball": "uncertainty: 'ball' given, one of",
    "env=river_swim algo.stepsize=1": "algo.stepsize: no such key, did you mean algo.step_size",
    "env=cartpole lr=abc": "lr: no such key, did you mean algo.actor_lr or algo.critic_lr or algo.multiplier_lr?",
    "env=cartpole algo.actor_lr=abc": "algo.actor_lr: 'abc' given, a number expected",
    "env=cartpole algo.actor_lr=nan": "algo.actor_lr: nan given, a number expected",
    "env=cartpole algo.gamma=1": "algo.gamma: 1.0 given, a number in [0, 1) expected",
    "env=river_swim seed=-1": "seed: -1 given, a whole number",
    "env=river_swim algo.lam=-1": "algo.lam: -1.0 given, a positive finite number expected",
    "env=river_swim algo.step=magic": "algo.step: 'magic' given, one of",
    "env=river_swim uncertainty.radius=-1": "uncertainty.radius: -1.0 given, a finite number ≥ 0 expected",
    "env=river_swim uncertainty.radius=inf": "uncertainty.radius: inf given",
    "env=custom env.path=none.npz": "env.path: ",
    "env=river_swim env.kwargs.discount=1": "env.kwargs.discount: 1.0 given, a number in [0, 1) expected",
    "env=garnet env.kwargs.num_states=0": "env.kwargs.num_states: 0 given",
    "env=garnet env.kwargs.num_states=x": "env.kwargs.num_states: 'x' given",
    "env=cartpole env.kwargs.noise_low=5": "env.kwargs.noise_low: 5 given, at most noise_high",
    "env=cartpole env.kwargs.mass=abc": "env.kwargs.mass: 'abc' given",
    "env=cartpole algo=rsqp": "algo: rsqp given, but rcac/NoisyCartPole-v0 has no model; one of cac, ",
    "env=cartpole algo.device=abacus": "device: 'abacus' given",
    "env=cartpole env.budgets=[1,2]": "env.budgets: [1.0, 2.0] given, 1 expected: the environment reports 1 costs",
    "env=gym env.id=Pendulum-v1 env.budgets=[1]": "env: Pendulum-v1, episode 1, step 1: no cost: info has nothing",
    "env=cartpole env.vectorization=vector env.cost=cheap_cost": "env.vectorization: vector given, sync or async expected",
    "env=cartpole env.cost=unheard_of": "cost: 'unheard_of' given, one of",
    "env=gym env.id=no/Such-v0 env.budgets=[1]": "env.id: no/Such-v0 given: ",
    "env=gym env.id=no_such_module:x env.budgets=[1]": "env.id: no_such_module:x given: No module named",
    "env=gym env.id=Pendulum-v1 env.budgets=[1] env.kwargs.nope=1": "env.kwargs: {'nope': 1} given: ",
    "env=gym env.id=mine/Letter-v0 env.budgets=[3]": "observation space: Text(1, 5, ",
    "env=river_swim algo=rcac algo.gamma=0.5": "algo.gamma: 0.5 given, 0.99 expected, the model's discount",
    "env=river_swim runs=/proc/nowhere": "runs folder /proc/nowhere: cannot be written",
    "--form x": "--form: no such option, known are --help, --version, --from and --trust",
    "--from": "--from: nothing given",
    "--from nowhere": "the configuration of a run expected",
    "env=river_swim algo._target_=os.getcwd": "nothing is instantiated from text",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_input_is_one_line_exit_2_and_no_folder(run, tmp_path, text):
    done = run(text)
    assert done.code == 2
    assert BAD[text] in done.err
    assert (done.err.count("\n"), done.out) == (1, "")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_after_the_training_is_one_line(run, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "policy.npz")

    monkeypatch.setattr(training, "replace_file", full)
    done = run("env=river_swim progress=false")
    assert (done.code, done.err) == (1, "no space left (No space left on device: policy.npz)\n")


def test_infeasible_is_proved_before_there_is_a_folder(run, tmp_path):
    done = run("env=river_swim env.kwargs.budget=5")
    assert done.code == 3
    assert re.fullmatch(
        r"Infeasible: constraint 1: the least attainable worst-case cost is 10\.1\d*, the budget is 5\n", done.err
    )
    assert list(tmp_path.iterdir()) == []


def test_help_and_version(run, evaluate):
    for command, words in ((run, "env=river_swim"), (evaluate, "episodes=100")):
        for flag in ("--help", "-h"):
            done = command(flag)
            assert (done.code, done.err) == (0, "")
            assert words in done.out
        assert command("--version").out == f"rcac {rcac.__version__}\n"
    assert "λ of the surrogate" in run("--help algo=rnpg").out


# Any environment


class Cheap(gym.Env):
    """Two steps and out; the cost is the action's size. `fault` at a step does what no environment may do."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, fault: str | None = None, at: int = 0, costs: int = 1) -> None:
        if fault == "locked":
            raise RuntimeError("no licence")
        if fault == "lost":
            raise KeyError("part")
        self.fault, self.at, self.costs, self.count = fault, at, costs, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.fault == "narrow":
            np.random.RandomState(seed)  # takes 32 bits
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        wrong = self.fault if self.count == self.at else None
        if wrong == "raise":
            raise RuntimeError("the motor stalled")
        observation = np.full(2, np.nan if wrong == "blank" else 0.5, np.float32)
        info = {} if wrong == "silent" else {"costs": np.full(self.costs, float(action))}
        return observation, 1.0, self.np_random.random() < 0.3, False, info


class Letter(Cheap):
    """Says what it sees in words, which no network here can read."""

    observation_space = gym.spaces.Text(5)

    def reset(self, *, seed=None, options=None):
        return "first", super().reset(seed=seed)[1]

    def step(self, action):
        return "later", *super().step(action)[1:]


@pytest.fixture(autouse=True, scope="module")
def cheap():
    gym.register("mine/Cheap-v0", entry_point=Cheap, max_episode_steps=6)
    gym.register("mine/Letter-v0", entry_point=Letter, max_episode_steps=6)
    with registry.temporary():
        rcac.register_cost("cheap_cost")(lambda *transition: 1.0)
        yield
    del gym.registry["mine/Cheap-v0"], gym.registry["mine/Letter-v0"]


GYM = "env=gym env.id=mine/Cheap-v0 env.budgets=[3] algo.total_steps=128 algo.num_envs=2 algo.rollout_length=8 algo.actor_hidden=[4]"


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestAnyEnvironment:
    def test_any_registered_environment(self, run):
        done = run(GYM)
        assert done.code == 0, done.err
        assert done.folder.parts[-3:-1] == ("mine-Cheap-v0", "rcac_npg")
        assert done.json("summary.json")["budgets"] == [3.0]

    def test_a_cost_for_each_budget(self, run):
        done = run(f"{GYM} env.kwargs.costs=2 env.budgets=[3,4]")
        assert "cost/2/episode" in read_metrics(done.folder / "metrics.csv")
        wrong = run(f"{GYM} env.kwargs.costs=2")
        assert wrong.code == 2
        assert "env.budgets: [3.0] given, 2 expected: the environment reports 2 costs" in wrong.err

    def test_without_budgets_no_cost_is_needed(self, run):
        assert run(f"{GYM} env.budgets=[] env.kwargs.fault=silent env.kwargs.at=1").code == 0

    def test_one_that_takes_seeds_of_32_bits(self, run):
        for seed in (0, 1, 2**62):
            done = run(f"{GYM} env.kwargs.fault=narrow algo.trials=1 seed={seed}")
            assert done.code == 0, done.err

    @pytest.mark.parametrize(
        ("fault", "line"),
        [
            ("locked", "env: mine/Cheap-v0 cannot be made: RuntimeError: no licence"),
            ("lost", "env: mine/Cheap-v0 cannot be made: KeyError: 'part'"),
            ("raise", "env: mine/Cheap-v0, episode 1, step 1: raised RuntimeError('the motor stalled')"),
        ],
    )
    def test_one_that_fails_at_once_is_one_line(self, run, tmp_path, fault, line):
        done = run(f"{GYM} env.budgets=[] env.kwargs.fault={fault} env.kwargs.at=1")
        assert (done.code, done.out, done.err) == (2, "", line + "\n")
        assert list(tmp_path.iterdir()) == []

    def test_one_that_is_imported(self, run, tmp_path, monkeypatch):
        text = "import gymnasium\ngymnasium.register('other/Cheap-v0', 'test_cli:Cheap', max_episode_steps=6)\n"
        (tmp_path / "their_package.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        done = run(GYM.replace("mine/Cheap-v0", "their_package:other/Cheap-v0"))
        assert done.code == 0, done.err
        del gym.registry["other/Cheap-v0"]

    @pytest.mark.parametrize("fault", ["blank", "raise", "silent"])
    def test_one_that_breaks_its_word(self, run, tmp_path, fault):
        done = run(f"{GYM} env.kwargs.fault={fault} env.kwargs.at=40 checkpoint_every=16")
        assert done.code == 1
        line = done.err.splitlines()[-1]
        assert "mine/Cheap-v0" in line
        assert re.search(r"step \d+", line)
        [kept] = re.findall(r"the last good checkpoint is (\S+)", line)
        identity = json.loads(Path(kept, "manifest.json").read_text())["identity"]
        assert checkpoint.load(Path(kept), identity).data["position"] >= 64
        assert "Traceback" not in done.err

    @pytest.mark.parametrize("algo", ["rcac", "rcac_npg", "rcac_sqp"])
    def test_a_gradient_that_is_not_finite_stops_within_the_update(self, run, monkeypatch, algo):
        step, updates = Trainer.step, []

        def counted(self):
            updates.append(1)
            if len(updates) == 5:  # every gradient in the actor's head, from here on
                self.actor.head.weight.register_hook(lambda slope: slope * torch.nan)
                backwards = PlainJacobian.transposed_times  # of a network that is trained without a graph
                monkeypatch.setattr(PlainJacobian, "transposed_times", lambda self, u: backwards(self, u) * torch.nan)
            return step(self)

        monkeypatch.setattr(Trainer, "step", counted)
        done = run(f"{GYM} algo={algo} algo.trials=0 algo.total_steps=1600 checkpoint_every=16")
        assert done.code == 1
        line = done.err.splitlines()[-1]
        assert "numbers broke down: " in line
        assert len(updates) == 5  # no update began after it
        taken = 16 * 4
        [kept] = re.findall(rf"after {taken} [a-z ]*steps; the last good checkpoint is (\S+)", line)
        identity = json.loads(Path(kept, "manifest.json").read_text())["identity"]
        state = checkpoint.load(Path(kept), identity)
        assert state.data["position"] == taken
        assert all(np.isfinite(tensor).all() for tensor in state.tensors.values())

    def test_one_without_a_state_goes_on_exactly(self, run, monkeypatch):
        whole = run(GYM)
        with monkeypatch.context() as patch:
            interrupted_after(3, patch)
            part = run(GYM)
        done = run(f"resume={part.folder} progress=false")
        assert (done.code, done.err) == (0, "")
        assert "resumed" not in done.json("summary.json")["run"]
        assert state_hash(done.folder) == state_hash(whole.folder)

    def test_one_that_does_not_repeat_itself_begins_anew_and_says_so_everywhere(self, run, monkeypatch):
        with monkeypatch.context() as patch:
            interrupted_after(3, patch)
            part = run(GYM)
        assert part.code == 130
        assert "resumed" not in part.json("summary.json")["run"]
        real = Replay.reset

        def elsewhere(self, *, seed=None, options=None):  # when it is played again
            observation, info = real(self, seed=seed, options=options)
            return observation + np.float32(0.5 if options else 0.0), info

        monkeypatch.setattr(Replay, "reset", elsewhere)
        said = "its environment did not repeat itself from the same seeds and actions: new episodes began"
        done = run(f"resume={part.folder}")
        assert done.code == 0
        assert said in done.err
        quiet = run(f"resume={part.folder} progress=false")
        assert quiet.err.splitlines() == [said]
        assert quiet.json("summary.json")["run"]["resumed"] == quiet.json("policy.json")["resumed"] == said

    def test_async_copies(self, run):
        done = run(f"{GYM} env.vectorization=async progress=false")
        assert (done.code, multiprocessing.active_children()) == (0, [])

    def test_a_killed_worker_is_an_error_at_once_and_leaves_nobody(self, run, monkeypatch):
        after(2, lambda: os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL), monkeypatch)
        done = run(f"{GYM} env.vectorization=async checkpoint_every=16")
        assert done.code == 1
        assert re.search(r"raised at step \d+: .*the last good checkpoint is .*000032", done.err)
        assert multiprocessing.active_children() == []


def test_a_deep_method_keeps_a_models_discounted_budget(run):
    done = run(f"env=river_swim algo=rcac_npg {DEEP} env.kwargs.discount=0.9 env.kwargs.budget=5")
    metrics = read_metrics(done.folder / "metrics.csv")
    np.testing.assert_allclose(metrics["budget/1/discounted"][:15], 5.0, rtol=1e-12)
    assert yaml.safe_load((done.folder / "config.yaml").read_text())["algo"]["gamma"] == 0.9


# Evaluation


class TestEvaluate:
    def rows(self, done: Ran) -> dict[str, dict[str, str]]:
        with Path(done.out.splitlines()[-1]).open() as file:
            return {row["term"]: row for row in csv.DictReader(file)}

    def test_a_tabular_run(self, run, evaluate):
        trained = run("env=garnet algo=rsqp")
        done = evaluate(f"run={trained.folder} episodes=40")
        assert done.code == 0, done.err
        rows = self.rows(done)
        assert list(rows) == ["return", "utility"]
        summary = trained.json("summary.json")
        for k, row in enumerate(rows.values()):
            assert float(row["worst_case"]) == pytest.approx(summary["returns"][k], rel=1e-8)
            gap = abs(float(row["mean"]) - float(row["nominal"]))
            assert gap < 4 * float(row["standard_error"])
        assert "worst case (kl_ball)" in done.out
        again = evaluate(f"run={trained.folder} episodes=40")
        assert self.rows(again) == rows  # the same seed, the same episodes
        other = evaluate(f"run={trained.folder} episodes=40 seed=1 uncertainty=total_variation uncertainty.radius=0")
        changed = self.rows(other)
        assert changed["return"]["mean"] != rows["return"]["mean"]
        assert float(changed["return"]["worst_case"]) == pytest.approx(float(rows["return"]["nominal"]), rel=1e-9)
        assert changed["return"]["changes"] == "uncertainty=total_variation uncertainty.radius=0"

    def test_an_objective_that_is_a_cost(self, run, evaluate, tmp_path):
        problem = rcac.RCMDP(np.ones((1, 2, 1)), [[[1.0, 2.0]], [[1.0, 0.0]]], [10.0], [1.0], 0.9)
        problem.save(tmp_path / "mine.npz")
        trained = run("env=custom env.path=mine.npz uncertainty=nominal")
        rows = self.rows(evaluate(f"run={trained.folder} episodes=3 env.max_episode_steps=500"))
        assert list(rows) == ["objective", "cost"]
        assert float(rows["objective"]["mean"]) == pytest.approx(10.0, rel=1e-4)
        assert float(rows["cost"]["mean"]) == pytest.approx(10.0, rel=1e-4)

    def test_a_deep_run_on_its_environment_and_on_another(self, run, evaluate):
        trained = run(f"env=cartpole algo=rcac {DEEP}")
        done = evaluate(f"run={trained.folder} episodes=7 num_envs=3")
        rows = self.rows(done)
        assert rows["cost"]["budget"] == "200.0"
        assert 0 < float(rows["return"]["mean"]) <= 30
        windy = self.rows(evaluate(f"run={trained.folder} episodes=7 num_envs=3 env.kwargs.wind=9 deterministic=true"))
        assert windy["return"]["mean"] != rows["return"]["mean"]

    def test_a_deep_run_on_a_model_is_also_exact(self, run, evaluate):
        trained = run(f"env=river_swim algo=rcac {DEEP}")
        rows = self.rows(evaluate(f"run={trained.folder} episodes=20 env.max_episode_steps=1000"))
        for row in rows.values():
            assert abs(float(row["mean"]) - float(row["nominal"])) < 4 * float(row["standard_error"])
        assert float(rows["return"]["worst_case"]) < float(rows["return"]["nominal"])

    def test_short_episodes_do_not_crowd_out_long_ones(self, run, evaluate):
        """Episodes end with chance .3 at each step, 6 at most: their mean length is (1 − .7⁶)/.3."""
        trained = run(GYM)
        rows = self.rows(evaluate(f"run={trained.folder} episodes=1000 num_envs=64"))
        expected = (1 - 0.7**6) / 0.3
        assert abs(float(rows["return"]["mean"]) - expected) < 4 * float(rows["return"]["standard_error"])

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("", "run: not given"),
            ("run=nowhere", "run: 'nowhere' given, the folder of a run expected"),
            ("episode=3 run=x", "episode: no such key, did you mean episodes?"),
            ("run={} episodes=0", "episodes: 0 given, a whole number ≥ 1 expected"),
            ("run={} seed=-1", "seed: -1 given"),
            ("run={} algo.lam=3", "algo.lam: no such key"),
            ("run={} env.kwargs.nope=3", "env.kwargs.nope: no such key"),
            (
                "run={} env.kwargs.rewards=[0,1] env.kwargs.costs=[0,1]",
                "env: its observations are Discrete(2), Discrete(6)",
            ),
        ],
    )
    def test_bad_input(self, run, evaluate, text, complaint):
        trained = run("env=river_swim").folder if "{}" in text else ""
        done = evaluate(text.format(trained))
        assert done.code == 2
        assert complaint in done.err
        assert done.err.count("\n") == 1

    def test_recording_needs_the_extra(self, run, evaluate, monkeypatch):
        trained = run("env=frozen_lake")
        monkeypatch.setitem(sys.modules, "imageio.v3", None)
        done = evaluate(f"run={trained.folder} episodes=2 record=true")
        assert done.code == 2
        assert done.err == "record: imageio is not installed, pip install 'rcac[video]' expected\n"

    def test_recording(self, run, evaluate, monkeypatch):
        """With a stand-in for imageio: what it is given is a film of the episode."""
        import types

        given = {}

        def imwrite(uri, frames, **options):
            given.update(options, frames=frames)
            return b"GIF89a"

        package, module = types.ModuleType("imageio"), types.ModuleType("imageio.v3")
        module.imwrite = imwrite
        package.v3 = module
        monkeypatch.setitem(sys.modules, "imageio", package)
        monkeypatch.setitem(sys.modules, "imageio.v3", module)
        monkeypatch.setattr(evaluation, "SECONDS", 2)
        trained = run("env=river_swim")
        assert evaluate(f"run={trained.folder} episodes=2 record=true").code == 0
        assert (trained.folder / "episode.gif").read_bytes() == b"GIF89a"
        assert given["frames"].shape == (8, 140, 576, 3)
        assert (given["frames"].dtype, given["extension"], given["duration"]) == (np.uint8, ".gif", 250.0)


# As a process


def start(*arguments: str, cwd: Path) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(arguments, cwd=cwd, env=environment, **pipes)


def test_the_scripts_from_any_folder_without_torch(tmp_path):
    code = (
        "import sys\nfrom rcac.cli import train\n"
        "try:\n    train(['env=river_swim', 'algo=rsqp', 'progress=false'])\n"
        "except SystemExit as ending:\n    assert ending.code == 0\n    assert 'torch' not in sys.modules\n"
    )
    process = start(sys.executable, "-c", code, cwd=tmp_path)
    out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert (tmp_path / out.strip() / "summary.json").is_file()
    command = Path(sys.executable).with_name("rcac-evaluate")
    process = start(str(command), f"run={out.strip()}", "episodes=3", cwd=tmp_path)
    assert process.wait() == 0
    assert (tmp_path / out.strip() / "evaluation.csv").is_file()


def test_stopped_from_outside_and_resumed(tmp_path, run, monkeypatch):
    site = install(tmp_path / "site")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    (tmp_path / "wait").touch()  # in the middle, until it is told to stop
    text = f"{FRAGILE} algo.iterations=30 progress=false"
    process = start(sys.executable, str(SCRIPTS / "train.py"), *text.split(), "runs=part", cwd=tmp_path)
    while sum(table.read_bytes().count(b"\n") for table in tmp_path.glob("part/*/*/*/metrics.csv")) <= 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert (process.returncode, err) == (143, "")
    folder = tmp_path / out.strip()
    assert json.loads((folder / "summary.json").read_text())["run"]["finished"] is False
    (tmp_path / "wait").unlink()
    assert run(f"resume={folder}").code == 0
    assert state_hash(folder) == state_hash(run(text).folder)


MODULE = """
import rcac

@rcac.register_cost("speeding")
def speeding(observation, action, next_observation, reward, info):
    return max(0.0, abs(float(next_observation[1])) - 1.0)
"""


def test_a_module_of_the_current_folder(tmp_path):
    """By the script and by the installed commands, for one run, several, and their evaluation; ours is never shadowed."""
    (tmp_path / "my_costs.py").write_text(MODULE)
    (tmp_path / "yaml.py").write_text("raise RuntimeError('not the installed one')")
    installed = str(Path(sys.executable).with_name("rcac-train"))
    text = f"env=gym env.id=my_costs:CartPole-v1 env.cost=speeding env.budgets=[25] {DEEP} progress=false"
    for command in (
        [sys.executable, str(SCRIPTS / "train.py"), *text.split()],
        [installed, "-m", *text.split(), "seed=1", "hydra.sweep.dir=mine"],
        [sys.executable, str(SCRIPTS / "evaluate.py"), "run=runs/CartPole-v1", "episodes=2"],
    ):
        process = start(*command, cwd=tmp_path)
        said = process.communicate()
        assert process.returncode == 0, (command, *said)
    process = start(installed, *text.replace("my_costs:", "").split(), cwd=tmp_path)
    expected = (
        "cost: 'speeding' given, but none is registered; env.id=my_module:Env-v0 imports the module that registers it\n"
    )
    assert (process.communicate()[1], process.returncode) == (expected, 2)
