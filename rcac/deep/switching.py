"""The switch that a deep method's settings name, through a run."""

import numpy as np

from rcac import registry
from rcac.deep.settings import DeepSettings
from rcac.learner import State
from rcac.switch import CRPO, Bisection, Complement, Epigraph, Lagrangian, Surrogate, Switch, one_hot


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


class SoftSurrogate(Switch):
    """The surrogate in units of its own, its two sides mixed where they meet.

        t_0 = (J_0/u_0)/λ,      t_n = (J_n − b_n + ξ)/u_n           u_0 = rms(c_0)/(1−γ), what J_0 can be; u_n = |b_n|
        share of the constraints   s = clip(1 + (max_n t_n − t_0)/width, 0, 1)

    Nothing depends on the unit of a cost, and since |J_0| ≤ u_0 the two sides meet within 1/λ of a budget, whatever the
    return. Where a constraint attains the maximum it alone is descended, as the hard switch does; below that, within `width`
    (of a budget), the objective comes in step by step. So the policy can rest where the two hold each other, and that is inside.
    Policies are ranked as CRPO's: least violation first, then the objective.
    """

    def __init__(self, lam: float, slack: float, width: float, gamma: float) -> None:
        self.lam, self.slack, self.width, self.gamma = lam, slack, width, gamma
        self.square, self.count, self.share = 0.0, 0, 0.0  # mean of c_0², and over how many steps
        self.units: np.ndarray | None = None  # u_n (N,)

    def begin_update(self, progress: float, costs: np.ndarray) -> None:
        if len(costs):
            self.count += len(costs)
            self.square += (float(np.mean(costs**2)) - self.square) * len(costs) / self.count

    def terms(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        """t (N+1,)"""
        if self.units is None:
            units = np.where(budgets != 0, np.abs(budgets), np.abs(returns[1:]))  # a budget of zero says nothing
            self.units = np.where(units > 0, units, 1.0)
        size = np.sqrt(self.square) / (1.0 - self.gamma)
        objective = returns[:1] / size / self.lam if size > 0 else np.zeros(1)
        return np.concatenate([objective, (returns[1:] - budgets + self.slack) / self.units])

    def weights(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        terms = self.terms(returns, budgets)
        nearness = np.clip(1.0 + (terms[1:] - terms[0]) / self.width, 0.0, 1.0)
        self.share = float(np.max(nearness, initial=0.0))
        if self.share == 1.0:
            return one_hot(1 + int(np.argmax(terms[1:])), len(terms))
        constraints = self.share * nearness / nearness.sum() if self.share else nearness
        return np.concatenate([[1.0 - self.share], constraints])

    def merit(self, returns: np.ndarray, budgets: np.ndarray) -> tuple[float, ...]:
        return CRPO().merit(returns, budgets)

    def metrics(self) -> dict[str, float]:
        return {"switch/share": self.share}

    def state(self) -> State:
        tensors = {} if self.units is None else {"units": self.units.copy()}
        return State(tensors, {"square": self.square, "count": self.count})

    def load(self, state: State) -> None:
        self.units = state.tensors.get("units")
        self.square, self.count = float(state.data["square"]), int(state.data["count"])


def bracket(lowest_cost: float, highest_cost: float, gamma: float) -> Bisection:
    """Every J_0 of costs in [lowest, highest], episodes that end (and cost nothing more) included."""
    return Bisection(min(0.0, lowest_cost) / (1.0 - gamma), max(0.0, highest_cost) / (1.0 - gamma))


def _epigraph(s: DeepSettings) -> Switch:
    known = s.epigraph_low is not None and s.epigraph_high is not None
    levels = Bisection(s.epigraph_low, s.epigraph_high) if known else None  # type: ignore[arg-type]
    return BisectedEpigraph(s.epigraph_phases, s.tolerance, s.gamma, levels)


OURS = {
    "surrogate": lambda s: Surrogate(s.lam, s.slack),  # the paper's
    "soft_surrogate": lambda s: SoftSurrogate(s.lam, s.slack, s.width, s.gamma),
    "crpo": lambda s: CRPO(s.tolerance),
    "epigraph": _epigraph,
    "lagrangian": lambda s: Lagrangian(
        s.kp, s.ki, s.kd, s.multiplier_init, s.multiplier_lr, s.multiplier_max, s.tolerance
    ),
}


def make_switch(settings: DeepSettings, steps: float) -> Switch:
    """`steps`: what a reward of 1 at every step comes to in J_0."""
    switch: Switch = (OURS.get(settings.switch) or registry.switches.get(settings.switch))(settings)
    if settings.objective == "complement" and settings.switch in ("surrogate", "soft_surrogate"):
        return Complement(switch, steps, settings.reward_bound)
    return switch
