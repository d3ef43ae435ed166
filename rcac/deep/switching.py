"""The switch that a deep method's settings name, through a run."""

import numpy as np

from rcac import registry
from rcac.deep.settings import DeepSettings
from rcac.learner import State
from rcac.switch import CRPO, Bisection, Epigraph, Lagrangian, Surrogate, Switch


class BisectedEpigraph(Switch):
    """The epigraph with its level b_0 bisected between phases of equal length, actor kept.

    A phase descends max{J_0 − b_0, J_n − b_n}. If at its end that maximum is within the tolerance, the level can be
    reached and the upper half is dropped; if not, the lower half. A level that moves cannot rank policies of a whole
    run, so they are ranked as CRPO's: least violation first, then the objective.
    """

    def __init__(self, phases: int, tolerance: float, gamma: float, bisection: Bisection | None) -> None:
        self.phases, self.tolerance, self.gamma, self.bisection = phases, tolerance, gamma, bisection
        self.phase, self.progress = 0, 0.0

    def begin_update(self, progress: float, costs: np.ndarray) -> None:
        self.progress = progress
        if self.bisection is None:
            self.bisection = bracket(float(costs.min()), float(costs.max()), self.gamma)

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        assert self.bisection is not None
        phase = int(self.progress * self.phases)
        if phase > self.phase:
            worst = Epigraph(self.bisection.level).merit(returns, budgets)[0]
            self.bisection, self.phase = self.bisection.halved(worst <= self.tolerance), phase
        return Epigraph(self.bisection.level).weights(returns, budgets)

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return CRPO(self.tolerance).merit(returns, budgets)

    def metrics(self) -> dict[str, float]:
        return {} if self.bisection is None else {"switch/level": self.bisection.level}

    def state(self) -> State:
        levels = None if self.bisection is None else [self.bisection.low, self.bisection.high]
        return State({}, {"phase": self.phase, "bisection": levels})

    def load(self, state: State) -> None:
        levels, self.phase = state.data["bisection"], int(state.data["phase"])
        self.bisection = None if levels is None else Bisection(*levels)


def bracket(lowest_cost: float, highest_cost: float, gamma: float) -> Bisection:
    """Every J_0 of costs in [lowest, highest], episodes that end (and cost nothing more) included."""
    return Bisection(min(0.0, lowest_cost) / (1.0 - gamma), max(0.0, highest_cost) / (1.0 - gamma))


def _epigraph(s: DeepSettings) -> Switch:
    known = s.epigraph_low is not None and s.epigraph_high is not None
    levels = Bisection(s.epigraph_low, s.epigraph_high) if known else None  # type: ignore[arg-type]
    return BisectedEpigraph(s.epigraph_phases, s.tolerance, s.gamma, levels)


OURS = {
    "surrogate": lambda s: Surrogate(s.lam, s.slack),
    "crpo": lambda s: CRPO(s.tolerance),
    "epigraph": _epigraph,
    "lagrangian": lambda s: Lagrangian(
        s.kp, s.ki, s.kd, s.multiplier_init, s.multiplier_lr, s.multiplier_max, s.tolerance
    ),
}


def make_switch(settings: DeepSettings) -> Switch:
    return (OURS.get(settings.switch) or registry.switch(settings.switch))(settings)
