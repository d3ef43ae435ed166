"""How things are timed, and what a measurement is."""

import resource
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of the table. `ratio` compares with `peer`, measured in the same run."""

    name: str  # the same in every run, and once in a section: measurements are found again by it
    value: float  # ∞: never; not a number: not measured
    unit: str
    ratio: float | None = None
    peer: str = ""
    note: str = ""  # what may differ from run to run (rounds, how a method ended)

    @property
    def more_is_better(self) -> bool:
        return self.unit.endswith("/s") or self.unit in ("×", "return")


def absent(peer: str) -> str:
    """What stands in the place of a peer that cannot be imported."""
    return f"n/a: {peer} is not installed (extra `peers`)"


def slowdown(row: Row, before: float) -> float:
    """How many times worse than `before`: 2 is half as fast, or twice the memory."""
    if row.value == before or min(row.value, before) <= 0:  # ∞ both, or nothing to divide
        return 1.0
    return before / row.value if row.more_is_better else row.value / before


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


def processor_seconds(function: Callable[[], object], repeats: int = 15) -> float:
    """The least processor time of a call, after one that warms up: it hardly depends on who else uses the machine."""
    function()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def peak_memory() -> float:
    """Largest resident size of this process so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
