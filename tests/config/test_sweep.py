"""Sweeps: what a command line stands for, and what becomes of the jobs, whatever happens to their processes.

Jobs run in processes of their own, so accidents are arranged by a package: it offers a set whose worst cases are the
nominal ones, until a file named like the run's number says what is to happen to the process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml
from fragile_package import TINY, install

from rcac import cli, registry
from rcac.config import app
from rcac.config import compose as configuration
from rcac.config.sweep import command, jobs, worker
from rcac.config.sweep.folder import JobRecord, SweepFolder
from rcac.runs import checkpoint
from rcac.runs.loggers.csv import read_metrics

SCRIPT = Path(__file__).parents[2] / "scripts" / "train.py"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty working folder, and a package that offers the set; found by this process, and so by all."""
    folder = tmp_path / "home"
    monkeypatch.syspath_prepend(install(tmp_path / "site"))
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


class Ran:
    """What a command left behind."""

    def __init__(self, text: str, capsys) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.train(text.split())
        self.code = ending.value.code
        self.out, self.err = capsys.readouterr()
        if self.out:
            self.folder = Path(self.out.splitlines()[-1]).resolve()
            self.jobs = json.loads((self.folder / "sweep.json").read_text())["jobs"]

    def ended(self, outcome: str) -> list[str]:
        """The jobs that ended like this while the command ran, from its lines on stderr."""
        lines = [line.split("  ") for line in self.err.splitlines() if "/" in line.split("  ")[0]]
        return sorted((line[2] for line in lines if line[1] == outcome), key=lambda label: int(label.split("=")[-1]))


@pytest.fixture
def run(home, capsys):
    return lambda text: Ran(text, capsys)


# The whole


def test_five_runs_with_four_accidents(run, home):
    accidents = {0: "raise", 1: "kill", 3: "exit", 4: "refuse"}
    for seed, mishap in accidents.items():
        (home / f"mishap{seed}").write_text(mishap)
    text = f"-m {TINY} seed=range(5)"

    first = run(f"{text} hydra/launcher=basic")
    assert first.code == 1
    assert first.ended("finished") == ["seed=2"]
    assert first.ended("failed") == [f"seed={seed}" for seed in accidents]
    job = f"failed: {TINY} seed="
    assert first.err.splitlines()[-5:] == [
        f"{job}0: RuntimeError: it broke in the middle",
        f"{job}1: its process was killed by SIGKILL",
        f"{job}3: its process ended with exit code 7",
        f"{job}4: uncertainty.number: it is not to be",
        "4 of 5 jobs are left; the same command does these",
    ]
    assert first.folder.parent == home / "runs" / "sweeps"
    assert first.folder.name.startswith("river_swim-seed-")
    assert [row["overrides"][-1] for row in first.jobs] == [f"seed={seed}" for seed in range(5)]
    assert [k for k, row in enumerate(first.jobs) if row["outcome"] != "finished"] == list(accidents)
    assert "in sweep" in "\n".join(first.jobs[0]["traceback"])
    for seed, row in enumerate(first.jobs):
        if seed == 4:  # refused before there was a folder
            assert row["folder"] is None
            continue
        folder = first.folder / row["folder"]
        config = yaml.safe_load((folder / "config.yaml").read_text())
        assert (config["seed"], config["uncertainty"]["number"]) == (seed, seed)
        assert folder.parent == first.folder / "river_swim" / "rnpg"
        assert folder.name.endswith(f"-seed{seed}")
        if seed in accidents:
            assert not (folder / "summary.json").exists()
            assert 0 < int(checkpoint.latest(folder).name) < 10
        else:
            assert json.loads((folder / "summary.json").read_text())["run"]["finished"] is True

    for seed in accidents:
        (home / f"mishap{seed}").unlink()
    second = run(f"{text} hydra.launcher.n_jobs=1")  # another launcher goes on where the first one stopped
    assert (second.code, second.folder) == (0, first.folder)
    assert second.err.splitlines()[0] == "1 of 5 were done before"
    assert second.ended("finished") == [f"seed={seed}" for seed in accidents]
    for seed, (before, after) in enumerate(zip(first.jobs, second.jobs, strict=True)):
        assert after["outcome"] == "finished"
        assert seed == 4 or after["folder"] == before["folder"]  # resumed where it was
    assert len(list(first.folder.glob("*/*/*/config.yaml"))) == 5
    for seed in (0, 1, 3):
        positions = read_metrics(first.folder / second.jobs[seed]["folder"] / "metrics.csv")["position"]
        assert positions.tolist() == list(range(1, 11))

    third = run(text)
    assert (third.code, third.err, third.jobs) == (0, "", second.jobs)
    assert third.out.count("finished") == 5


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(run, home):
    """joblib gives up when a worker is killed; what is left is launched again: nothing is lost, nothing done twice."""
    (home / "mishap1").write_text("kill worker")
    done = run(f"-m {TINY} seed=range(3) hydra.launcher.n_jobs=2")
    assert done.code == 0, done.err
    assert not (home / "mishap1").exists()
    assert [row["outcome"] for row in done.jobs] == ["finished"] * 3
    folders = sorted(done.folder.glob("river_swim/rnpg/*"))
    assert len({row["folder"] for row in done.jobs}) == len(folders) == 3
    for folder in folders:
        assert read_metrics(folder / "metrics.csv")["position"].tolist() == list(range(1, 11))


@pytest.mark.slow
def test_another_launcher_and_more_jobs_in_a_named_folder(run):
    """`submitit_local` is what runs on a cluster, without the cluster; the folder does not depend on the launcher."""
    chosen = f"-m {TINY} hydra.sweep.dir=mine"
    first = run(f"{chosen} seed=0 hydra/launcher=submitit_local hydra.launcher.timeout_min=5")
    assert (first.code, first.folder.name) == (0, "mine"), first.err
    assert [row["outcome"] for row in first.jobs] == ["finished"]
    more = run(f"{chosen} seed=range(2) progress=false hydra/launcher=basic")
    assert (more.code, more.err, more.out) == (0, "", "mine\n")
    assert len(more.jobs) == 2
    assert more.jobs[0]["folder"] == first.jobs[0]["folder"]
    assert len(list(first.folder.glob("river_swim/rnpg/*"))) == 2
    assert not list(first.folder.rglob("*.pkl"))


def test_a_folder_for_each_job(run, home):
    """Hydra's own layout, for who wants it."""
    text = "-m env=river_swim algo=rnpg,rsqp algo.iterations=2 hydra.sweep.dir=out hydra.sweep.subdir=${hydra:job.num}"
    done = run(f"{text} hydra/launcher=basic")
    assert (done.code, [row["folder"] for row in done.jobs]) == (0, ["0", "1"]), done.err
    names = [yaml.safe_load((home / "out" / k / "config.yaml").read_text())["algo"]["name"] for k in "01"]
    assert names == ["rnpg", "rsqp"]


@pytest.mark.parametrize(
    ("launcher", "running"),
    [("hydra/launcher=basic", 1), pytest.param("hydra.launcher.n_jobs=2", 2, marks=pytest.mark.slow)],
)
def test_stopped_and_resumed(run, home, launcher, running):
    (home / "wait").touch()
    text = f"-m {TINY} seed=range(3) algo.iterations=30 {launcher}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, str(SCRIPT), *text.split()], env=environment, **pipes)
    while sum(path.read_bytes().count(b"\n") > 5 for path in home.glob("runs/sweeps/*/*/*/*/metrics.csv")) < running:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "3 of 3 jobs are left; the same command does these"
    folder = (home / out.splitlines()[-1]).resolve()
    rows = json.loads((folder / "sweep.json").read_text())["jobs"]
    assert [row["outcome"] for row in rows] == ["stopped"] * running + ["missing"] * (3 - running)
    for row in rows[:running]:
        summary = json.loads((folder / row["folder"] / "summary.json").read_text())["run"]
        assert 0 < summary["position"] < 30
        assert int(checkpoint.latest(folder / row["folder"]).name) == summary["position"]

    (home / "wait").unlink()
    again = run(text.replace("hydra.launcher.n_jobs=2", "hydra/launcher=basic"))
    assert (again.code, again.folder) == (0, folder), again.err
    assert [row["folder"] for row in again.jobs[:running]] == [row["folder"] for row in rows[:running]]
    for row in again.jobs:
        positions = read_metrics(folder / row["folder"] / "metrics.csv")["position"]
        assert positions.tolist() == list(range(1, 31))


def test_optuna(run, home):
    """The best trial is the one with the largest return among the runs that keep to the budget; the same command finds
    its trials done."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    text = (
        f"-m {TINY} hydra/sweeper=optuna hydra/sweeper/sampler=grid hydra.sweeper.direction=maximize "
        "hydra.sweeper.n_trials=4 hydra.sweeper.n_jobs=2 env.budgets=choice([42],[12]) algo.step_size=choice(0.01,0.1) "
        "hydra/launcher=basic"
    )
    done = run(text)
    assert done.code == 0, done.err
    best = yaml.safe_load((done.folder / "optimization_results.yaml").read_text())
    runs = [done.folder / row["folder"] for row in done.jobs]
    summaries = [json.loads((path / "summary.json").read_text()) for path in runs]
    assert len(runs) == len(set(runs)) == 4
    assert {summary["feasible"] for summary in summaries} == {True, False}
    feasible = [k for k, summary in enumerate(summaries) if summary["feasible"]]
    winner = max(feasible, key=lambda k: summaries[k]["returns"][0])
    assert best["best_value"] == summaries[winner]["returns"][0]
    algo = yaml.safe_load((runs[winner] / "config.yaml").read_text())["algo"]
    assert float(best["best_params"]["algo.step_size"]) == algo["step_size"]
    again = run(text)
    assert (again.code, again.jobs) == (0, done.jobs), again.err
    assert len(list(done.folder.glob("river_swim/rnpg/*"))) == 4


def test_the_objective_puts_infeasible_policies_below_feasible_ones():
    def score(value: float, costs: list[float], budgets: list[float]) -> float:
        feasible = all(cost <= budget for cost, budget in zip(costs, budgets, strict=True))
        return worker.objective({"returns": [value, *costs], "budgets": budgets, "feasible": feasible})

    ranked = [
        score(9e9, [1e12], [1.0]),
        score(5.0, [3.0, 0.0], [1.0, 1.0]),
        score(5.0, [1.5, 0.0], [1.0, 1.0]),
        score(-9e9, [0.5], [1.0]),
        score(2.0, [0.5], [1.0]),
    ]
    assert ranked == sorted(ranked)
    assert len(set(ranked)) == len(ranked)
    assert ranked[-2:] == [-9e9, 2.0]
    assert worker.objective({}) is None


def test_a_launcher_that_cannot_start(run, home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))  # where there is no SLURM
    done = run("-m env=river_swim seed=0,1 hydra/launcher=submitit_slurm hydra.launcher.partition=long")
    assert done.code == 1
    assert done.err.splitlines()[:2] == [f"missing: env=river_swim seed={seed}" for seed in (0, 1)]
    assert "the launcher failed: RuntimeError: Could not detect" in done.err
    assert [row["outcome"] for row in done.jobs] == ["missing", "missing"]


def test_an_infeasible_job_is_said_to_be(run, home):
    text = f"-m {TINY} seed=0 env.budgets=[42],[-1] hydra/launcher=basic"
    first = run(text)
    assert first.code == 3
    job = f"infeasible: {TINY} seed=0 env.budgets=[-1]"
    why = "constraint 1: the least attainable worst-case cost is"
    assert first.err.splitlines()[-2].startswith(f"{job}: {why}")
    assert first.err.splitlines()[-1] == "1 of 2 jobs cannot be done: no policy meets the budgets"
    assert "the same command" not in first.err
    assert [row["outcome"] for row in first.jobs] == ["finished", "infeasible"]
    assert first.jobs[1]["error"].startswith(why)
    again = run(text)
    assert (again.code, again.err.splitlines(), again.jobs) == (3, first.err.splitlines()[-2:], first.jobs)


# What is asked for


def read(text: str) -> command.Sweep:
    return command.read(app.prepare(app.read(["-m", *text.split()])))


def test_every_combination_is_a_job():
    sweep = read("env=river_swim,garnet algo=rnpg algo.lam=50,100 seed=range(3) runs=there")
    assert len(sweep.jobs) == 12
    found = {(job.config.env.name, job.config.algo["lam"], job.config.seed) for job in sweep.jobs}
    assert found == {(env, lam, seed) for env in ("river_swim", "garnet") for lam in (50, 100) for seed in range(3)}
    job = sweep.jobs[-1]
    assert job.overrides == ["env=garnet", "algo=rnpg", "algo.lam=100", "seed=2", "runs=there"]
    assert job.label == "env=garnet algo.lam=100 seed=2"
    assert sweep.folder.path.parent == Path("there/sweeps").resolve()
    assert sweep.folder.path.name.startswith("env-algo.lam-seed-")


def test_the_folder_depends_on_what_is_run_alone():
    def name(text: str) -> str:
        return read(text).folder.path.name

    usual = name("env=river_swim seed=0,1")
    assert usual.startswith("river_swim-seed-")
    assert name("seed=0,1 env=river_swim progress=false hydra/launcher=basic") == usual
    assert name("env=river_swim seed=0,1,2") != usual
    assert name("env=river_swim seed=0,1 algo.lam=3") != usual
    assert name("env=river_swim seed=0,1 hydra.sweep.dir=x/a.b-c") == "a.b-c"


def test_globs_over_groups_and_choices():
    found = {job.config.algo["name"] for job in read("env=garnet algo=glob(r*,exclude=rcac*)").jobs}
    names = registry.algorithms("tabular")
    assert found & {*names} == {name for name in names if name.startswith("r")}
    assert [job.config.seed for job in read("env=garnet seed=choice(3,1)").jobs] == [3, 1]
    assert [job.config.seed for job in read("env=garnet seed=range(0,6,3)").jobs] == [0, 3]


def test_a_saved_configuration_can_be_swept(tmp_path):
    config = configuration.compose(["env=garnet", "algo=rnpg", "algo.lam=7"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.plain()))
    jobs = read(f"--from {tmp_path} seed=1,2 algo.step_size=3").jobs
    assert [(job.config.seed, job.config.algo["lam"], job.config.algo["step_size"]) for job in jobs] == [
        (1, 7.0, 3.0),
        (2, 7.0, 3.0),
    ]


def test_a_configuration_given_twice_is_one_job():
    assert [job.config.algo["lam"] for job in read("env=river_swim algo.lam=50,5e1,60").jobs] == [50, 60]


BAD = {
    "env=river_swim seed=1,x": "job env=river_swim seed=x: seed: 'x' given, a whole number expected",
    "env=river_swim,nope seed=1": "job env=nope seed=1: env: 'nope' given, one of ",
    "env=river_swim seed=interval(0,1)": "seed: values like 1,2 or range(3) expected",
    "env=river_swim algo=glob(x*)": "algo: no values given, at least one like 1,2 or range(3) expected",
    "env=river_swim seed=1,,2": "seed=1,,2: not understood",
    "env=river_swim +seed=1,2": "job env=river_swim +seed=1: Could not append to config. An item is already at 'seed'",
    "env=river_swim resume=x,y": "resume: given with -m, which resumes by itself what was interrupted",
    "--from runs/x seed=1,2": "runs: the configuration of a run expected",
    "env=river_swim seed=range(0)": "seed: no values given, at least one like 1,2 or range(3) expected",
    "env=river_swim seed=range(0,3,0)": "seed: values like 1,2 or range(3) expected",
    "env=river_swim algo=rnpg algo.lam=50,-1": "job env=river_swim algo=rnpg algo.lam=-1: algo.lam: -1.0 given, a positive",
    "env=river_swim uncertainty.radius=0.1,-1": "job env=river_swim uncertainty.radius=-1: uncertainty.radius: -1.0 given",
    "env=river_swim uncertainty.radius=0.1,x": "job env=river_swim uncertainty.radius=x: uncertainty.radius: 'x' given, a number",
    "env=river_swim uncertainty.radius=0.1,[1]": "job env=river_swim uncertainty.radius=[1]: uncertainty.radius: shape (1,) given",
    "env=river_swim,cartpole algo=rsqp": "job env=cartpole algo=rsqp: algo: rsqp given, but rcac/NoisyCartPole-v0 has no model",
    "env=cartpole algo.device=auto,meta": "job env=cartpole algo.device=meta: algo.device: 'meta' given, auto, cpu, cuda or",
    "env=garnet env.kwargs.num_states=5,-1": "job env=garnet env.kwargs.num_states=-1: env.kwargs.num_states: -1 given",
    "env=river_swim uncertainty=fragile uncertainty.number=0,-1": "job env=river_swim uncertainty=fragile uncertainty.number=-1: ",
    "env=river_swim runs=a,b": "runs: a, b given, one folder for all jobs expected",
    "env=river_swim hydra/launcher=nope": "hydra/launcher: 'nope' given, one of basic, joblib, ",
    "env=river_swim hydra/launcher=joblb": "hydra/launcher: 'joblb' given, one of basic, joblib, ",
    "env=river_swim hydra/launcher=ray": "hydra/launcher: ray is not installed, pip install 'rcac[ray]' expected",
    "env=river_swim hydra.launcher._target_=os.system": "hydra.launcher._target_: _target_ given, a key that is data",
    "env=river_swim +hydra.launcher.x={_target_:x}": "hydra.launcher.x._target_: _target_ given, a key that is data",
    "env=river_swim hydra.launcher={_target_:x}": "hydra.launcher._target_: _target_ given, a key that is data",
    "env=river_swim hydra.launcher.njobs=2": "hydra.launcher.njobs: no such key, did you mean hydra.launcher.n_jobs?",
    "env=river_swim hydra.launcher.n_jobs=x": "hydra.launcher.n_jobs: 'x' given, a whole number expected",
    "env=river_swim hydra.launcher.n_jobs=1,2": "hydra.launcher.n_jobs=1,2: several values given, one expected",
    "env=river_swim hydra/sweeper=optuna hydra.sweeper.n_trials=0": "hydra.sweeper.n_trials: 0 given, a whole number ≥ 1",
    "env=river_swim hydra/sweeper=x": "hydra/sweeper: 'x' given, one of basic",
    "env=river_swim hydra/sweeper=ax": "hydra/sweeper: 'ax' given, one of basic",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(run, home, text):
    done = run(f"-m {text}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(BAD[text])
    assert [path.name for path in home.iterdir() if path.name != "looks"] == []


def test_what_jobs_share_is_looked_at_once(home):
    found = read("env=river_swim uncertainty=fragile uncertainty.number=3,4 algo=rnpg,rsqp seed=range(20)").jobs
    assert len(found) == 80
    jobs.check(found)
    assert (home / "looks").read_text().split() == ["3", "4"]


def test_a_sweep_in_use(run, home):
    folder = read("env=river_swim seed=0,1").folder
    folder.jobs.mkdir(parents=True)
    with command.RunFolder(folder.path) as holder:
        holder.lock()
        done = run("-m env=river_swim seed=0,1")
    assert done.code == 2
    assert f"in use by process {os.getpid()}" in done.err


# Jobs


def job(home: Path, launch: str) -> worker.JobRequest:
    [found] = read("env=river_swim algo=rnpg algo.iterations=1").jobs
    (home / ".jobs").mkdir()
    return worker.JobRequest(str(home), launch, found.key, found.overrides, found.config, None)


def test_a_job_of_a_launch_that_is_over_is_left_alone(home):
    folder, mine = SweepFolder(home), job(home, "earlier")
    folder.begin_launch("later")
    worker.job_process(mine)
    assert folder.read(mine.key) is None
    assert not (home / "runs").exists()


def test_a_job_that_another_process_did_meanwhile_is_left_alone(home):
    folder, mine = SweepFolder(home), job(home, "launch")
    folder.begin_launch("launch")
    record = JobRecord("launch", [], "infeasible")
    with folder.locked(mine.key) as free:
        assert free
        waiting = threading.Thread(target=worker.job_process, args=(mine,))
        waiting.start()
        assert folder.running(mine.key)
        folder.write(mine.key, record)
    waiting.join()
    assert folder.read(mine.key) == record._replace(traceback=[])
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"launch": "x"}', b'{"launch": "x", "overrides": [], "outcome": "finished", "more": 1}']
)
def test_a_record_that_is_not_ours_is_none(tmp_path, content):
    folder = SweepFolder(tmp_path)
    folder.jobs.mkdir()
    (folder.jobs / "key.json").write_bytes(content)
    assert folder.read("key") is None
    assert folder.records() == {}


def test_a_run_that_was_deleted_is_missing_again(tmp_path):
    folder = SweepFolder(tmp_path)
    folder.jobs.mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    record = JobRecord("launch", [], "finished", "run")
    folder.write("key", record)
    assert folder.done("key") == record._replace(traceback=[])
    (tmp_path / "run" / "summary.json").unlink()
    assert folder.done("key") is None
