"""The epigraph's level b_0 in a training run: bisected between phases of equal length, the actor kept (warm start).

A phase descends max{J_0 − b_0, J_n − b_n}. If at its end that maximum is within the tolerance, the level can be
reached and the upper half is dropped; if not, the lower half.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bisection:
    low: float  # no policy is believed to have J_0 below this
    high: float  # some feasible policy is believed to have J_0 below this

    @property
    def level(self) -> float:
        return (self.low + self.high) / 2

    def halved(self, reached: bool) -> "Bisection":
        return Bisection(self.low, self.level) if reached else Bisection(self.level, self.high)


def bracket(lowest_cost: float, highest_cost: float, gamma: float) -> Bisection:
    """Every J_0 of costs in [lowest, highest], episodes that end (and cost nothing more) included."""
    return Bisection(min(0.0, lowest_cost) / (1.0 - gamma), max(0.0, highest_cost) / (1.0 - gamma))
