"""One folder per run, made once, written by one process at a time.

    <root>/<env>/<algo>/<YYYYmmdd-HHMMSS>-seed<k>[-2, -3, ...]/
        config.yaml  versions.json  metrics.csv  events.out.tfevents.*  checkpoints/  plots/
        policy.safetensors  policy.json  summary.json  run.lock

Every file is replaced as a whole (written aside, synced, renamed), so a reader meets the old one or the new one.
"""

import fcntl
import hashlib
import importlib.metadata
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import time
import weakref
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

import rcac
from rcac.errors import InputError
from rcac.experiment import checkpoint
from rcac.learner import State

LOCK, POLICY, CARD = "run.lock", "policy.safetensors", "policy.json"


def replace_file(path: Path, content: bytes) -> None:
    """`path` holds `content`, on the disk, or keeps what it held."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.unlink(missing_ok=True)  # of an earlier process with this id that was killed
        checkpoint.write_synced(aside, content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    checkpoint.sync_directory(path.parent)


def versions() -> dict[str, str | None]:
    """What this run was made with."""
    found: dict[str, str | None] = {}
    for package in ("rcac", "numpy", "torch", "gymnasium"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "python": platform.python_version(), "platform": platform.platform(), "git": _git_revision()}


def _git_revision() -> str | None:
    """Commit of the tree that holds this package ("-dirty" with changes), None when it is not in one."""
    home = Path(rcac.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(home), *arguments]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a package installed inside a user's tree is not part of it
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def _component(field: str, name: str) -> str:
    """`rcac/RiverSwim-v0` becomes `rcac-RiverSwim-v0`: one name, never a path."""
    safe = re.sub(r"[^\w.+=-]+", "-", name).strip("-.")
    if not safe:
        raise InputError(f"{field}: {name!r} given, a name with letters or digits expected")
    return safe


class RunFolder:
    """Made with `create` (locked, checked for writing) or `open` (`lock` it before writing)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made: list[Path] = []  # folders that `discard` may remove, deepest first
        self._descriptor: int | None = None

    @classmethod
    def create(cls, root: str | Path, env: str, algo: str, seed: int) -> "RunFolder":
        parent = Path(root).resolve() / _component("env", env) / _component("algo", algo)
        stem = f"{datetime.now():%Y%m%d-%H%M%S}-seed{seed}"
        folder = cls(parent)
        try:
            folder._made = [path for path in (parent, *parent.parents) if not path.exists()]
            for number in itertools.count(1):
                parent.mkdir(parents=True, exist_ok=True)
                folder.path = parent / (stem if number == 1 else f"{stem}-{number}")
                try:
                    folder.path.mkdir()
                except FileExistsError:  # somebody else's start in this second
                    continue
                folder._made.insert(0, folder.path)
                break
            folder.lock()
            folder.write_json("versions.json", versions())
            for name in ("checkpoints", "plots"):
                (folder.path / name).mkdir()
        except OSError as error:
            folder.discard()
            raise InputError(f"runs folder {root}: cannot be written ({error.strerror}: {error.filename})") from error
        except BaseException:
            folder.discard()
            raise
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        path = Path(path).resolve()
        if not (path / "versions.json").is_file():
            raise InputError(f"run: {path} given, the folder of a run expected (it has no versions.json)")
        return cls(path)

    def lock(self) -> None:
        """Become the one process that writes here, or say who is. Also finds out whether the folder can be written."""
        if self._descriptor is not None:
            return
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"run {self.path}: cannot be written ({error.strerror}: {error.filename})") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            for left_over in self.path.glob(".*.tmp"):  # by a process that was killed
                left_over.unlink(missing_ok=True)
            replace_file(self.path / ".probe", b"")
            (self.path / ".probe").unlink()
        except BlockingIOError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise InputError(f"run {self.path}: in use by process {holder}, stop that one first") from error
        except OSError as error:
            os.close(descriptor)
            raise InputError(f"run {self.path}: cannot be written ({error.strerror}: {error.filename})") from error
        self._descriptor = descriptor
        _LOCKED.add(self)

    def close(self) -> None:
        """Give up the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

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
            content = checkpoint.read_regular(self.path / name, limit=checkpoint.LIMITS[checkpoint.DATA])
            return checkpoint.decode_data(content, name)
        except checkpoint.Damaged as damage:
            raise InputError(f"run {self.path}: {damage}") from damage

    def write_policy(self, policy: State, about: dict[str, Any]) -> None:
        """`policy.safetensors`, and its card: the policy's data, what it is `about`, versions, hash of the arrays."""
        tensors = checkpoint.encode_tensors(policy.tensors)
        checkpoint.encode_data(policy.data)  # refuses what a card cannot hold
        card = {"card": policy.data, **about, "versions": self.read_json("versions.json")}
        self.write_bytes(POLICY, tensors)
        self.write_json(CARD, {**card, "sha256": hashlib.sha256(tensors).hexdigest()})

    def read_policy(self) -> State:
        """What `write_policy` was given."""
        card = self.read_json(CARD)
        try:
            content = checkpoint.read_regular(self.path / POLICY, limit=checkpoint.LIMITS[checkpoint.TENSORS])
            if hashlib.sha256(content).hexdigest() != card.get("sha256"):
                raise checkpoint.Damaged(f"{POLICY}: SHA-256 differs from {CARD}")
            return State(checkpoint.decode_tensors(content), card["card"])
        except (checkpoint.Damaged, KeyError) as damage:
            raise InputError(f"run {self.path}: {damage}") from damage


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} given, plain data expected")


def _holder(descriptor: int) -> str:
    """Id of the process that has the lock; it writes it down just after taking the lock."""
    for _ in range(20):
        text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        if text.isdecimal() and _alive(int(text)):
            return text
        time.sleep(0.05)
    return "unknown (on another machine?)"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


# A forked worker inherits the lock's descriptor, and would hold the lock after its parent was killed.
_LOCKED: "weakref.WeakSet[RunFolder]" = weakref.WeakSet()


def _release_in_child() -> None:
    for folder in list(_LOCKED):
        folder.close()


os.register_at_fork(after_in_child=_release_in_child)
