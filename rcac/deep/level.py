"""The switch of each update, and for the epigraph its level b_0: bisected between phases of equal length, actor kept.

A phase descends max{J_0 − b_0, J_n − b_n}. If at its end that maximum is within the tolerance, the level can be
reached and the upper half is dropped; if not, the lower half.
"""

import numpy as np

from rcac.deep.settings import DeepSettings
from rcac.switch import CRPO, Bisection, Epigraph, Surrogate, Switch


def bracket(lowest_cost: float, highest_cost: float, gamma: float) -> Bisection:
    """Every J_0 of costs in [lowest, highest], episodes that end (and cost nothing more) included."""
    return Bisection(min(0.0, lowest_cost) / (1.0 - gamma), max(0.0, highest_cost) / (1.0 - gamma))


class Switching:
    """The settings' switch, through a run."""

    def __init__(self, settings: DeepSettings) -> None:
        self.settings = settings
        self.bisection: Bisection | None = None  # of the epigraph
        low, high = settings.epigraph_low, settings.epigraph_high
        if low is not None and high is not None:
            self.bisection = Bisection(low, high)
        self.phase = 0

    def at(self, progress: float, costs: np.ndarray, estimates: np.ndarray, budgets: np.ndarray) -> Switch:
        """The switch when `progress` (0 to 1) of the run is done, with the objective's costs in the last rollout,
        estimates J (K,) and budgets (N,), discounted."""
        settings = self.settings
        if settings.switch == "surrogate":
            return Surrogate(settings.lam, settings.slack)
        if settings.switch == "crpo":
            return CRPO(settings.tolerance)
        if self.bisection is None:
            self.bisection = bracket(float(costs.min()), float(costs.max()), settings.gamma)
        phase = int(progress * settings.epigraph_phases)
        if phase > self.phase:
            worst = Epigraph(self.bisection.level).merit(estimates, budgets)[0]
            self.bisection = self.bisection.halved(worst <= settings.tolerance)
            self.phase = phase
        return Epigraph(self.bisection.level)

    def ranking(self) -> Switch:
        """What ranks policies of a whole run. A level that moves cannot, so the epigraph's policies are ranked as CRPO's:
        least violation first, then the objective."""
        settings = self.settings
        if settings.switch == "surrogate":
            return Surrogate(settings.lam, settings.slack)
        return CRPO(settings.tolerance)
