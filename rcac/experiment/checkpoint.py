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

import numpy as np
import safetensors.numpy

from rcac.errors import InputError
from rcac.learner import State

FORMAT = 1
TENSORS, DATA, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
LIMITS = {TENSORS: 1 << 32, DATA: 1 << 26, MANIFEST: 1 << 20}  # bytes; more is refused unread
DIGITS = 1000  # of one number in JSON; a generator's 128-bit state has 39
DEPTH = 64  # of nesting in JSON
DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)
FIELDS = {"format", "position", "identity", "score", "files"}


class Damaged(Exception):
    """A stored file is not what was written."""


class Loaded(NamedTuple):
    state: State
    position: int
    skipped: list[str]  # newer checkpoints that were damaged, one line each


# Bytes on disk


def write_synced(path: Path, content: bytes) -> None:
    """A new file, on the disk when this returns."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(descriptor, "wb", buffering=0) as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not name its file


def sync_directory(path: Path) -> None:
    """Names made or changed in the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_regular(path: Path, *, limit: int, size: int | None = None) -> bytes:
    """Content of a regular file of at most `limit` bytes (exactly `size` if given); links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise Damaged(f"{path.name}: not a regular file")
            if size is not None and info.st_size != size:
                raise Damaged(f"{path.name}: {info.st_size} bytes, {size} expected")
            if info.st_size > limit:
                raise Damaged(f"{path.name}: {info.st_size} bytes, at most {limit} expected")
            content = file.read(info.st_size)
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from error
    if len(content) != info.st_size:
        raise Damaged(f"{path.name}: {len(content)} bytes read, {info.st_size} expected")
    return content


# Arrays and plain data as bytes


def encode_tensors(tensors: dict[str, np.ndarray]) -> bytes:
    checked = {}
    for name, array in tensors.items():
        array = np.asarray(array, order="C")  # safetensors writes raw memory; 0-d stays 0-d
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if name == "__metadata__" or array.dtype.name not in DTYPES:
            raise InputError(f"tensors[{name!r}]: dtype {array.dtype} given, one of {', '.join(DTYPES)} expected")
        checked[name] = array
    return safetensors.numpy.save(checked)


def decode_tensors(content: bytes) -> dict[str, np.ndarray]:
    try:
        return {name: array.copy() for name, array in safetensors.numpy.load(content).items()}
    except Exception as error:  # whatever the parser makes of foreign bytes
        raise Damaged(f"{TENSORS}: not in safetensors format ({error})") from error


def encode_data(data: dict[str, Any]) -> bytes:
    try:
        _check_plain(data, "data", 0)
        return json.dumps(data).encode()
    except ValueError as error:
        raise InputError(str(error)) from error


def decode_data(content: bytes, name: str = DATA) -> dict[str, Any]:
    try:
        data = json.loads(content.decode(), parse_int=_integer, parse_float=_float)
        _check_plain(data, "data", 0)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name}: not the JSON that is written here ({error})") from error
    if not isinstance(data, dict):
        raise Damaged(f"{name}: an object expected")
    return data


def _check_plain(value: Any, where: str, depth: int) -> None:
    """JSON would turn a tuple into a list and a key 1 into "1": a state must not change on its way through a file."""
    if depth > DEPTH:
        raise ValueError(f"{where}: nested deeper than {DEPTH}")
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: key {key!r} given, text expected")
            _check_plain(entry, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _check_plain(entry, f"{where}[{index}]", depth + 1)
    elif isinstance(value, int) and value.bit_length() > 3 * DIGITS:
        raise ValueError(f"{where}: integer of {value.bit_length()} bits, at most {3 * DIGITS} expected")
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise ValueError(f"{where}: {type(value).__name__} given, None, bool, int, float, str, list or dict expected")


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > DIGITS:
        raise ValueError(f"number of {len(text)} digits")
    return float(text)


def state_hash(state: State) -> str:
    """SHA-256 of every array (name, dtype, shape, bytes) and of the plain data, in the order of their names."""
    digest = hashlib.sha256(json.dumps(state.data, sort_keys=True).encode())
    for name in sorted(state.tensors):
        array = np.asarray(state.tensors[name], order="C")
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode() + array.tobytes())
    return digest.hexdigest()


# The manifest


def _seal(body: dict[str, Any]) -> bytes:
    """Canonical text of a manifest with its own digest: one text for one body, so every byte counts."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return json.dumps({**body, "digest": digest}, sort_keys=True, indent=1).encode()


def _manifest(path: Path) -> dict[str, Any]:
    content = read_regular(path / MANIFEST, limit=LIMITS[MANIFEST])
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
    if path.is_symlink():
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
    for left_over in (aside, root / ".removing"):  # by a process that was killed
        _erase(left_over)
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
            if spoiled.exists():
                _remove(spoiled)
            os.rename(path, spoiled)
