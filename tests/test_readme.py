"""Every snippet of README and guide runs, and every command that trains or evaluates; the others exist."""

import csv
import json
import os
import re
import runpy
import shlex
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import pytest

from rcac import registry
from rcac.runs import train as training
from rcac.runs.loggers.csv import read_metrics
from rcac.runs.loop import Callback

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TEXT = README + "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("guide.md", "readings.md"))
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", TEXT, flags=re.S)
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with registry.temporary():  # what a snippet registers ends with it
        exec(compile(SNIPPETS[number], f"README snippet {number + 1}", "exec"), names)
    assert names  # it defined something


# Commands for real, on tiny runs


LINES = [
    command
    for command in dict.fromkeys([*COMMANDS, *re.findall(r"`(python scripts/[^`]+)`", TEXT)])
    if re.match(r"python scripts/(train|evaluate)\.py ", command) and " -m " not in command
]
TINY = [
    *(
        "algo.total_steps=1200",
        "algo.num_envs=4",
        "algo.rollout_length=16",
        "algo.window=4",
        "env.max_episode_steps=30",
    ),
    *("algo.actor_hidden=[8]", "algo.critic_hidden=[8]", "algo.actor_batch=32", "algo.critic_batch=32"),
]
FIRST = ["python scripts/train.py env=river_swim algo=rsqp", "python scripts/train.py env=cartpole algo=rcac_npg"]
TABULAR = {"env=river_swim", "env=custom"}


def run_script(words: list[str]) -> int:
    """`python scripts/… …` in this process: its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words[1:])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
    return ended.value.code


class Interrupting(Callback):
    """SIGINT to ourselves after three steps."""

    steps = 0

    def on_step(self, learner, step):
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGINT)


class Place(NamedTuple):
    """A folder where the README's reader has done some of it."""

    path: Path
    finished: str  # a run of rcac_npg on the cart-pole
    stopped: str  # another one, by Ctrl-C


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    path = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        names: dict = {}
        exec(compile(next(text for text in SNIPPETS if "from_rewards" in text), "README snippet", "exec"), names)
        names["problem"].save("my.npz")
        Path("my_costs.py").write_text(next(text for text in SNIPPETS if "register_cost" in text))
        Path("my_package.py").write_text(
            "import gymnasium, rcac\n"
            "gymnasium.register('my/Env-v0', gymnasium.spec('rcac/NoisyCartPole-v0').entry_point)\n"
        )
        river, cartpole = (command.split() for command in FIRST)
        assert run_script(river) == 0
        assert run_script([*cartpole, *TINY]) == 0
        real = training.run
        patch.setattr(training, "run", lambda learner, parts, *rest: real(learner, [*parts, Interrupting()], *rest))
        assert run_script([*cartpole, *TINY, "seed=5"]) == 130
    runs = path.glob("runs/cartpole/rcac_npg/*")
    stopped, finished = sorted(runs, key=lambda run: "seed0" in run.name)
    return Place(path, str(finished.relative_to(path)), str(stopped.relative_to(path)))


@pytest.fixture
def reader(place, monkeypatch):
    """Is there, with nothing registered that the commands do not register."""
    monkeypatch.chdir(place.path)
    monkeypatch.syspath_prepend(str(place.path))
    with registry.temporary():
        yield place
    for name in ("my_costs", "my_package"):
        sys.modules.pop(name, None)
    gym.registry.pop("my/Env-v0", None)


def filled(command: str, place: Place) -> list[str]:
    """With runs for placeholders, and small numbers."""
    words = shlex.split(command)
    run = place.stopped if "resume=" in command else place.finished
    words = [re.sub(r"runs/cartpole/rcac_npg/(…|\.\.\.)", run, word) for word in words]
    if "certify=" in command:
        return [*words, "contexts=4", "episodes=1", "search_episodes=8", "final_episodes=8", "num_envs=8"]
    if words[1].endswith("evaluate.py"):
        words = [word for word in words if not word.startswith("episodes=")] + ["episodes=2", "kernels=2"]
        drawn = all(map(find_spec, ("imageio", "pygame")))
        return [word for word in words if drawn or word != "record=true"]
    own = "resume=" in command or "--from" in words or "--help" in words
    return words if own or TABULAR & {*words} else [*words, *TINY]


@pytest.mark.parametrize("command", [line for line in LINES if line not in FIRST and "env.cost=" not in line])
def test_commands_run(command, reader):
    words = filled(command, reader)
    assert not any("…" in word for word in words)
    before = {path.parent for path in reader.path.rglob("policy.json")}
    assert run_script(words) == 0, words
    made = {path.parent for path in reader.path.rglob("policy.json")} - before
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if "certify" in given:  # no episode of 30 steps can break the budget
        certificate = json.loads((reader.path / given["run"] / "certificate.json").read_text())
        assert certificate["certified"] is True
        assert certificate["confidence"] == float(given.get("confidence", 0.95))
    elif words[1].endswith("evaluate.py"):
        with (reader.path / given["run"] / "evaluation.csv").open() as file:
            rows = list(csv.DictReader(file))
        swept = {key: values.split(",") for key, values in given.items() if key.startswith("sweep.")}
        found = {(f"sweep.{row['perturbation']}", float(row["strength"])) for row in rows if row["strength"]}
        assert found == {(key, float(value)) for key, values in swept.items() for value in values}
    elif "resume" in given:
        assert json.loads((reader.path / given["resume"] / "summary.json").read_text())["run"]["finished"]
    elif "--help" not in words:
        [run] = made
        assert run.name.endswith(f"seed{given.get('seed', 0)}")


def test_the_commands_that_are_run_are_the_interesting_ones():
    parts = [
        "certify=strict",
        "resume=",
        "--from ",
        "run=runs/cartpole/",
        "sweep.noise=",
        "sweep.radius=",
        "env=custom env.path=",
    ]
    for part in (*FIRST, *parts):
        assert any(part in line for line in LINES), part


def test_the_snippet_that_plays_a_run_plays_one(reader):
    [snippet] = [text for text in SNIPPETS if "def play(" in text]
    names: dict = {}
    exec(compile(snippet, "README snippet", "exec"), names)
    assert 1 <= names["play"](reader.finished) <= 500


def test_the_cost_of_the_snippet_is_what_a_training_pays(reader):
    [command] = [line for line in LINES if "env.cost=speeding" in line]
    assert run_script([*shlex.split(command), *TINY, "runs=paid"]) == 0
    speeding = registry.costs.get("speeding")
    assert speeding(None, 0, np.array([0.0, -2.5, 0.0, 0.0]), 1.0, {}) == 1.5
    assert speeding(None, 0, np.array([9.0, 0.5, 9.0, 9.0]), 1.0, {}) == 0.0
    [table] = reader.path.glob("paid/**/metrics.csv")
    costs = read_metrics(table)["cost/1/episode"]
    assert np.nanmax(costs) > 0  # a pole that falls is fast


# Words


def test_the_readme_is_short():
    assert len(README.split()) <= 1500


PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]

COMING = {"reproduction.md"}  # the report of make reproduce ARGS=full, when it is made


def anchors(page: Path) -> set[str]:
    """Of its headings, as they are made from them."""
    headings = re.findall(r"^(?:# )?#+ (.*)$", page.read_text("utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere():
    assert len(PAGES) > 20
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.S)
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
            target = page.parent / link if link else page
            if target.name in COMING and not target.exists():
                continue
            assert target.exists(), (page.name, link)
            assert not anchor or anchor in anchors(target), (page.name, link, anchor)


def test_make_targets_and_scripts_in_the_readme_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert COMMANDS
    for command in COMMANDS:
        first, *rest = shlex.split(command)
        if first == "make":
            assert rest[0] in targets, command
        elif first == "python":
            assert (ROOT / rest[0]).is_file(), command
        else:
            assert first == "pip", command


def test_training_commands_in_the_readme_compose():
    """Their overrides are accepted by the configuration (placeholders filled in)."""
    from rcac.cli import train
    from rcac.config import app
    from rcac.config.sweep import command as sweeps

    for command in COMMANDS:
        words = shlex.split(command)
        if words[:2] == ["python", "scripts/train.py"] and "…" not in command and "--help" not in words:
            given = [w for w in words[2:] if not w.startswith("env.id=my_package")]
            if given != words[2:]:
                continue  # an environment of the reader's own
            if given[0] == "-m":
                assert len(sweeps.read(app.prepare(app.read(given))).jobs) > 1, command
                continue
            with pytest.raises(SystemExit) as stopped:
                train([*given, "--help"])
            assert stopped.value.code == 0, command


def test_sweeps_of_perturbations_in_the_readme_are_known():
    from rcac.config.compose import compose
    from rcac.policies import perturbations

    swept = [shlex.split(command) for command in COMMANDS if " sweep." in command]
    assert len(swept) >= 2
    for words in swept:
        [folder] = [word for word in words if word.startswith("run=")]
        known = perturbations.known(compose([f"env={folder.split('/')[-1]}"]))
        for word in words:
            if word.startswith("sweep."):
                name, strengths = perturbations.parse(word)
                assert [known[name](strength).strength for strength in strengths] == strengths
