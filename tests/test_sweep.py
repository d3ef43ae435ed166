"""Sweeps: what a command line stands for, and what becomes of the jobs, whatever happens to their processes.

Jobs run in processes of their own, so accidents are arranged by a package: it offers a set whose worst cases are the
nominal ones, until a file named like the run's number says what is to happen to the process.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rcac.experiment import checkpoint, cli
from rcac.experiment.metrics import read_metrics
from rcac.experiment.sweep import command, worker
from rcac.experiment.sweep.folder import End, SweepFolder

SCRIPT = Path(__file__).parent.parent / "scripts" / "train.py"
FRAGILE = """
import multiprocessing, os, signal, time
from pathlib import Path
import numpy as np
from rcac.errors import InputError
from rcac.experiment import build, plots
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.nominal import Nominal

class Fragile(Uncertainty):
    def __init__(self, mishap):
        self.mishap, self.training, self.ours = mishap, 0, Nominal()

    def sweep(self, values, rows, memory=None):
        if Path.cwd().joinpath("slow").exists():
            time.sleep(0.02)
        self.training += len(values) > 1  # the bounds, which come before, ask for one cost at a time
        if self.training > 12:
            if self.mishap == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.mishap == "exit":
                os._exit(7)
            elif self.mishap == "raise":
                raise RuntimeError("it broke\\nin the middle")
        return self.ours.sweep(values, rows, memory)

def fragile(problem, number: int = 0):
    if number < 0:
        raise InputError(f"number: {number} given, a number ≥ 0 expected")
    with Path("looks").open("a") as looks:
        looks.write(f"{number}\\n")
    if multiprocessing.parent_process() is None:  # accidents happen to jobs only
        return Fragile("")
    plots.training = lambda *_: None  # pictures take longer than such small trainings
    build.policy_image = lambda *_: np.zeros((8, 8, 3), np.uint8)
    path = Path.cwd() / f"mishap{number}"
    mishap = path.read_text() if path.exists() else ""
    if mishap == "refuse":
        raise InputError("number: it is not to be")
    return Fragile(mishap)
"""
TINY = "env=river_swim algo=rnpg algo.iterations=10 checkpoint_every=3 uncertainty=fragile uncertainty.number=${seed}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty working folder, and a package that offers the set; found by this process, and so by all."""
    package, folder = tmp_path / "site", tmp_path / "home"
    (package / "fragile-1.0.dist-info").mkdir(parents=True)
    (package / "fragile.py").write_text(FRAGILE)
    (package / "fragile-1.0.dist-info" / "METADATA").write_text("Name: fragile\nVersion: 1.0\n")
    (package / "fragile-1.0.dist-info" / "entry_points.txt").write_text(
        "[rcac.uncertainty]\nfragile = fragile:fragile\n"
    )
    monkeypatch.syspath_prepend(package)
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


@pytest.mark.timeout(900)  # three commands, 44 processes: slow on a busy machine
def test_forty_runs_with_four_accidents(run, home):
    accidents = {3: "raise", 11: "kill", 12: "exit", 38: "refuse"}
    for seed, mishap in accidents.items():
        (home / f"mishap{seed}").write_text(mishap)
    text = f"-m {TINY} seed=range(40)"

    first = run(text)
    assert first.code == 1
    assert len(first.ended("finished")) == 36
    assert first.ended("failed") == [f"seed={seed}" for seed in accidents]
    job = f"failed: {TINY} seed="
    assert first.err.splitlines()[-5:] == [
        f"{job}3: RuntimeError: it broke in the middle",
        f"{job}11: its process was killed by SIGKILL",
        f"{job}12: its process ended with exit code 7",
        f"{job}38: uncertainty.number: it is not to be",
        "4 of 40 jobs are left; the same command does these",
    ]
    assert first.folder.parent == home / "runs" / "sweeps"
    assert first.folder.name.startswith("river_swim-seed-")
    assert [row["overrides"][-1] for row in first.jobs] == [f"seed={seed}" for seed in range(40)]
    assert [k for k, row in enumerate(first.jobs) if row["outcome"] != "finished"] == list(accidents)
    assert "in sweep" in "\n".join(first.jobs[3]["traceback"])
    for seed, row in enumerate(first.jobs):
        if seed == 38:  # refused before there was a folder
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
    second = run(text)
    assert (second.code, second.folder) == (0, first.folder)
    assert second.err.splitlines()[0] == "36 of 40 were done before"
    assert second.ended("finished") == [f"seed={seed}" for seed in accidents]
    for seed, (before, after) in enumerate(zip(first.jobs, second.jobs, strict=True)):
        assert after["outcome"] == "finished"
        assert seed == 38 or after["folder"] == before["folder"]  # taken up where it was
    assert len(list(first.folder.glob("*/*/*/config.yaml"))) == 40
    for seed in (3, 11, 12):
        positions = read_metrics(first.folder / second.jobs[seed]["folder"] / "metrics.csv")["position"]
        assert positions.tolist() == list(range(1, 11))

    third = run(text)
    assert (third.code, third.err, third.jobs) == (0, "", second.jobs)
    assert third.out.count("finished") == 40


def test_another_launcher_and_more_jobs_in_a_named_folder(run):
    """`submitit_local` is what runs on a cluster, without the cluster; the folder does not depend on the launcher."""
    first = run(f"-m {TINY} seed=0,1 sweep=mine hydra/launcher=submitit_local hydra.launcher.timeout_min=5")
    assert (first.code, first.folder.name) == (0, "mine"), first.err
    assert first.ended("finished") == ["seed=0", "seed=1"]
    more = run(f"-m {TINY} seed=range(3) sweep=mine progress=false hydra.launcher.n_jobs=1")
    assert (more.code, more.err, more.out) == (0, "", "runs/sweeps/mine\n")
    assert len(more.jobs) == 3
    assert [row["folder"] for row in more.jobs[:2]] == [row["folder"] for row in first.jobs]
    assert len(list(first.folder.glob("river_swim/rnpg/*"))) == 3
    assert not list(first.folder.rglob("*.pkl"))


def test_stopped_and_taken_up(run, home):
    (home / "slow").touch()
    text = f"-m {TINY} seed=range(4) algo.iterations=60 hydra.launcher.n_jobs=2"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, str(SCRIPT), *text.split()], env=environment, **pipes)
    deadline = time.monotonic() + 120
    while sum(path.read_bytes().count(b"\n") > 5 for path in home.glob("runs/sweeps/*/*/*/*/metrics.csv")) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "4 of 4 jobs are left; the same command does these"
    folder = (home / out.splitlines()[-1]).resolve()
    rows = json.loads((folder / "sweep.json").read_text())["jobs"]
    assert [row["outcome"] for row in rows] == ["stopped", "stopped", "missing", "missing"]
    for row in rows[:2]:
        summary = json.loads((folder / row["folder"] / "summary.json").read_text())["run"]
        assert 0 < summary["position"] < 60
        assert int(checkpoint.latest(folder / row["folder"]).name) == summary["position"]

    (home / "slow").unlink()
    again = run(text)
    assert (again.code, again.folder) == (0, folder), again.err
    assert [row["folder"] for row in again.jobs[:2]] == [row["folder"] for row in rows[:2]]
    for row in again.jobs:
        positions = read_metrics(folder / row["folder"] / "metrics.csv")["position"]
        assert positions.tolist() == list(range(1, 61))


def test_a_launcher_that_cannot_start(run, home, monkeypatch):
    monkeypatch.setenv("PATH", str(home))  # where there is no SLURM
    done = run("-m env=river_swim seed=0,1 hydra/launcher=submitit_slurm hydra.launcher.partition=long")
    assert done.code == 1
    assert done.err.splitlines()[:2] == [f"missing: env=river_swim seed={seed}" for seed in (0, 1)]
    assert "the launcher failed: RuntimeError: Could not detect" in done.err
    assert [row["outcome"] for row in done.jobs] == ["missing", "missing"]


def test_an_infeasible_job_is_said_to_be(run, home):
    text = f"-m {TINY} seed=0 env.budgets=[42],[-1]"
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


def test_every_combination_is_a_job():
    sweep = command.read(["env=river_swim,garnet", "algo=rnpg", "algo.lam=50,100", "seed=range(3)", "runs=there"])
    assert len(sweep.jobs) == 12
    found = {(job.config.env.name, job.config.algo["lam"], job.config.seed) for job in sweep.jobs}
    assert found == {(env, lam, seed) for env in ("river_swim", "garnet") for lam in (50, 100) for seed in range(3)}
    job = sweep.jobs[-1]
    assert job.overrides == ["env=garnet", "algo=rnpg", "algo.lam=100", "seed=2", "runs=there"]
    assert job.label == "env=garnet algo.lam=100 seed=2"
    assert (job.config.progress, job.config.runs) == (False, str(sweep.folder.path))
    assert sweep.folder.path.parent == Path("there/sweeps").resolve()
    assert sweep.folder.path.name.startswith("env-algo.lam-seed-")
    assert sweep.options == ["hydra/launcher=joblib"]


def test_the_folder_depends_on_what_is_run_alone():
    def name(text: str) -> str:
        return command.read(text.split()).folder.path.name

    usual = name("env=river_swim seed=0,1")
    assert usual.startswith("river_swim-seed-")
    assert name("seed=0,1 env=river_swim progress=false hydra/launcher=basic") == usual
    assert name("env=river_swim seed=0,1,2") != usual
    assert name("env=river_swim seed=0,1 algo.lam=3") != usual
    assert name("env=river_swim seed=0,1 sweep=a.b-c") == "a.b-c"


def test_options_of_the_launcher():
    options = ["hydra.launcher.partition=long", "+hydra.launcher.additional_parameters.mail-user=me"]
    sweep = command.read(["env=river_swim", *options, "hydra/launcher=submitit_slurm"])
    assert sweep.options == ["hydra/launcher=submitit_slurm", *options]
    found = worker.compose_launcher(sweep.options, Path("it's/here")).config.hydra
    assert found.launcher.partition == "long"
    assert found.launcher.additional_parameters == {"mail-user": "me"}
    assert found.launcher.submitit_folder == "it's/here/.submitit/%j"


def test_a_configuration_given_twice_is_one_job():
    assert [job.config.algo["lam"] for job in command.read(["env=river_swim", "algo.lam=50,5e1,60"]).jobs] == [50, 60]


BAD = {
    "env=river_swim seed=1,x": "job env=river_swim seed=x: seed: 'x' given, a whole number expected",
    "env=river_swim,nope seed=1": "job env=nope seed=1: env: 'nope' given, one of ",
    "env=river_swim seed=interval(0,1)": "seed: values like 1,2 or range(3) expected",
    "env=river_swim algo=glob(r*)": "algo: values like 1,2 or range(3) expected",
    "env=river_swim seed=1,,2": "seed=1,,2: not understood",
    "env=river_swim +seed=1,2": "job env=river_swim +seed=1: +seed=1: given, a plain key=value",
    "env=river_swim resume=x,y": "resume: given with -m, which takes up by itself what was interrupted",
    "--from runs/x seed=1,2": "--from: given with -m, whose runs are described by keys alone",
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
    "env=river_swim sweep=../x": "sweep: '../x' given, a name of letters, digits",
    "env=river_swim hydra/launcher=nope": "hydra/launcher: 'nope' given, one of basic, joblib, ray, ray_aws, submitit_local",
    "env=river_swim hydra/launcher=ray": "hydra/launcher: ray is not installed, pip install 'rcac[ray]' expected",
    "env=river_swim hydra.launcher._target_=os.system": "hydra.launcher._target_: _target_ given, a key that is data",
    "env=river_swim +hydra.launcher.x={_target_:x}": "hydra.launcher.x._target_: _target_ given, a key that is data",
    "env=river_swim hydra.launcher={_target_:x}": "hydra.launcher._target_: _target_ given, a key that is data",
    "env=river_swim hydra.launcher.njobs=2": "hydra.launcher: Could not override 'hydra.launcher.njobs'",
    "env=river_swim hydra.launcher.n_jobs=x": "hydra.launcher: Error merging override hydra.launcher.n_jobs=x",
    "env=river_swim hydra.launcher.n_jobs=1,2": "hydra.launcher.n_jobs=1,2: given, a plain key=value",
    "env=river_swim hydra.sweep.dir=x": "hydra.sweep.dir: given, hydra/launcher or a key of hydra.launcher expected",
    "env=river_swim hydra/sweeper=x": "hydra.sweeper: given, hydra/launcher or a key",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(run, home, text):
    done = run(f"-m {text}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(BAD[text])
    assert [path.name for path in home.iterdir() if path.name != "looks"] == []


def test_what_jobs_share_is_looked_at_once(home):
    texts = ["env=river_swim", "uncertainty=fragile", "uncertainty.number=3,4", "algo=rnpg,rsqp", "seed=range(20)"]
    jobs = command.read(texts).jobs
    assert len(jobs) == 80
    command.check(jobs)
    assert (home / "looks").read_text().split() == ["3", "4"]


def test_a_sweep_in_use(run, home):
    folder = command.read(["env=river_swim", "seed=0,1"]).folder
    folder.jobs.mkdir(parents=True)
    with command.RunFolder(folder.path) as holder:
        holder.lock()
        done = run("-m env=river_swim seed=0,1")
    assert done.code == 2
    assert f"in use by process {os.getpid()}" in done.err


# Jobs


def test_a_job_of_a_launch_that_is_over_is_left_alone(home):
    sweep = command.read(["env=river_swim", "algo.iterations=1"])
    [job] = sweep.jobs
    sweep.folder.jobs.mkdir(parents=True)
    sweep.folder.add(job)
    sweep.folder.begin("later")
    worker.work(str(sweep.folder.path), "earlier", job.key)
    assert sweep.folder.end(job.key) is None
    assert not (sweep.folder.path / "river_swim").exists()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"launch": "x"}', b'{"launch": "x", "outcome": "finished", "more": 1}']
)
def test_a_record_that_is_not_ours_is_none(tmp_path, content):
    folder = SweepFolder(tmp_path)
    (folder.jobs / "key").mkdir(parents=True)
    (folder.jobs / "key" / "end.json").write_bytes(content)
    assert folder.end("key") is None


def test_a_run_that_was_deleted_is_missing_again(tmp_path):
    folder = SweepFolder(tmp_path)
    (folder.jobs / "key").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    end = End("launch", "finished", "run")
    folder.write_end("key", end)
    assert folder.done("key") == End("launch", "finished", "run", None, [])
    (tmp_path / "run" / "summary.json").unlink()
    assert folder.done("key") is None
