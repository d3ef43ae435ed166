"""Where the numbers go: `metrics.csv`, which has every one of them, and TensorBoard, which shows them.

    position,wall_time,<metric>,<metric>,...        one row per step, flushed; empty where a step had no such metric

`wall_time` is seconds of training, not counting the time between an interruption and its resumption. A metric seen
for the first time widens the table. A board that cannot be written is given up; the table is not.
"""

import contextlib
import csv
import io
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.experiment.board import Board
from rcac.experiment.runfolder import replace_file

FILE = "metrics.csv"
KEYS = ["position", "wall_time"]


def read_metrics(path: str | Path) -> dict[str, np.ndarray]:
    """Columns of a `metrics.csv` by name: `position` int64 (rows,), all others float64 (rows,), NaN where empty."""
    header, rows = _read(Path(path))
    columns = {name: np.array([float(row[k] or "nan") for row in rows]) for k, name in enumerate(header)}
    return {**columns, "position": np.array([int(row[0]) for row in rows], dtype=np.int64)}


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from error
    whole = text[: text.rfind("\n") + 1]  # a process that was killed may leave half a row
    header, *rows = list(csv.reader(io.StringIO(whole))) or [[]]
    if header[:2] != KEYS:
        raise InputError(f"{path}: header {header[:2]} found, {KEYS} expected")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header) or not row[0].isdecimal():
            raise InputError(f"{path}: row {number} is not {len(header)} cells that begin with a position")
    return header, rows


class Table:
    """`metrics.csv`, appended to. On resumption, rows after the checkpoint's position go."""

    def __init__(self, path: Path, resume_from: int | None = None) -> None:
        self._path = path
        self._header, self._descriptor = list(KEYS), -1
        elapsed = 0.0
        if resume_from is not None and path.exists():
            self._header, rows = _read(path)
            rows = [row for row in rows if int(row[0]) <= resume_from]
            elapsed = float(rows[-1][1]) if rows else 0.0
            self._rewrite(rows)
        self._start = time.monotonic() - elapsed

    @property
    def wall_time(self) -> float:
        return time.monotonic() - self._start

    def append(self, position: int, metrics: dict[str, float]) -> None:
        if clash := set(KEYS) & metrics.keys():
            raise InputError(f"metric {min(clash)!r}: the name of a column that is always there")
        new = [name for name in metrics if name not in self._header]
        if new or self._descriptor < 0:
            rows = _read(self._path)[1] if self._descriptor >= 0 else []
            self._header = self._header + new
            self._rewrite([row + [""] * len(new) for row in rows])
        cells = {"position": str(position), "wall_time": f"{self.wall_time:.3f}"}
        cells |= {name: repr(float(value)) for name, value in metrics.items()}
        self._write((",".join(cells.get(name, "") for name in self._header) + "\n").encode())

    def sync(self) -> None:
        """On the disk now, so that no checkpoint is ahead of the table even after a power cut."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rewrite(self, rows: list[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self._header, *rows])
        replace_file(self._path, text.getvalue().encode())
        self.close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            while line:
                line = line[os.write(self._descriptor, line) :]
        except OSError as error:
            os.ftruncate(self._descriptor, size)  # a full disk leaves whole rows
            raise OSError(error.errno, error.strerror, str(self._path)) from error


class MetricsWriter:
    """Both of them. `board_error` says why there is no board, if there is none."""

    def __init__(self, folder: Path, resume_from: int | None = None) -> None:
        self.board_error: str | None = None
        self._board: Board | None = None
        try:
            self._board = Board(folder, resume_from)
        except Exception as error:
            self._give_up(error)
        try:
            self._table = Table(folder / FILE, resume_from)  # last: its clock counts training, not imports
        except BaseException:
            self._on_board(lambda board: board.close())
            raise

    @property
    def wall_time(self) -> float:
        return self._table.wall_time

    def write(self, position: int, metrics: dict[str, float]) -> None:
        self._table.append(position, metrics)
        self._on_board(lambda board: board.scalars(position, metrics))

    def images(self, position: int, images: dict[str, np.ndarray]) -> None:
        self._on_board(lambda board: board.images(position, images))

    def hyperparameters(self, position: int, values: dict[str, Any], final: dict[str, Any]) -> None:
        """`values` may be nested, and so may `final`, of which the finite numbers are shown as `final/…`."""

        def write(board: Board) -> None:
            numbers = {f"final/{key}": float(v) for key, v in flatten(final, "/").items() if _is_number(v)}
            board.hyperparameters(position, flatten(values, "."), numbers)

        self._on_board(write)

    def sync(self) -> None:
        self._table.sync()

    def close(self) -> None:
        self._table.close()
        self._on_board(lambda board: board.close())
        self._board = None

    def __enter__(self) -> "MetricsWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_board(self, action: Callable[[Board], None]) -> None:
        if self._board is None:
            return
        try:
            action(self._board)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """A picture of the numbers is not worth the run."""
        self.board_error = f"TensorBoard is off: {error}"
        board, self._board = self._board, None
        if board is not None:
            with contextlib.suppress(Exception):
                board.close()


def flatten(data: dict[str, Any], separator: str) -> dict[str, Any]:
    """`{"a": {"b": 1}, "c": [2, 3]}` becomes `{"a.b": 1, "c.0": 2, "c.1": 3}`."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, list | tuple):
            value = {str(index): entry for index, entry in enumerate(value)}
        if isinstance(value, dict):
            flat |= {f"{key}{separator}{inner}": entry for inner, entry in flatten(value, separator).items()}
        else:
            flat[str(key)] = value
    return flat


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.number | np.bool_) and bool(np.isfinite(value))
