"""How things are timed, and what a measurement is."""

import resource
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table. `ratio` compares with `peer`, measured in the same run."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    peer: str = ""


def seconds(function: Callable[[], object], repeats: int = 9) -> float:
    """Median wall time of a call, after one that warms up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def interleaved(first: Callable[[], object], second: Callable[[], object], rounds: int = 9) -> tuple[float, float]:
    """Median times of two functions run in turn, so that a slow moment of the machine hits both."""
    first(), second()
    pairs = []
    for _ in range(rounds):
        start = time.perf_counter()
        first()
        middle = time.perf_counter()
        second()
        pairs.append((middle - start, time.perf_counter() - middle))
    one, two = zip(*pairs, strict=True)
    return statistics.median(one), statistics.median(two)


def peak_memory() -> float:
    """Largest resident size of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
