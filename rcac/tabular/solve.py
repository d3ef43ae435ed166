"""`rcac.solve`: a problem, an uncertainty set and a method's name in; a policy with its proofs out."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from os import PathLike
from typing import Any

import numpy as np

from rcac import registry
from rcac.errors import InputError, needs
from rcac.learner import Step
from rcac.problem import RCMDP, Array, check_policy, check_problem
from rcac.registry import algorithm, make_uncertainty
from rcac.switch import violation
from rcac.tabular.bounds import Bounds, bounds
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solver import Solver, first_policy
from rcac.uncertainty.base import Uncertainty


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The best policy found. `returns`, `bounds` and `history` are in cost form; `rewards` and `costs` as they were given.

    Examples
    --------
    >>> import gymnasium as gym, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> solution = rcac.solve(problem)  # for the model as it is: the budget of 42 is spent
    >>> print(f"{solution.rewards[0]:.1f} {solution.costs[0]:.1f}")
    46.6 42.0
    """

    policy: Array  # (S, A)
    returns: Array  # (N+1,) worst case
    feasible: bool  # every worst-case cost is within its budget
    violation: float  # the largest excess over a budget, 0 if none
    bounds: Bounds  # what no policy can beat
    gap: float  # returns[0] minus the tightest bound: the optimum is at most this much better
    history: dict[str, np.ndarray]  # returns (T, N+1), index (T,), best (T, N+1)
    stop_reason: str
    evaluations: int
    problem: RCMDP

    @property
    def rewards(self) -> Array:
        """Worst-case return, and utilities, of what was given as a reward or utility."""
        return -self.returns[self.problem.signs < 0]

    @property
    def costs(self) -> Array:
        """Worst-case costs of what was given as a cost."""
        return self.returns[self.problem.signs > 0]

    def __repr__(self) -> str:
        signs, budgets = self.problem.signs, self.problem.budgets
        shown = [f"{self.problem.labels()[0]} {signs[0] * self.returns[0]:.6g}"]
        for label, sign, value, budget in zip(
            self.problem.labels()[1:], signs[1:], self.returns[1:], budgets, strict=True
        ):
            shown.append(f"{label} {sign * value:.6g} (at {'least' if sign < 0 else 'most'} {sign * budget:.6g})")
        verdict = (
            "feasible"
            if self.feasible
            else f"infeasible by {self.violation:.4g} (that no policy is feasible is not proved)"
        )
        return (
            f"Solution({', '.join(shown)} in the worst case, {verdict}, gap {self.gap:.4g}, "
            f"{self.evaluations} evaluations, {self.stop_reason})"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write one .npz file (plain arrays, no pickle): the policy, its returns, and how they came about.

        Parameters
        ----------
        path : path
            Of the file.
        """
        arrays: dict[str, Any] = dict(
            policy=self.policy,
            returns=self.returns,
            signs=self.problem.signs,
            budgets=self.problem.budgets,
            feasible=self.feasible,
            lower_bound=self.bounds.best,
            stop_reason=self.stop_reason,
            **{f"history_{name}": rows for name, rows in self.history.items()},
        )
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)

    def to_dataframe(self) -> Any:
        """One line for each evaluation, in the signs of the problem: worst case and best so far of every term (pandas)."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_dataframe: pandas is not installed") from None
        labels, signs = self.problem.labels(), self.problem.signs
        columns: dict[str, Any] = {label: signs[k] * self.history["returns"][:, k] for k, label in enumerate(labels)}
        columns |= {f"best {label}": signs[k] * self.history["best"][:, k] for k, label in enumerate(labels)}
        descended = [labels[k] for k in self.history["index"]]
        return pandas.DataFrame(columns | {"descended": descended}, index=np.arange(1, len(descended) + 1))

    def plot(self, path: str | PathLike[str] | None = None) -> Any:
        """A matplotlib figure of every term by evaluation, with its budget.

        Parameters
        ----------
        path : path
            Where it is written, if given.

        Returns
        -------
        matplotlib.figure.Figure
        """
        with needs("plot"):
            from matplotlib.figure import Figure

        labels, signs = self.problem.labels(), self.problem.signs
        figure = Figure(figsize=(4 * len(labels), 3), layout="constrained")
        numbers = np.arange(1, len(self.history["index"]) + 1)
        for k, axes in enumerate(np.atleast_1d(figure.subplots(1, len(labels)))):
            axes.plot(numbers, signs[k] * self.history["returns"][:, k], label="evaluated", linewidth=1, alpha=0.6)
            axes.plot(numbers, signs[k] * self.history["best"][:, k], label="best so far")
            if k:
                name = "floor" if signs[k] < 0 else "budget"
                axes.axhline(signs[k] * self.problem.budgets[k - 1], color="black", linestyle="--", label=name)
            axes.set(xlabel="evaluations", title=f"worst-case {labels[k]}")
            axes.legend()
        if path is not None:
            figure.savefig(path)
        return figure


def make_solvers(
    problem: RCMDP, uncertainty: Uncertainty, settings: TabularSettings, seed: int, policy: Array | None = None
) -> list[Solver]:
    """One solver for each start; raises `Infeasible` when no policy can meet the budgets."""
    uncertainty.check(problem)
    proven = bounds(problem, uncertainty)
    first = first_policy(problem, settings.start, seed) if policy is None else policy
    others = [
        first_policy(problem, "random", int(s))
        for s in np.random.SeedSequence((seed, 1)).generate_state(settings.starts - 1)
    ]
    return [
        Solver(problem, uncertainty, settings, proven, start, (seed, number))
        for number, start in enumerate((first, *others))
    ]


def solve(
    problem: RCMDP,
    method: str = "rsqp",
    uncertainty: Uncertainty | str | None = None,
    seed: int = 0,
    callback: Callable[[Step], Any] | None = None,
    *,
    policy: Array | None = None,  # (S, A) to start from
    preset: str | None = None,  # "paper": its settings of this method; what is given counts first
    **options: Any,  # fields of TabularSettings
) -> Solution:
    """Minimise J_0 subject to J_n ≤ b_n in the worst case.

    Parameters
    ----------
    problem : RCMDP
        What is to be solved.
    method : str
        rsqp, rnpg, rppg, epirc_pgs, robust_crpo, primal_dual, or one that is registered.
    uncertainty : Uncertainty or str
        A set such as `KLBall(0.05)`; or its name, with the parameters of `conf/uncertainty/<name>.yaml`. If not given,
        the model is taken as it is.
    seed : int
        Of random starts.
    callback : function
        Sees every step; stops early by returning False.
    policy : array (S, A)
        To start from.
    preset : str
        "paper": its settings of this method; what is given counts first.
    **options
        Fields of `rcac.tabular.settings.TabularSettings`: `iterations=100`, `starts=4`, `lam=200.0`, …

    Returns
    -------
    Solution
        The best policy found, its worst case, and bounds that no policy can beat.

    Raises
    ------
    Infeasible
        If it is proven that no policy is within the budgets.

    Examples
    --------
    >>> import gymnasium as gym, rcac
    >>> problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    >>> rcac.solve(problem, "rsqp", "kl_ball").feasible
    True
    """
    check_problem(problem)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed: {seed!r} given, a whole number ≥ 0 expected")
    if callback is not None and not callable(callback):
        raise InputError(f"callback: {callback!r} given, a function of a step expected")
    settings = _settings(method, registry.preset(preset, "algo", method) | options)
    policy = None if policy is None else check_policy(problem, policy)
    solvers = make_solvers(problem, make_uncertainty(problem, uncertainty), settings, seed, policy)
    for solver in solvers:
        while not solver.finished:
            if callback is not None and callback(solver.step()) is False:
                break
            if callback is None:
                solver.step()
    best = min(solvers, key=lambda s: s.best.merit if s.best else (np.inf,))
    answer = best.answer
    returns, excess = answer.returns, violation(answer.returns, problem.budgets)
    history = {name: np.array(rows) for name, rows in best.history.items()}
    return Solution(
        answer.policy,
        returns,
        excess <= 0,
        excess,
        best.bounds,
        float(returns[0] - best.bounds.best),
        history,
        best.stop_reason,
        sum(s.position for s in solvers),
        problem,
    )


def _settings(method: str, options: dict[str, Any]) -> TabularSettings:
    known = [f.name for f in fields(TabularSettings)]
    for name in options.keys() - {*known}:
        close = get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)} expected"
        raise InputError(f"{name}: no such option; {hint}")
    return replace(algorithm(method, TabularSettings), **options)
