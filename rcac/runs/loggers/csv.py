"""`metrics.csv`, which has every number of a run.

    position,wall_time,<metric>,<metric>,...        one row per step, flushed; empty where a step had no such metric

`wall_time` is seconds of training, not counting the time between an interruption and its resumption. A metric seen
for the first time widens the table. A table that was damaged is set aside, and a new one begun: the run goes on.
"""

import contextlib
import csv
import io
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rcac.errors import InputError
from rcac.files import Damaged, read_regular, replace_file
from rcac.runs.loggers import Logger, RunInfo

FILE = "metrics.csv"
KEYS = ["position", "wall_time"]
LIMIT = 1 << 32  # bytes


def read_metrics(path: str | Path) -> dict[str, np.ndarray]:
    """Columns of a `metrics.csv` by name: `position` int64 (rows,), all others float64 (rows,), NaN where empty."""
    header, rows = _read(Path(path))
    columns = {name: np.array([float(row[k] or "nan") for row in rows]) for k, name in enumerate(header)}
    return {**columns, "position": np.array([int(row[0]) for row in rows], dtype=np.int64)}


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = read_regular(path, limit=LIMIT).decode("utf-8")
    except (Damaged, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    whole = text[: text.rfind("\n") + 1]  # a process that was killed may leave half a row
    try:
        header, *rows = list(csv.reader(io.StringIO(whole))) or [[]]
    except csv.Error as error:
        raise InputError(f"{path}: not a table ({error})") from error
    if header[:2] != KEYS:
        raise InputError(f"{path}: header {header[:2]} found, {KEYS} expected")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header) or not re.fullmatch("[0-9]{1,18}", row[0]):
            raise InputError(f"{path}: row {number} is not {len(header)} cells that begin with a position")
        try:
            _ = float(row[1]), [float(cell or "nan") for cell in row]
        except ValueError as error:
            raise InputError(f"{path}: row {number} has a cell that is not a number ({error})") from error
    return header, rows


class Table(Logger):
    """`metrics.csv`, appended to. On resumption, rows after the checkpoint's position go."""

    def __init__(
        self, path: Path, resume_from: int | None = None, warn: Callable[[str], None] = lambda line: None
    ) -> None:
        self._path, self._warn = path, warn
        self._header, self._descriptor = list(KEYS), -1
        elapsed = 0.0
        if resume_from is not None and path.exists():
            self._header, rows = self._read()
            rows = [row for row in rows if int(row[0]) <= resume_from]
            elapsed = float(rows[-1][1]) if rows else 0.0
            self._rewrite(rows)
        self._start = time.monotonic() - elapsed

    @property
    def wall_time(self) -> float:
        return time.monotonic() - self._start

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        if clash := set(KEYS) & metrics.keys():
            raise InputError(f"metric {min(clash)!r}: the name of a column that is always there")
        if self._descriptor < 0 or not metrics.keys() <= {*self._header}:
            header, rows = self._read() if self._descriptor >= 0 else (self._header, [])
            new = [name for name in metrics if name not in header]
            self._header = header + new
            self._rewrite([row + [""] * len(new) for row in rows])
        cells = {"position": str(position), "wall_time": f"{self.wall_time:.3f}"}
        cells |= {name: repr(float(value)) for name, value in metrics.items()}
        self._write((",".join(cells.get(name, "") for name in self._header) + "\n").encode())

    def sync(self) -> None:
        """On the disk now."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> tuple[list[str], list[list[str]]]:
        """What is there; nothing if that is damaged."""
        try:
            return _read(self._path)
        except InputError as error:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._path, aside := self._path.with_name(f"{FILE}.damaged"))
                self._warn(f"{error}; it is {aside.name} now, and a new table begins")
            return list(KEYS), []

    def _rewrite(self, rows: list[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self._header, *rows])
        replace_file(self._path, text.getvalue().encode())
        self.close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            os.ftruncate(self._descriptor, size)  # a full disk leaves whole rows
            raise OSError(error.errno, error.strerror, str(self._path)) from error


def make(run: RunInfo) -> Table:
    return Table(run.folder / FILE, run.resume_from, run.warn)
