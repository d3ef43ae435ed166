"""Checkpoints that are whole or not there.

    checkpoints/<position>/   tensors.safetensors   arrays of a `State`
                              state.json            its plain data
                              manifest.json         size and SHA-256 of both, position, identity, score, own digest

A checkpoint is written aside, synced to disk and renamed, so a visible one is complete. Loading trusts nothing: the
file list is exact, nothing is followed or executed, every file is measured before it is read and hashed before it is
parsed, and a damaged checkpoint gives way to the one before. The best feasible one is the one of largest `score`.
"""

import hashlib
import json
import math
import os
import re
import shutil
import stat
from pathlib import Path
from typing import Any, NamedTuple

from rcac.errors import InputError
from rcac.files import Damaged, read_regular, sync_directory, write_synced
from rcac.learner import State
from rcac.runs.encoding import DATA, LIMITS, TENSORS, decode_data, decode_tensors, encode_data, encode_tensors

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_LIMIT = 1 << 20  # bytes
FIELDS = {"format", "position", "identity", "score", "files"}


class Loaded(NamedTuple):
    state: State
    position: int
    skipped: list[str]  # newer checkpoints that were damaged, one line each


# The manifest


def _seal(body: dict[str, Any]) -> bytes:
    """Canonical text of a manifest with its own digest: one text for one body, so every byte counts."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "digest": digest}, sort_keys=True, indent=1).encode()


def _manifest(path: Path) -> dict[str, Any]:
    content = read_regular(path / MANIFEST, limit=MANIFEST_LIMIT)
    body = decode_data(content, MANIFEST)
    body.pop("digest", None)
    if _seal(body) != content:
        raise Damaged(f"{MANIFEST}: does not match its digest")
    if "format" in body and body["format"] != FORMAT:
        raise InputError(f"checkpoint {path}: format {body['format']} found, {FORMAT} expected")
    well_formed = (
        set(body) == FIELDS
        and body["position"] == int(path.name)
        and isinstance(body["identity"], dict)
        and (body["score"] is None or isinstance(body["score"], float))
        and isinstance(body["files"], dict)
        and set(body["files"]) == {TENSORS, DATA}
        and all(
            isinstance(entry, dict)
            and set(entry) == {"size", "sha256"}
            and type(entry["size"]) is int
            and isinstance(entry["sha256"], str)
            for entry in body["files"].values()
        )
    )
    if not well_formed:
        raise Damaged(f"{MANIFEST}: not the manifest of checkpoint {path.name}")
    return body


def _check_identity(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    expected = json.loads(json.dumps(expected))
    differing = [
        f"{key}: {found.get(key)!r} in the checkpoint, {expected.get(key)!r} now"
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]
    if differing:
        raise InputError(f"checkpoint {path} belongs to another run; {'; '.join(differing)}")


# Saving and loading


def _folders(folder: Path) -> list[Path]:
    """Visible checkpoints, oldest first, damaged ones included."""
    root = folder / "checkpoints"
    names = [name for name in os.listdir(root) if re.fullmatch("[0-9]{12,18}", name)] if root.is_dir() else []
    return [root / name for name in sorted(names, key=int)]


def _erase(path: Path) -> None:
    if os.path.lexists(path) and not stat.S_ISDIR(path.lstat().st_mode):  # a link, or whatever else lies there
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _remove(path: Path) -> None:
    """Out of sight in one step, then off the disk: being killed in between leaves no half checkpoint."""
    hidden = path.with_name(".removing")
    os.rename(path, hidden)
    _erase(hidden)


def save(
    folder: Path,
    position: int,
    state: State,
    *,
    identity: dict[str, Any],
    keep: int,
    score: float | None = None,
) -> Path:
    """Store `state`; then drop all but the last `keep` and the best feasible one (largest `score`; None: infeasible).

    The caller holds the run's lock: one process writes a run.
    """
    if keep < 1:
        raise InputError(f"keep: {keep} given, an integer ≥ 1 expected")
    contents = {TENSORS: encode_tensors(state.tensors), DATA: encode_data(state.data)}
    for name, content in contents.items():
        if len(content) > LIMITS[name]:
            raise InputError(f"state: {len(content)} bytes for {name}, at most {LIMITS[name]} expected")
    body = {
        "format": FORMAT,
        "position": position,
        "identity": identity,
        "score": float(score) if score is not None and math.isfinite(score) else None,
        "files": {n: {"size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in contents.items()},
    }
    contents[MANIFEST] = _seal(json.loads(json.dumps(body)))

    root = folder / "checkpoints"
    aside, target = root / ".saving", root / f"{position:012d}"
    root.mkdir(exist_ok=True)
    clear_left_overs(folder)
    try:
        aside.mkdir()
        for name, content in contents.items():
            write_synced(aside / name, content)
        sync_directory(aside)
        if target.is_symlink() or target.exists():
            _remove(target)
        os.rename(aside, target)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    sync_directory(root)

    older, kept = [path for path in _folders(folder) if int(path.name) < position], best(folder)
    for path in older[: max(0, len(older) - keep + 1)]:
        if path != kept:
            _remove(path)
    return target


def clear_left_overs(folder: Path) -> None:
    """What a process that was killed while it saved has left; no checkpoint is among it."""
    for name in (".saving", ".removing"):
        _erase(folder / "checkpoints" / name)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint, by its name alone."""
    return next(reversed(_folders(folder)), None)


def best(folder: Path) -> Path | None:
    """The feasible checkpoint with the largest score, the newest of equals."""
    scored = []
    for path in _folders(folder):
        try:
            score = _manifest(path)["score"]
        except (Damaged, InputError):
            continue
        if score is not None:
            scored.append((score, path))
    return max(scored)[1] if scored else None


def load(path: Path, identity: dict[str, Any]) -> State:
    """The state in one checkpoint; `Damaged` unless it is exactly what was saved."""
    if path.is_symlink() or not path.is_dir():
        raise Damaged("not a folder")
    found = set(os.listdir(path))
    if found != {TENSORS, DATA, MANIFEST}:
        raise Damaged(f"holds {sorted(found)}, {sorted((TENSORS, DATA, MANIFEST))} expected")
    manifest = _manifest(path)
    _check_identity(path, manifest["identity"], identity)
    contents = {}
    for name, entry in manifest["files"].items():
        contents[name] = read_regular(path / name, limit=LIMITS[name], size=entry["size"])
        if hashlib.sha256(contents[name]).hexdigest() != entry["sha256"]:
            raise Damaged(f"{name}: SHA-256 differs from the manifest")
    return State(decode_tensors(contents[TENSORS]), decode_data(contents[DATA]))


def load_latest(folder: Path, identity: dict[str, Any]) -> Loaded:
    """The newest checkpoint that is whole. One that belongs to another run is an error, not a reason to look on."""
    skipped: list[str] = []
    for path in reversed(_folders(folder)):
        try:
            return Loaded(load(path, identity), int(path.name), skipped)
        except Damaged as damage:
            skipped.append(f"checkpoint {path.name} is damaged ({damage})")
    raise InputError(f"run {folder}: no usable checkpoint; {'; '.join(skipped) or 'none was written'}")


def set_aside_after(folder: Path, position: int) -> None:
    """Rename what lies beyond `position` to `<name>.damaged`: the run continues from `position` and will get there."""
    for path in _folders(folder):
        if int(path.name) > position:
            spoiled = path.with_name(f"{path.name}.damaged")
            if os.path.lexists(spoiled):
                _remove(spoiled)
            os.rename(path, spoiled)
