"""A run folder may be anyone's: it runs no code but what is installed, and its policy is evaluated as it was trained."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from rcac import cli
from rcac.envs.control.cartpole import NoisyCartPole
from rcac.envs.control.cartpole_vector import NoisyCartPoleVector
from rcac.errors import InputError
from rcac.runs import modules
from rcac.runs import train as training
from rcac.runs.folder import RunFolder

SMALL = (
    "algo.total_steps=256 algo.num_envs=2 algo.rollout_length=16 algo.actor_hidden=[8] algo.critic_hidden=[8] "
    "algo.window=2 env.max_episode_steps=20 progress=false"
)
CODE = "from pathlib import Path\nPath('ran').write_text('')\n"


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def call(name: str, text: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ending:
            getattr(cli, name)(text.split())
        return ending.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def ran(tmp_path):
    """Whether a module of this name ran since it was last asked."""

    def since(name: str) -> bool:
        sys.modules.pop(name, None)
        mark, there = tmp_path / "ran", (tmp_path / "ran").exists()
        mark.unlink(missing_ok=True)
        return there

    return since


def change(folder: Path, old: str, new: str, *names: str) -> None:
    for name in names:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))


def test_a_run_folder_imports_what_is_installed_or_trusted_alone(command, ran, tmp_path):
    (tmp_path / "mine_here.py").write_text(CODE)
    (tmp_path / "evil_here.py").write_text(CODE)
    code, out, err = command("train", f"env=gym env.id=mine_here:rcac/NoisyCartPole-v0 env.budgets=[200] {SMALL}")
    assert code == 0, err
    folder = Path(out.splitlines()[-1]).resolve()
    assert ran("mine_here")
    for name, text in (("train", f"resume={folder}"), ("evaluate", f"run={folder} episodes=2")):
        assert command(name, text)[0] == 0  # trained by the same person, and so trusted
        assert ran("mine_here")

    change(folder, "mine_here", "evil_here", "config.yaml", "policy.json")
    card = json.loads((folder / "policy.json").read_text())
    from rcac.runs.build import env_digest

    card["identity"]["env_hash"] = env_digest(card["hyperparameters"]["env"])  # as a forger would
    (folder / "policy.json").write_text(json.dumps(card))
    asked = {
        f"resume={folder}": "train",
        f"--from {folder}": "train",
        f"--from {folder}/config.yaml": "train",
        f"-m --from {folder} seed=1": "train",
        f"run={folder} episodes=2": "evaluate",
        f"run={tmp_path / 'runs'} episodes=2": "evaluate",
    }
    for text, name in asked.items():
        code, _, err = command(name, text)
        assert code == 2
        assert "env.id=evil_here:rcac/NoisyCartPole-v0 or, once for all, --trust is expected" in err
        assert not ran("evil_here"), text
    code, _, err = command("train", f"resume={folder} env.id=other:rcac/NoisyCartPole-v0")
    assert (code, "evil_here:rcac/NoisyCartPole-v0 expected as in" in err) == (2, True)
    with pytest.raises(InputError, match="--trust is expected"):
        __import__("rcac").train(resume=folder)
    assert not ran("evil_here")

    code, _, err = command("evaluate", f"run={folder} episodes=2 env.id=evil_here:rcac/NoisyCartPole-v0")
    assert (code, ran("evil_here")) == (0, True), err
    assert command("evaluate", f"run={folder} episodes=2")[0] == 2  # that was for once
    assert not ran("evil_here")
    assert command("evaluate", f"run={folder} episodes=2 --trust")[0] == 0
    assert command("evaluate", f"run={folder} episodes=2")[0] == 0
    assert ran("evil_here")


@pytest.mark.parametrize("name", ["${env.cost}", "a b:X", "..x:Y", "os;x:Y", 3, ["x:y"]])
def test_an_id_that_is_none(name, tmp_path):
    with pytest.raises(InputError, match=r"env\.id"):
        modules.admit(name, tmp_path)


@pytest.mark.parametrize("place", ["hydra_plugins", "google", "mpl_toolkits"])
def test_a_part_of_an_installed_package_in_the_current_folder_is_not_installed(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / place).mkdir()
    (tmp_path / place / "evil_part.py").write_text(CODE)
    with pytest.raises(InputError, match="not installed"):
        modules.admit(f"{place}.evil_part:X-v0", tmp_path / "runs")
    assert not (tmp_path / "ran").exists()


def test_a_module_that_breaks_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, code in {"raises": "1/0", "exits": "raise SystemExit(3)", "lacks": "import not_there_at_all"}.items():
        (tmp_path / f"{name}_here.py").write_text(code)
        with pytest.raises(InputError, match=f"importing {name}_here raised"):
            modules.load(f"{name}_here:X-v0")


def test_nothing_of_the_current_folder_runs_unasked(command, ran, tmp_path):
    """Neither a plugin of Hydra's nor what a distribution there says it offers."""
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins" / "evil_plugin.py").write_text(CODE)
    (tmp_path / "evil_offer.py").write_text(CODE + "def cost(*_): return 1.0\n")
    about = tmp_path / "evil_offer-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil_offer\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[rcac.costs]\nevil_cost = evil_offer:cost\n")
    code, _, err = command("train", f"env=gym env.id=CartPole-v1 env.cost=evil_cost env.budgets=[5] {SMALL}")
    assert (code, "evil_cost" in err) == (2, True)
    assert not ran("evil_offer")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from rcac.config.compose import compose
    from rcac.runs import train as training

    home = tmp_path_factory.mktemp("trained")
    overrides = ["env=river_swim", "algo=rnpg", "algo.iterations=3", "progress=false", f"runs={home}", "loggers=[csv]"]
    return training.train(compose(overrides)).folder


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("env", "max_episode_steps", 50),
        ("env", "budgets", [1e308]),
        ("env", "id", "rcac/Garnet-v0"),
        ("env", "kwargs", {"discount": 0.5}),
        ("uncertainty", "radius", 0.0),
        ("algo", "step_size", 0.5),
        (None, "seed", 3),
    ],
)
def test_a_changed_configuration_is_not_evaluated(trained, command, part, key, value):
    path = trained / "config.yaml"
    before = path.read_text()
    config = yaml.safe_load(before)
    (config[part] if part else config)[key] = value
    try:
        path.write_text(yaml.safe_dump(config))
        code, _, err = command("evaluate", f"run={trained} episodes=2")
        assert (code, err.count("\n")) == (2, 1), err
        assert f"{part}.{key}" in err if part else "seed is 3, 0 when the policy was trained" in err
    finally:
        path.write_text(before)
    assert command("evaluate", f"run={trained} episodes=2 env.max_episode_steps=50")[0] == 0  # said aloud


def test_a_card_that_names_no_run_is_not_evaluated(trained, command):
    card = RunFolder(trained).read_json("policy.json")
    path = trained / "policy.json"
    before = path.read_text()
    try:
        for change in ({"identity": None}, {"identity": card["identity"] | {"env_hash": "0"}}, {"hyperparameters": 1}):
            path.write_text(json.dumps(card | change))
            code, _, err = command("evaluate", f"run={trained} episodes=2")
            assert (code, err.count("\n")) == (2, 1), err
    finally:
        path.write_text(before)


# What may go wrong beside the training


QUIET = f"env=cartpole algo=rcac {SMALL}"


@pytest.mark.parametrize("error", [SystemExit(0), RecursionError("deep"), OSError("pipe")], ids=repr)
def test_an_environment_that_fails_when_it_is_closed_costs_nothing_but_a_warning(command, monkeypatch, error):
    def close(self):
        raise error

    monkeypatch.setattr(NoisyCartPole, "close", close)
    monkeypatch.setattr(NoisyCartPoleVector, "close", close)
    code, out, err = command("train", QUIET)
    assert code == 0
    assert err.startswith("warning: ")
    assert err.endswith("when it was closed\n")
    assert command("evaluate", f"run={out.splitlines()[-1]} episodes=2")[0] == 0


def test_a_folder_for_plots_that_is_none_costs_the_plots_alone(command, monkeypatch):
    write = RunFolder.write_policy

    def spoil(folder, *args):
        (folder.path / "plots").rmdir()
        (folder.path / "plots").touch()
        write(folder, *args)

    monkeypatch.setattr(RunFolder, "write_policy", spoil)
    code, out, err = command("train", "env=river_swim algo=rnpg algo.iterations=3 progress=false")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("no plots: ")
    assert (Path(out.splitlines()[-1]) / "policy.npz").is_file()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "out of memory (libtorch_cpu.so"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory ("),
        (MemoryError("8 PiB"), "out of memory 8 PiB"),
        (RuntimeError("std::bad_alloc"), "out of memory (std::bad_alloc)"),
        (OSError(errno.EMFILE, "Too many open files"), "too few file handles"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no space left"),
    ],
)
def test_what_the_machine_lacks_is_one_line(command, monkeypatch, error, line):
    def train(*_):
        raise error

    monkeypatch.setattr(training, "train", train)
    code, _, err = command("train", "env=river_swim progress=false")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(line)


def test_a_current_folder_that_is_removed_meanwhile_is_one_line(command, monkeypatch, tmp_path):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def train(*_):
        (tmp_path / "here").rmdir()
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")  # as imports do

    monkeypatch.setattr(training, "train", train)
    code, _, err = command("train", "env=river_swim progress=false")
    assert (code, err) == (1, "current folder: it has been removed, one that is there expected\n")


def test_folders_that_vanish_or_cannot_be_read_are_passed_over(command, monkeypatch, tmp_path):
    (tmp_path / "all" / "gone").mkdir(parents=True)
    real = os.scandir

    def scandir(path="."):
        if str(path).endswith("gone"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    code, _, err = command("evaluate", "run=all")
    assert (code, err) == (
        2,
        f"run: '{tmp_path / 'all'}' given, the folder of a run or one above finished runs expected\n",
    )
