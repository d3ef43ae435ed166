"""A Hydra user's habits, each on the command itself."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rcac import cli
from rcac.config import app, help_text
from rcac.config.compose import compose
from rcac.errors import InputError
from rcac.policies.certify_command import CertifySettings
from rcac.policies.scores import EvaluationSettings
from rcac.runs.config import Env

TINY = "env=river_swim algo=rnpg algo.iterations=2 progress=false"


class Ran:
    def __init__(self, text: str, capsys) -> None:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.train(text.split())
        self.code = ending.value.code
        self.out, self.err = capsys.readouterr()

    @property
    def config(self) -> dict:
        """Of the run that was made."""
        return yaml.safe_load((Path(self.out.splitlines()[-1]) / "config.yaml").read_text())


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])  # a command puts the current folder there
    return lambda text: Ran(text, capsys)


# What is shown, and nothing written


def test_cfg_job_is_what_a_run_saves(run, tmp_path):
    """The whole configuration, with the defaults of the environment's, before anything is trained."""
    for text in ("env=river_swim algo=rcac algo.lam=7", "env=cartpole seed=3", "env=garnet uncertainty=chi_square"):
        done = run(f"{text} --cfg job --resolve")
        assert (done.code, done.err) == (0, "")
        shown = yaml.safe_load(done.out)
        assert shown["env"].pop("deep") is None
        assert shown == {**compose(text.split()).plain(), "resume": None}
    assert list(tmp_path.iterdir()) == []


def test_cfg_all_and_a_package_of_it(run, tmp_path):
    done = run(f"{TINY} --cfg all")
    shown = yaml.safe_load(done.out)
    assert shown["hydra"]["runtime"]["choices"]["algo"] == "rnpg"
    assert shown["hydra"]["launcher"]["_target_"].endswith("JoblibLauncher")
    assert shown["algo"]["iterations"] == 2
    assert yaml.safe_load(run(f"{TINY} --cfg job --package uncertainty").out) == {"radius": 0.01, "name": "kl_ball"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("searchpath", "pkg://rcac.conf"),
        ("defaults", "env/river_swim"),
        ("defaults-tree", "algo: rnpg"),
        ("config", "iterations: 2"),
        ("plugins", "JoblibLauncher"),
        ("", "Config search path"),
    ],
)
def test_info(run, tmp_path, topic, words):
    done = run(f"{TINY} --info {topic}")
    assert (done.code, done.err) == (0, "")
    assert words in done.out
    assert list(tmp_path.iterdir()) == []


def test_help(run):
    done = run("--help")
    assert (done.code, done.err) == (0, "")
    for words in ("env=river_swim", "--cfg job", "--config-dir", "hydra/sweeper=optuna", "seed=0"):
        assert words in done.out
    assert "algo.lam=" in run("--help algo=rnpg").out
    assert "--shell-completion" in run("--hydra-help").out


def test_shell_completion(run, monkeypatch):
    assert "COMP_LINE" in run("-sc install=bash").out
    for line, expected in {
        "rcac-train env=r": {"env=river_swim"},
        "rcac-train env=garnet uncertainty=kl": {"uncertainty=kl_ball", "uncertainty=kl_penalty"},
        "rcac-train env=garnet algo.step_s": {"algo.step_size="},
    }.items():
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setenv("COMP_POINT", str(len(line)))
        assert set(run("-sc query=bash").out.split()) == expected


# What is run


def test_the_script_is_a_hydra_application(tmp_path):
    """As a process: one line, the exit code of bad input, and nothing written."""
    script = Path(__file__).parents[2] / "scripts" / "train.py"
    command = [sys.executable, str(script), "env=cartpol"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ}, check=False)
    assert (done.returncode, done.out if hasattr(done, "out") else done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("env: 'cartpol' given, one of ant_velocity, cartpole, ")
    assert done.stderr.endswith("did you mean cartpole?\n")
    assert list(tmp_path.iterdir()) == []


def test_adding_and_deleting(run):
    assert run(f"{TINY} ++seed=3").config["seed"] == 3
    assert run(f"{TINY} ++keep=1 ~env.kwargs.initial").config["env"]["kwargs"].keys().isdisjoint({"initial"})
    done = run(f"{TINY} +seed=3")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_the_folder_of_a_run(run, tmp_path):
    done = run(f"{TINY} hydra.run.dir=here/it_is")
    assert (done.code, done.out) == (0, "here/it_is\n")
    assert {"config.yaml", "summary.json", "checkpoints"} <= {path.name for path in Path("here/it_is").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"here"}
    again = run(f"{TINY} hydra.run.dir=here/it_is")
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "resume" in again.err
    assert run("resume=here/it_is progress=false").out == "here/it_is\n"
    assert run(f"{TINY} hydra.run.dir=there/${{now:%Y}}-${{hydra:job.name}}").out.endswith("-rcac\n")


def test_a_folder_that_is_not_needed_is_not_left(run, tmp_path):
    for text in ("env.kwargs.discount=2", "env.kwargs.budget=5"):
        assert run(f"{TINY} {text} hydra.run.dir=here").code in (2, 3)
    assert list(tmp_path.iterdir()) == []


def test_hydras_own_records_for_who_wants_them(run):
    run(f"{TINY} hydra.run.dir=here/run hydra.output_subdir=../records")
    assert yaml.safe_load(Path("here/records/overrides.yaml").read_text())[0] == "env=river_swim"


def test_a_variable_of_the_environment_for_a_job(run, monkeypatch):
    seen = []
    real = app.training.train
    monkeypatch.setattr(app.training, "train", lambda *a: (seen.append(os.environ["MINE"]), real(*a))[1])
    assert run(f"{TINY} +hydra.job.env_set.MINE=yes").code == 0
    assert seen == ["yes"]


# Files of the user's own


@pytest.fixture
def mine(tmp_path):
    """A folder of configuration: an algorithm that extends one of ours, an environment, and an experiment."""
    files = {
        "algo/mine.yaml": "defaults: [rnpg, _self_]\nlam: 7\n",
        "env/river.yaml": "id: rcac/RiverSwim-v0\ntabular: true\nmax_episode_steps: 50\nkwargs: {discount: 0.9}\n",
        "experiment/small.yaml": "# @package _global_\ndefaults: [{override /algo: rsqp}]\nseed: 5\nalgo: {iterations: 2}\n",
    }
    for name, text in files.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    return tmp_path / "mine"


@pytest.mark.usefixtures("mine")
def test_config_dir(run):
    done = run("--config-dir mine env=garnet algo=mine algo.iterations=2 algo.step_size=3 progress=false")
    assert done.code == 0, done.err
    ours = compose(["env=garnet", "algo=rnpg"]).algo
    assert done.config["algo"] == {**ours, "name": "mine", "lam": 7.0, "iterations": 2, "step_size": 3.0}
    assert run(f"resume={done.out.strip()} progress=false").code == 0
    other = run("--config-dir=mine env=river algo=rsqp algo.iterations=2 progress=false")
    assert (other.code, other.config["env"]["kwargs"]) == (0, {"discount": 0.9}), other.err
    whole = run("--config-dir mine env=garnet +experiment=small progress=false")
    assert (whole.code, whole.config["seed"], whole.config["algo"]["iterations"]) == (0, 5, 2), whole.err


@pytest.mark.usefixtures("mine")
def test_a_sweep_with_files_of_ones_own(run):
    command = app.prepare(app.read(["-m", "--config-dir", "mine", "env=garnet", "algo=glob(m*)", "seed=1,2"]))
    from rcac.config.sweep.command import read

    assert [(job.config.algo["lam"], job.config.seed) for job in read(command).jobs] == [(7.0, 1), (7.0, 2)]


BAD = {
    "algo=mine algo.lamm=3": "algo.lamm: no such key, did you mean algo.lam?",
    "algo=mine algo.lam=x": "algo.lam: 'x' given, a number expected",
    "algo=min": "algo: 'min' given, one of ",
    "+experiment=smal": "experiment: 'smal' given, one of small expected, did you mean small?",
}


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_with_them_is_one_line(run, text):
    done = run(f"--config-dir mine env=garnet {text}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(BAD[text])


EXECUTED = {
    "algo/bad.yaml": "defaults: [rnpg]\n_target_: os.getcwd\n",
    "env/bad.yaml": "id: x\nkwargs: {a: {_target_: os.getcwd}}\n",
    "uncertainty/bad.yaml": "name: ${oc.env:HOME}\n",
    "hydra/launcher/bad.yaml": "_target_: os.getcwd\n",
    "hydra/callbacks/bad.yaml": "mine: {_target_: os.getcwd}\n",
    "hydra/job_logging/bad.yaml": "version: 1\nroot: {}\nhandlers: {a: {(): os.getcwd}}\n",
}


@pytest.mark.parametrize("name", EXECUTED)
def test_nothing_that_a_file_says_is_executed(run, tmp_path, name):
    group = name.removesuffix("/bad.yaml")
    (tmp_path / "mine" / group).mkdir(parents=True)
    (tmp_path / "mine" / name).write_text(EXECUTED[name])
    given = {"env": "env=bad"}.get(group, f"env=garnet {group}=bad")
    done = run(f"--config-dir mine {given} progress=false")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert "_target_" in done.err or "no interpolation" in done.err or "()" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "text",
    [
        "hydra.launcher._target_=os.getcwd",
        "+hydra.callbacks.mine._target_=os.getcwd",
        "+hydra.callbacks.mine={_target_:os.getcwd}",
        "hydra.run.dir=${oc.env:HOME}",
        "hydra/job_logging=none +hydra.job_logging.handlers={a:{_target_:os.getcwd}}",
    ],
)
def test_nor_what_an_override_says(run, tmp_path, text):
    done = run(f"{TINY} {text}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "--experimental-rerun x.pickle": "--experimental-rerun: no such option",
    "--nope": "--nope: no such option",
    "--cfg": "--cfg: nothing given",
    "--cfg jobb": "--cfg: 'jobb' given, one of all, hydra, job expected",
    "--info nope": "--info: 'nope' given, one of all, config, ",
    "--cfg job -m": "-m: given with another of ",
    "--config-dir nowhere": "--config-dir: ",
    "--cfg job --package nope": "package 'nope' not found in config",
    "-sc query=bash": "--shell-completion: query needs 'COMP_LINE', which a shell sets",
    "-sc install=nope": "No completion plugin for 'nope' found",
    "hydra.run.dir=": "hydra.run.dir: '' given, a folder expected",
    "hydra.run.dir=/dev/null/x": "hydra.run.dir: /dev/null/x given, a folder that can be made expected",
    "-m hydra.sweep.dir=": "hydra.sweep.dir: '' given, a folder expected",
}


@pytest.mark.parametrize("text", WRONG)
def test_options_that_are_not_understood(run, tmp_path, text):
    done = run(f"{TINY} {text}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert done.err.startswith(WRONG[text])
    assert list(tmp_path.iterdir()) == []


def test_a_command_line_taken_apart():
    command = app.read(["-m", "env=a,b", "--config-dir=x", "--from", "run", "algo.total_steps=1e6,2.5e3", "runs=a1e5"])
    assert command.options == ["-m", "--config-dir", "x"]
    assert command.overrides == ["env=a,b", "algo.total_steps=1000000,2500", "runs=a1e5"]
    assert (command.source, command.is_sweep) == ("run", True)
    assert command.folders == [str(Path("x").resolve())]
    with pytest.raises(InputError, match="--from: nothing given"):
        app.read(["--from"])


@pytest.mark.parametrize("kind", [EvaluationSettings, CertifySettings, Env])
def test_help_explains_every_key(kind):
    comments = help_text._dataclass_comments(kind)
    assert {field.name for field in dataclasses.fields(kind)} == {key for key, words in comments.items() if words}
