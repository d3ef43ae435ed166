"""Atomic writes, and checked reads of files that may come from anyone."""

import os
import stat
from pathlib import Path

# Not every system has these flags; a missing one is left out.
NOFOLLOW, NONBLOCK = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)
BINARY = getattr(os, "O_BINARY", 0)


class Damaged(Exception):
    """A stored file is not what was written."""


def write_synced(path: Path, content: bytes) -> None:
    """A new file, on the disk when this returns."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BINARY, 0o666)
        with open(descriptor, "wb", buffering=0) as file:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not name its file


def sync_directory(path: Path) -> None:
    """Names made or changed in the folder survive a power cut (where folders can be synced)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """`path` holds `content`, on the disk, or keeps what it held."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.unlink(missing_ok=True)  # of an earlier process with this id that was killed
        write_synced(aside, content)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def read_regular(path: Path, *, limit: int, size: int | None = None) -> bytes:
    """Content of a regular file of at most `limit` bytes (exactly `size` if given); links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NOFOLLOW | NONBLOCK | BINARY)
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
