"""Every snippet of the README runs; every command in it is one that exists."""

import re
import shlex
from pathlib import Path

import pytest

from rcac import registry

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```console\n(.*?)```", TEXT, flags=re.S)
    for line in block.replace("\\\n", " ").splitlines() if line.strip()
]


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippets_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for names in (registry._algos, registry._sets, registry._costs):  # what a snippet registers ends with it
        monkeypatch.setattr(names, "_registered", {})
    names: dict = {}
    exec(compile(SNIPPETS[number], f"README snippet {number + 1}", "exec"), names)
    assert names  # it defined something


def test_the_snippet_that_plays_a_run_plays_one(tmp_path):
    from rcac.experiment.cli import train

    with pytest.raises(SystemExit) as stopped:
        train(["env=cartpole", "algo=rcac_npg", "algo.total_steps=8192", f"runs={tmp_path}", "progress=false"])
    assert stopped.value.code == 0
    [run] = tmp_path.glob("cartpole/rcac_npg/*")
    [snippet] = [text for text in SNIPPETS if "def play(" in text]
    names: dict = {}
    exec(compile(snippet, "README snippet", "exec"), names)
    assert 1 <= names["play"](str(run)) <= 500


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
    from rcac.experiment.cli import train
    from rcac.experiment.sweep import command as sweeps

    for command in COMMANDS:
        words = shlex.split(command)
        if words[:2] == ["python", "scripts/train.py"] and "…" not in command and "--help" not in words:
            given = [w for w in words[2:] if not w.startswith("env.id=my_package")]
            if given != words[2:]:
                continue  # an environment of the reader's own
            if given[0] == "-m":
                assert len(sweeps.read(given[1:]).jobs) > 1, command
                continue
            with pytest.raises(SystemExit) as stopped:
                train([*given, "--help"])
            assert stopped.value.code == 0, command


def test_sweeps_of_perturbations_in_the_readme_are_known():
    from rcac.experiment import perturbations
    from rcac.experiment.config import compose

    swept = [shlex.split(command) for command in COMMANDS if " sweep." in command]
    assert len(swept) >= 2
    for words in swept:
        [folder] = [word for word in words if word.startswith("run=")]
        known = perturbations.known(compose([f"env={folder.split('/')[-1]}"]))
        for word in words:
            if word.startswith("sweep."):
                name, strengths = perturbations.parse(word)
                assert [known[name](strength).strength for strength in strengths] == strengths
