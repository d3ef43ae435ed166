"""Where the numbers of a run go. A logger is anything with the methods of `Logger`, made by a function of a `RunInfo`:

    csv           metrics.csv, which has every number                            `loggers.csv`
    tensorboard   events in the run's folder                                     `loggers.tensorboard`
    wandb         Weights & Biases, an extra: pip install 'rcac[wandb]'          `loggers.wandb`
    others        @rcac.register_logger("name") on a class whose constructor takes a `RunInfo`

A configuration chooses them: `loggers: [csv, tensorboard]`. One that fails is given up with a line, for a picture of the
numbers is not worth the run; but a table that cannot be written stops it.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rcac import registry
from rcac.learner import Learner, Step
from rcac.runs.loop import Callback, Outcome


class RunInfo(NamedTuple):
    """What a logger may want to know."""

    folder: Path
    labels: Sequence[str] = ()  # of the terms, objective first: return, cost 1, …
    settings: dict[str, Any] = {}  # the configuration, nested  # noqa: RUF012
    resume_from: int | None = None  # position of the checkpoint that the run goes on from
    warn: Callable[[str], None] = lambda line: None  # of what did not stop the run; said in its end


class Logger:
    """Does nothing; a logger does what it has a use for."""

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        """The metrics of one step; names have a namespace, like `cost/1/episode`."""

    def images(self, position: int, images: dict[str, np.ndarray]) -> None:
        """Pictures, uint8 (H, W, 3)."""

    def finish(self, summary: dict[str, Any]) -> None:
        """The run came to its end, with this result."""

    def close(self) -> None:
        """Nothing more will come; may be called in the middle of a run."""


def make_logger(name: str, run: RunInfo) -> Logger:
    if name in registry.OUR_LOGGERS:
        return import_module(f"{__name__}.{name}").make(run)
    return registry.loggers.get(name)(run)


class MemoryLogger(Logger):
    """Keeps everything: `columns()` is what `read_metrics` reads from a file."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float]] = []
        self._start = time.monotonic()

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        self._rows.append({"position": position, "wall_time": time.monotonic() - self._start, **metrics})

    def columns(self) -> dict[str, np.ndarray]:
        """By name: `position` int64 (rows,), all others float64 (rows,), NaN where a step had no such metric."""
        names = dict.fromkeys(["position", "wall_time", *(name for row in self._rows for name in row)])
        found = {name: np.array([row.get(name, np.nan) for row in self._rows], dtype=float) for name in names}
        return {**found, "position": found["position"].astype(np.int64)}


class Loggers(Callback):
    """The loggers of a run, as a callback of the loop. `failed` says which were given up, and why, and what else went wrong, a line each."""

    def __init__(
        self,
        loggers: dict[str, Logger],
        draw: Callable[[], dict[str, np.ndarray]] | None = None,
        images_every: int = 1,
    ) -> None:
        self.failed: list[str] = []
        self._loggers, self._draw, self._images_every = loggers, draw, images_every
        self._start, self._before = time.monotonic(), 0

    @classmethod
    def open(cls, names: Sequence[str], run: RunInfo, draw: Any = None, images_every: int = 1) -> "Loggers":
        """Those that are chosen in a configuration."""
        self = cls({}, draw, images_every)
        run = run._replace(warn=self.failed.append)
        try:
            for name in sorted(names, key=lambda name: name == "csv"):  # last: its clock counts training, not imports
                self._guarded(name, partial(self._add, name, run))
        except BaseException:
            self.close()
            raise
        return self

    def _add(self, name: str, run: RunInfo) -> None:
        self._loggers[name] = make_logger(name, run)

    @property
    def wall_time(self) -> float:
        """Seconds of training, also before a resumption if there is a table."""
        return getattr(self._loggers.get("csv"), "wall_time", time.monotonic() - self._start)

    def on_start(self, learner: Learner) -> None:
        self._before = learner.position

    def on_step(self, learner: Learner, step: Step) -> None:
        self._each(lambda logger: logger.scalars(learner.position, step.metrics))
        if learner.position // self._images_every > self._before // self._images_every:
            self._draw_now(learner)
        self._before = learner.position

    def on_end(self, learner: Learner, outcome: Outcome) -> None:
        if learner.position > 0:
            self._draw_now(learner)
            if learner.finished:
                summary = learner.summary()
                self._each(lambda logger: logger.finish(summary))

    def sync(self) -> None:
        """Every row is on the disk, so that no checkpoint is ahead of the table even after a power cut."""
        if "csv" in self._loggers:
            self._loggers["csv"].sync()  # type: ignore[attr-defined]

    def close(self) -> None:
        self._each(lambda logger: logger.close())
        self._loggers = {}

    def _draw_now(self, learner: Learner) -> None:
        if self._draw is not None and self._loggers.keys() - {"csv"}:
            images = learner.images() | self._draw()
            self._each(lambda logger: logger.images(learner.position, images))

    def _each(self, action: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            self._guarded(name, partial(action, logger))

    def _guarded(self, name: str, action: Callable[[], None]) -> None:
        if name == "csv":
            return action()
        try:
            action()
        except Exception as error:
            self.failed.append(f"logger {name} is off: {' '.join(str(error).split())}")
            lost = self._loggers.pop(name, None)
            with contextlib.suppress(Exception):
                if lost is not None:
                    lost.close()
        return None
