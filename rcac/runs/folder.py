"""One folder per run, made once, written by one process at a time.

    <root>/<env>/<algo>/<YYYYmmdd-HHMMSS>-seed<k>[-2, -3, ...]/
        config.yaml  versions.json  metrics.csv  events.out.tfevents.*  checkpoints/  plots/
        policy.safetensors  policy.json  summary.json  run.lock

Every file is replaced as a whole (written aside, synced, renamed), so a reader meets the old one or the new one.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from rcac.errors import InputError
from rcac.files import Damaged, read_regular, replace_file
from rcac.learner import State
from rcac.runs import encoding
from rcac.runs.versions import versions

LOCK, POLICY, CARD, VERSIONS = "run.lock", "policy.safetensors", "policy.json", "versions.json"


class InUse(InputError):
    """Another process writes here."""


def _component(field: str, name: str) -> str:
    """`rcac/RiverSwim-v0` becomes `rcac-RiverSwim-v0`: one name, never a path."""
    safe = re.sub(r"[^\w.+=-]+", "-", name).strip("-.")
    if not safe:
        raise InputError(f"{field}: {name!r} given, a name with letters or digits expected")
    return safe


class RunFolder:
    """Made with `create` or `at` (locked, checked for writing), or opened with `open` (`lock` it before writing)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []  # folders that `discard` may remove, deepest first
        self._lock: filelock.BaseFileLock | None = None

    @classmethod
    def create(cls, root: str | Path, env: str, algo: str, seed: int) -> "RunFolder":
        """A new folder with the time in its name."""
        parent = Path(root).resolve() / _component("env", env) / _component("algo", algo)
        stem = f"{datetime.now():%Y%m%d-%H%M%S}-seed{seed}"
        return cls._make(str(root), (parent / f"{stem}-{n}" if n > 1 else parent / stem for n in itertools.count(1)))

    @classmethod
    def at(cls, path: str | Path) -> "RunFolder":
        """A new folder of this name, or one that is there and empty."""
        place = Path(path).resolve()
        if place.is_dir() and not os.listdir(place):
            with contextlib.suppress(OSError):
                place.rmdir()
        if place.exists():
            raise InputError(f"folder: {str(path)!r} given, one that is new or empty expected (resume continues a run)")
        return cls._make(str(path), iter([place]))

    @classmethod
    def _make(cls, given: str, places: Iterator[Path]) -> "RunFolder":
        """In the first of these places that is not taken."""
        folder = cls(next(places))
        try:
            parent = folder.path.parent
            folder._made = [path for path in (parent, *parent.parents) if not path.exists()]
            while True:
                parent.mkdir(parents=True, exist_ok=True)
                try:
                    folder.path.mkdir()
                    break
                except FileExistsError:  # another run began in this second
                    folder.path = next(places)
            folder._made.insert(0, folder.path)
            folder.lock()
            folder.write_json(VERSIONS, versions())
            for name in ("checkpoints", "plots"):
                (folder.path / name).mkdir()
        except OSError as error:
            folder.discard()
            raise InputError(f"runs folder {given}: cannot be written ({error.strerror}: {error.filename})") from error
        except BaseException:
            folder.discard()
            raise
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        path = Path(path).resolve()
        if not (path / VERSIONS).is_file():
            raise InputError(f"run: {path} given, the folder of a run expected (it has no {VERSIONS})")
        for name, expected in (("plots", stat.S_IFDIR), ("checkpoints", stat.S_IFDIR), ("metrics.csv", stat.S_IFREG)):
            own = path / name
            if os.path.lexists(own) and stat.S_IFMT(own.lstat().st_mode) != expected:
                kind = "a folder" if expected == stat.S_IFDIR else "a regular file"
                raise InputError(f"run: {own} is not {kind}, which is expected in the folder of a run")
        return cls(path)

    def lock(self) -> None:
        """Become the one process that writes here, or say who is. The system releases the lock of a process that was
        killed, and a forked child does not hold it."""
        if self._lock is not None:
            return
        place = self.path / LOCK
        lock = filelock.FileLock(place, blocking=False)
        try:
            lock.acquire()
            place.write_text(f"{os.getpid()}\n")
            for left_over in self.path.glob(".*.tmp"):  # by a process that was killed
                left_over.unlink(missing_ok=True)
        except filelock.Timeout as error:
            holder = place.read_text(errors="replace").strip() or "unknown"
            raise InUse(f"run {self.path}: in use by process {holder}, stop that one first") from error
        except OSError as error:
            lock.release()
            raise InputError(f"run {self.path}: cannot be written ({error.strerror}: {error.filename})") from error
        self._lock = lock

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def discard(self) -> None:
        """Undo `create`: a start that failed leaves nothing behind. An opened folder is only closed."""
        self.close()
        if self.path in self._made:
            shutil.rmtree(self.path, ignore_errors=True)
        for path in self._made:
            try:
                path.rmdir()
            except FileNotFoundError:
                continue
            except OSError:  # shared with another run by now
                break
        self._made = []

    def write_bytes(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, content)

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, data: Any) -> None:
        self.write_text(name, json.dumps(data, indent=2, ensure_ascii=False, default=_from_numpy) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        try:
            return encoding.decode_data(read_regular(self.path / name, limit=encoding.LIMITS[encoding.DATA]), name)
        except Damaged as damage:
            raise InputError(f"run {self.path}: {damage}") from damage

    def write_policy(self, policy: State, about: dict[str, Any]) -> None:
        """`policy.safetensors`, and its card: the policy's data, what it is `about`, versions, hash of the arrays."""
        for name, array in policy.tensors.items():
            if not np.isfinite(array).all():
                raise FloatingPointError(f"policy: {name} is not finite")
        tensors = encoding.encode_tensors(policy.tensors)
        encoding.encode_data(policy.data)  # refuses what a card cannot hold
        try:
            made_with = self.read_json(VERSIONS)
        except InputError:  # damaged meanwhile: no reason to lose a policy
            made_with = versions()
        card = {"card": policy.data, **about, "versions": made_with}
        self.write_bytes(POLICY, tensors)
        self.write_json(CARD, {**card, "sha256": hashlib.sha256(tensors).hexdigest()})

    def read_policy(self) -> State:
        """What `write_policy` was given."""
        card = self.read_json(CARD)
        try:
            content = read_regular(self.path / POLICY, limit=encoding.LIMITS[encoding.TENSORS])
            if hashlib.sha256(content).hexdigest() != card.get("sha256"):
                raise Damaged(f"{POLICY}: SHA-256 differs from {CARD}")
            return State(encoding.decode_tensors(content), card["card"])
        except (Damaged, KeyError) as damage:
            raise InputError(f"run {self.path}: {damage}") from damage


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} given, plain data expected")
