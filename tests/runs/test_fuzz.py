"""Every file that is read may hold anything: it is used, or refused with an InputError, and nothing else happens."""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rcac.errors import InputError
from rcac.learner import State
from rcac.policies.policy import load_policy
from rcac.policies.unchanged import check_unchanged
from rcac.problem import RCMDP
from rcac.runs import checkpoint
from rcac.runs.arguments import describe_env, describe_run
from rcac.runs.config import load, read_config
from rcac.runs.folder import RunFolder
from rcac.runs.loggers.csv import read_metrics

IDENTITY = {"env": "toy", "seed": 0}
SPACES = {
    "observation": {"type": "Discrete", "n": 2, "start": 0},
    "action": {"type": "Discrete", "n": 3, "start": 0},
}
CHECKPOINT = f"checkpoints/{10:012d}"
SAVED = checkpoint.DATA, checkpoint.TENSORS, checkpoint.MANIFEST


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run folder with everything in it that is read."""
    made = RunFolder.at(tmp_path_factory.mktemp("fuzz") / "run")
    config = describe_run(describe_env("rcac/RiverSwim-v0", None, None, None, {}), "rnpg", None, {}, seed=0)
    made.write_text("config.yaml", config.text())
    policy = State({"policy": np.full((2, 3), 1 / 3)}, {"kind": "tabular", "spaces": SPACES, "labels": ["return"]})
    made.write_policy(policy, {"identity": {"env_hash": "0", "seed": 0}, "hyperparameters": config.plain()})
    made.write_text("metrics.csv", "position,wall_time,return/value\n1,0.1,2.5\n2,0.2,\n")
    problem = RCMDP(np.full((2, 3, 2), 0.5), np.zeros((2, 2, 3)), np.zeros(1), np.array([1.0, 0.0]), 0.9)
    problem.save(made.path / "problem.npz")
    state = State({"x": np.zeros((2, 3)), "n": np.array(4)}, {"position": 10, "rng": {"state": [1, 2.5, None]}})
    checkpoint.save(made.path, 10, state, identity=IDENTITY, keep=1)
    made.close()
    return made.path


def read_card(folder: Path) -> None:
    load_policy(folder)
    check_unchanged(folder, load(folder))


def read_arrays(folder: Path) -> None:
    """As a forger would: the card has the arrays' digest."""
    card = json.loads((folder / "policy.json").read_text())
    card["sha256"] = hashlib.sha256((folder / "policy.safetensors").read_bytes()).hexdigest()
    (folder / "policy.json").write_text(json.dumps(card))
    policy = load_policy(folder)
    policy.batch(np.array([0, 1]))


def read_checkpoint(folder: Path) -> None:
    """Likewise: the manifest fits."""
    path = folder / CHECKPOINT
    with contextlib.suppress(
        OSError, ValueError, LookupError, TypeError, AttributeError
    ):  # the manifest is past mending
        body = json.loads((path / checkpoint.MANIFEST).read_text())
        body.pop("digest", None)
        for name, entry in body["files"].items():
            content = (path / name).read_bytes()
            if {*entry} == {"size", "sha256"}:
                entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (path / checkpoint.MANIFEST).write_bytes(checkpoint._seal(body))
    checkpoint.best(folder)
    checkpoint.load_latest(folder, IDENTITY)


READERS: dict[str, Callable[[Path], Any]] = {
    "config.yaml": read_config,
    "policy.json": read_card,
    "policy.safetensors": read_arrays,
    "versions.json": lambda folder: RunFolder(folder).read_json("versions.json"),
    "metrics.csv": lambda folder: read_metrics(folder / "metrics.csv"),
    "problem.npz": lambda folder: RCMDP.load(folder / "problem.npz"),
    **{f"{CHECKPOINT}/{name}": read_checkpoint for name in SAVED},
}


# What may have become of a file

numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, 1, -1, 10**6, 10**18])
words = st.text(max_size=8) | st.sampled_from(["${a.b}", "${oc.env:HOME}", "_target_", "os:system", "nan", "Discrete"])
plain = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def places(tree: Any, path: tuple = ()) -> Iterator[tuple]:
    yield path
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, entry in entries:
        yield from places(entry, (*path, key))


def changed_tree(draw: Any, tree: Any) -> Any:
    """Some values are others, are gone, or are joined by one."""
    for path in draw(st.lists(st.sampled_from(list(places(tree))), min_size=1, max_size=3, unique=True)):
        if not path:
            return draw(plain)
        inside, last = tree, path[-1]
        try:
            for key in path[:-1]:
                inside = inside[key]
            if draw(st.integers(0, 4)):
                inside[last] = draw(plain)
            elif isinstance(inside, dict):
                inside[draw(words)] = inside.pop(last)
            else:
                del inside[last]
        except (LookupError, TypeError):  # an earlier change took it away
            continue
    return tree


def changed_bytes(draw: Any, content: bytes) -> bytes:
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(content[: draw(st.integers(0, len(content)))] if draw(st.integers(0, 3)) == 0 else content)


@st.composite
def contents(draw: Any, name: str, before: bytes) -> bytes:
    if draw(st.booleans()):
        if name.endswith(".json"):
            return json.dumps(changed_tree(draw, json.loads(before))).encode()
        if name.endswith(".yaml"):
            return yaml.safe_dump(changed_tree(draw, yaml.safe_load(before))).encode()
        if name.endswith(".safetensors"):  # the header
            size = int.from_bytes(before[:8], "little")
            header = json.dumps(changed_tree(draw, json.loads(before[8 : 8 + size]))).encode()
            return len(header).to_bytes(8, "little") + header + before[8 + size :]
        if name.endswith(".npz"):
            with np.load(io.BytesIO(before)) as file:
                arrays = dict(file)
            key = draw(st.sampled_from(sorted(arrays)))
            odd = np.array(draw(numbers | st.text(max_size=3)))
            arrays[key] = draw(
                st.sampled_from([odd, arrays[key][..., None], arrays[key] + np.nan, np.atleast_1d(arrays[key])[:0]])
            )
            np.savez(file := io.BytesIO(), **arrays)
            return file.getvalue()
    return changed_bytes(draw, before)


def fuzz(folder: Path, name: str, count: int) -> None:
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    quiet = settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )

    @quiet
    @given(contents(name, (folder / name).read_bytes()))
    def read(content: bytes) -> None:
        (folder / name).write_bytes(content)
        try:
            READERS[name](folder)
        except InputError as error:
            assert str(error)  # noqa: PT017 (most contents can be read)
        finally:
            for path, before in kept.items():
                path.write_bytes(before)

    READERS[name](folder) if name != "policy.json" else load_policy(folder)  # as it is, it can be read
    try:
        read()
    finally:
        for path, before in kept.items():
            path.write_bytes(before)


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_holds_anything(folder, name):
    fuzz(folder, name, 25)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", READERS)
def test_100_000_files_that_hold_anything(folder, name):
    fuzz(folder, name, 100_000 // len(READERS))
