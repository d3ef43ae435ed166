"""Several starts of one method, one after the other; the best answer counts.

A `Learner` (see `rcac.learner`) made of solvers. Its state is theirs, under the number of each.
"""

from typing import Any

import numpy as np

from rcac.learner import State, Step
from rcac.tabular.solver import Solver


class MultiStart:
    unit = Solver.unit

    def __init__(self, solvers: list[Solver]) -> None:
        self.solvers = solvers

    @property
    def total(self) -> int:
        return sum(solver.position if solver.finished else solver.total for solver in self.solvers)

    @property
    def position(self) -> int:
        return sum(solver.position for solver in self.solvers)

    @property
    def finished(self) -> bool:
        return all(solver.finished for solver in self.solvers)

    def step(self) -> Step:
        number, solver = next((k, solver) for k, solver in enumerate(self.solvers) if not solver.finished)
        step = solver.step()
        return step._replace(metrics={**step.metrics, **self._best_metrics(), "switch/start": float(number)})

    def _best_metrics(self) -> dict[str, float]:
        """As a solver reports them, but of all starts."""
        best = self.best.best
        assert best is not None
        shown = self.best.problem.signs * best.returns
        return {f"cost/{k}/best" if k else "return/best": float(value) for k, value in enumerate(shown)}

    @property
    def best(self) -> Solver:
        """The one with the best iterate; the first of equals."""
        tried = [solver for solver in self.solvers if solver.best is not None]
        return min(tried or self.solvers, key=lambda solver: solver.best.merit if solver.best else ())

    def policy(self) -> State:
        return self.best.policy()

    def summary(self) -> dict[str, Any]:
        return {**self.best.summary(), "evaluations": self.position, "best_start": self.solvers.index(self.best)}

    def images(self) -> dict[str, np.ndarray]:
        return self.best.images()

    def state(self) -> State:
        states = [solver.state() for solver in self.solvers]
        tensors = {f"{k}/{name}": array for k, state in enumerate(states) for name, array in state.tensors.items()}
        return State(tensors, {"starts": [state.data for state in states]})

    def load(self, state: State) -> None:
        for k, (solver, data) in enumerate(zip(self.solvers, state.data["starts"], strict=True)):
            own = {n.removeprefix(f"{k}/"): a for n, a in state.tensors.items() if n.startswith(f"{k}/")}
            solver.load(State(own, data))
