"""The one loop of the tabular methods: evaluate, choose the cost to descend, step, remember the best iterate.

A method is a switch and a step. The policy handed out is the best iterate by the method's own ranking, never just the last.

A step that stops by itself (RSQP's) is started again from other policies, at most `STARTS` in all: while its answers are stalled or
infeasible, and once to confirm a stationary one, since stationary policies need not be optimal. The confirmation is left
out where the bounds prove the answer, and in problems so large that an evaluation takes long.
"""

from typing import Any, NamedTuple

import numpy as np

from rcac.errors import InputError
from rcac.evaluation import Evaluation, Warm, evaluate_checked, evaluate_sampled, with_noise
from rcac.evaluation.chains import factorised, one_thread
from rcac.learner import State, Step, Term
from rcac.problem import RCMDP
from rcac.switch import CRPO, Bisection, Complement, Epigraph, Lagrangian, Surrogate, Switch, automatic_slack, violation
from rcac.tabular.bounds import Bounds, robust_value_iteration
from rcac.tabular.rsqp import SequentialPolicy
from rcac.tabular.settings import TabularSettings
from rcac.tabular.steps import Natural, Piece, Projected, TabularStep
from rcac.uncertainty.base import Uncertainty

STARTS = 6  # of a step that stops by itself
PROVEN = 1e-3  # relative gap to the bounds below which an answer needs no confirmation


def first_policy(problem: RCMDP, start: str, seed: int) -> np.ndarray:
    """Uniform, or the softmax of standard normal samples."""
    shape = (problem.num_states, problem.num_actions)
    if start == "uniform":
        return np.full(shape, 1 / shape[1])
    policy: np.ndarray = np.exp(np.random.default_rng(seed).normal(size=shape))
    policy /= policy.sum(axis=1, keepdims=True)
    return policy


def further_policy(problem: RCMDP, uncertainty: Uncertainty, number: int) -> np.ndarray:
    """Where to start again: near the best policy for the objective alone, then at random."""
    if number > 1:
        return first_policy(problem, "random", number)
    alone = robust_value_iteration(problem, uncertainty if uncertainty.rectangular else None, tolerance=1e-6)
    return 0.9 * alone.policy + 0.1 / problem.num_actions


def make_step(settings: TabularSettings, problem: RCMDP, uncertainty: Uncertainty) -> TabularStep:
    if settings.step == "sqp":
        return SequentialPolicy(problem.budgets, settings.stationarity, settings.margin, uncertainty)
    size = settings.step_size
    match settings.step:
        case "softmax":
            return Natural(size / (1 - problem.discount))
        case "natural":
            return Natural(size)
        case _:
            return Projected(size)


def _ranking(problem: RCMDP, settings: TabularSettings) -> Switch:
    """What ranks iterates, and chooses the costs to descend unless that is a level's business."""
    match settings.switch:
        case "surrogate":
            return _surrogate(problem, settings)
        case "lagrangian":  # dual ascent, as primal-dual methods have it
            rate = settings.multiplier_lr
            return Lagrangian(kp=0.0, kd=0.0, initial=0.0, rate=rate, largest=1e6, tolerance=settings.tolerance)
        case _:
            return CRPO(settings.tolerance)


def _surrogate(problem: RCMDP, settings: TabularSettings) -> Switch:
    """A cost stays a cost; of a reward the settings say whether it enters as −r or as r_max − r."""
    complement = settings.objective == "complement" and problem.signs[0] < 0
    reward = float(-problem.costs[0].min()) if complement else 0.0  # r_max
    largest = float(problem.costs[0].max()) + reward
    slack = automatic_slack(largest, problem.discount, settings.lam) if settings.slack is None else settings.slack
    surrogate = Surrogate(settings.lam, slack)
    return Complement(surrogate, 1 / (1 - problem.discount), reward) if complement else surrogate


class Iterate(NamedTuple):
    """A policy worth handing out."""

    merit: tuple[float, ...]
    policy: np.ndarray  # (S, A)
    values: np.ndarray  # (N+1, S)
    returns: np.ndarray  # (N+1,)
    error_bound: float


class Solver:
    """A tabular method at work on one problem: a `Learner` (see `rcac.learner`)."""

    unit = "evaluations"

    def __init__(
        self,
        problem: RCMDP,
        uncertainty: Uncertainty,
        settings: TabularSettings,
        bounds: Bounds,
        policy: np.ndarray,
        seed: tuple[int, ...] = (0,),  # of the evaluation's errors
    ) -> None:
        uncertainty.check(problem)
        self.problem, self.uncertainty, self.settings, self.bounds = problem, uncertainty, settings, bounds
        self.labels = problem.labels()
        self.limits = (problem.signs[1:] * problem.budgets).tolist()  # budgets in people's signs
        self.first, self.seed = policy, seed
        self.current = policy
        self.evaluation: Evaluation | None = None  # of `current`
        self.evaluated_at = 0  # its number
        self.warm: Warm | None = None  # what it was started from
        self.step_part = make_step(settings, problem, uncertainty)
        self.total, self.position = settings.iterations, 0
        self.best: Iterate | None = None
        self.reasons: list[str] = []  # why the step stopped, for each start before the present one
        self.best_start = 0  # which one found `best`
        self.history: dict[str, list[Any]] = {"returns": [], "index": [], "best": []}
        # the epigraph's level b_0 is bisected over [low, high], `levels` phases of equal length
        self.bisection = Bisection(bounds.objective, float(problem.costs[0].max()) / (1 - problem.discount))
        self.phase_best = np.inf
        self.ranking = _ranking(problem, settings)

    @property
    def switch(self) -> Switch:
        return Epigraph(self.bisection.level) if self.settings.switch == "epigraph" else self.ranking

    @property
    def finished(self) -> bool:
        return self.position >= self.total or self.step_part.stop_reason is not None

    @property
    def stop_reason(self) -> str:
        """Of the start that found the answer."""
        last = self.step_part.stop_reason or ("iterations used" if self.position >= self.total else "not finished")
        return [*self.reasons, last][self.best_start]

    def step(self) -> Step:
        with one_thread(self.problem):
            return self._step()

    def _step(self) -> Step:
        before, problem = self.evaluation, self.problem
        if before is None:
            index, accepted = 0, True
            after = self._evaluate(self.current, None, self.position)
        else:
            weights = self.switch.weights(before.returns, problem.budgets)
            index = int(np.argmax(weights))
            proposal = self.step_part.propose(self.current, before, weights)
            after = self._evaluate(proposal, before.warm, self.position)
            accepted = self.step_part.accept(before, after)
        if accepted:
            self.current, self.evaluation, self.evaluated_at = after.policy, after, self.position
            self.warm = None if before is None else before.warm
        self.position += 1
        self._remember(after, index)
        self._bisect(after)
        report = self._report(after, index)
        if self.finished and self.position < self.total and self._starts_again():
            self.reasons.append(self.step_part.stop_reason or "")
            self.current = further_policy(problem, self.uncertainty, len(self.reasons))
            self.evaluation, self.warm = None, None
            self.step_part = make_step(self.settings, problem, self.uncertainty)
        return report

    def _starts_again(self) -> bool:
        assert self.best is not None
        if len(self.reasons) + 1 >= STARTS or self.problem.num_actions == 1:
            return False
        inside = violation(self.best.returns, self.problem.budgets) <= 0
        if not (inside and self.stop_reason == "stationary"):
            return True
        objective, small = float(self.best.returns[0]), factorised(self.problem.num_states, len(self.problem.rows.data))
        return small and not self.reasons and objective - self.bounds.best > PROVEN * abs(objective)

    def _evaluate(self, policy: np.ndarray, warm: Warm | None, number: int) -> Evaluation:
        """The evaluation of this number, with the errors that the settings ask for: they depend on it alone."""
        settings = self.settings
        if self._exact:
            return evaluate_checked(self.problem, policy, self.uncertainty, warm)
        rng = np.random.default_rng((*self.seed, number))
        if settings.samples is None:
            found = evaluate_checked(self.problem, policy, self.uncertainty, warm)
        else:
            found = evaluate_sampled(self.problem, policy, self.uncertainty, settings.samples, rng)
        return with_noise(found, settings.noise, rng)

    @property
    def _exact(self) -> bool:
        return self.settings.samples is None and self.settings.noise == 0

    @property
    def answer(self) -> Iterate:
        """The best iterate; if its evaluation had an error, as an exact one finds it."""
        assert self.best is not None
        if self._exact:
            return self.best
        exact = evaluate_checked(self.problem, self.best.policy, self.uncertainty)
        return self.best._replace(values=exact.values, returns=exact.returns, error_bound=exact.error_bound)

    def _remember(self, evaluation: Evaluation, index: int) -> None:
        merit = self.ranking.merit(evaluation.returns, self.problem.budgets)
        if self.best is None or merit < self.best.merit:
            self.best = Iterate(merit, evaluation.policy, evaluation.values, evaluation.returns, evaluation.error_bound)
            self.best_start = len(self.reasons)
        self.history["returns"].append(evaluation.returns.tolist())
        self.history["index"].append(index)
        self.history["best"].append(self.best.returns.tolist())

    def _bisect(self, evaluation: Evaluation) -> None:
        """At the end of a phase, keep the half of the levels that the phase points to."""
        if self.settings.switch != "epigraph":
            return
        level = Epigraph(self.bisection.level)
        self.phase_best = min(self.phase_best, level.merit(evaluation.returns, self.problem.budgets)[0])
        if self.position % max(1, self.total // self.settings.levels) == 0:
            self.bisection, self.phase_best = self.bisection.halved(self.phase_best <= 0), np.inf
            if self.settings.restart:
                self.current, self.evaluation, self.warm = self.first, None, None

    def _report(self, evaluation: Evaluation, index: int) -> Step:
        assert self.best is not None
        signs, budgets = self.problem.signs, self.problem.budgets
        shown, best, limits = (signs * evaluation.returns).tolist(), (signs * self.best.returns).tolist(), self.limits
        metrics = {"return/worst_case": shown[0], "return/best": best[0]}
        terms = [Term(self.labels[0], shown[0], None, True)]
        for n, met in enumerate((evaluation.returns[1:] <= budgets).tolist(), start=1):
            metrics[f"cost/{n}/worst_case"], metrics[f"cost/{n}/best"] = shown[n], best[n]
            metrics[f"budget/{n}"] = limits[n - 1]
            terms.append(Term(self.labels[n], shown[n], limits[n - 1], met))
        metrics["switch/index"] = float(index)
        metrics["evaluation/rounds"], metrics["evaluation/error_bound"] = (
            float(evaluation.rounds),
            evaluation.error_bound,
        )
        return Step(metrics | self.step_part.metrics() | self.ranking.metrics(), tuple(terms), self.labels[index])

    def summary(self) -> dict[str, Any]:
        """The result in a person's signs; `gap` says how far the objective can be from any policy's best."""
        if self.best is None:
            raise InputError("summary: nothing evaluated yet, at least one step expected")
        answer, signs = self.answer, self.problem.signs
        returns = answer.returns
        excess = violation(returns, self.problem.budgets)
        return {
            "labels": self.labels,
            "returns": (signs * returns).tolist(),
            "budgets": self.limits,
            "feasible": excess <= 0,
            "violation": excess,
            "bounds": self.bounds.shown(signs),
            "gap": float(returns[0] - self.bounds.best),
            "evaluations": self.position,
            "stop_reason": self.stop_reason,
            "error_bound": answer.error_bound,
        }

    def policy(self) -> State:
        answer = self.answer
        tensors = {"policy": answer.policy, "values": answer.values}
        return State(
            tensors, {"kind": "tabular", "states": self.problem.num_states, "actions": self.problem.num_actions}
        )

    def images(self) -> dict[str, np.ndarray]:
        return {}

    def state(self) -> State:
        """Evaluations are not stored but repeated from their warm starts, which gives them back to the bit."""
        switch = self.ranking.state()
        tensors = {"current": self.current, **{f"switch/{name}": array for name, array in switch.tensors.items()}}
        if self.warm is not None:
            tensors["warm/values"] = self.warm.values
            if self.warm.memory is not None:
                tensors["warm/memory"] = self.warm.memory
        for i, piece in enumerate(self.step_part.pieces):
            tensors |= {f"piece/{i}/{name}": array for name, array in piece._asdict().items()}
        if self.best is not None:
            tensors |= {
                "best/policy": self.best.policy,
                "best/values": self.best.values,
                "best/returns": self.best.returns,
            }
        data = {
            "position": self.position,
            "history": self.history,
            "low": self.bisection.low,
            "high": self.bisection.high,
            "phase_best": self.phase_best,
            "evaluated": self.evaluation is not None,
            "evaluated_at": self.evaluated_at,
            "reasons": self.reasons,
            "best_start": self.best_start,
            "step": self.step_part.state(),
            "switch": switch.data,
            "best": None if self.best is None else [list(self.best.merit), self.best.error_bound],
        }
        return State(tensors, data)

    def load(self, state: State) -> None:
        tensors, data = state
        shape = (self.problem.num_states, self.problem.num_actions)
        if tensors["current"].shape != shape:
            raise InputError(f"policy: shape {tensors['current'].shape} in the checkpoint, {shape} in this problem")
        self.current = tensors["current"]
        self.warm = None
        if "warm/values" in tensors:
            self.warm = Warm(tensors["warm/values"], tensors.get("warm/memory"))
        self.position, self.history = data["position"], data["history"]
        self.bisection, self.phase_best = Bisection(data["low"], data["high"]), data["phase_best"]
        self.step_part.load(data["step"])
        own = {name.removeprefix("switch/"): array for name, array in tensors.items() if name.startswith("switch/")}
        self.ranking.load(State(own, data["switch"]))
        self.reasons, self.best_start = data["reasons"], data["best_start"]
        count = sum(name.startswith("piece/") for name in tensors) // len(Piece._fields)
        self.step_part.pieces = [Piece(*(tensors[f"piece/{i}/{f}"] for f in Piece._fields)) for i in range(count)]
        self.evaluated_at = data["evaluated_at"]
        self.evaluation = self._evaluate(self.current, self.warm, self.evaluated_at) if data["evaluated"] else None
        if self.position:
            merit, error_bound = data["best"]
            self.best = Iterate(
                tuple(merit), tensors["best/policy"], tensors["best/values"], tensors["best/returns"], error_bound
            )
