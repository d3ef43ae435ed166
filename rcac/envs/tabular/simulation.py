"""Sampling states and costs from a model.

    s_0 ~ ρ,      s_{t+1} ~ P(· | s_t, a_t),      costs of step t:  c_n(s_t, a_t)

P is the nominal kernel, or any other of the same shape. Where an environment places things on its states at random
(obstacles, blockages), mark k lies on state s with probability p_k(s), independently of all else, and adds e_kn(s):

    c_n(s, a; marks) = base_n(s, a) + Σ_k mark_k(s) e_kn(s),       base_n(s, a) = c_n(s, a) − Σ_k p_k(s) e_kn(s)

so that the model's costs are the expectation of the simulated ones, whatever the marks are.
Everything here works on one state or on an array of states alike.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP, Rows, compress


class RowSampler:
    """Samples from the rows of a kernel, by one binary search in their running sum.

    Row m occupies the interval between two running sums. A uniform number is stretched onto that interval, so rows
    need no normalisation; rounding moves a probability by about M·1e-16 when there are M rows.
    """

    def __init__(self, rows: Rows) -> None:
        edges = np.concatenate([[0.0], np.cumsum(rows.data)])
        self._edges = edges[1:]
        self._start = edges[rows.indptr[:-1]]  # (M,)
        self._mass = edges[rows.indptr[1:]] - self._start
        self._last = rows.indptr[1:] - 1
        self._indices = rows.indices

    def sample(self, row: Any, uniform: Any) -> Any:
        """The entry of `row` where a uniform number in [0, 1) falls."""
        position = self._edges.searchsorted(self._start[row] + uniform * self._mass[row], side="right")
        return self._indices[np.minimum(position, self._last[row])]


@dataclass(frozen=True, eq=False)
class Marks:
    """K kinds of things that lie on states at random, sampled at every step or at every episode's start."""

    names: tuple[str, ...]  # (K,), as the renderer knows them
    probability: np.ndarray  # (S, K)
    extra: np.ndarray  # (S, K, N+1), what a mark adds to each cost
    each_step: bool

    @classmethod
    def none(cls, problem: RCMDP) -> "Marks":
        states, terms = problem.num_states, problem.num_constraints + 1
        return cls((), np.zeros((states, 0)), np.zeros((states, 0, terms)), False)

    def sample(self, generator: np.random.Generator, *num_envs: int) -> np.ndarray:
        """Bool (*num_envs, S, K)."""
        marked: np.ndarray = generator.random((*num_envs, *self.probability.shape)) < self.probability
        return marked

    def mean(self) -> np.ndarray:
        """What the marks add on average, (S, N+1)."""
        mean: np.ndarray = np.einsum("sk,skn->sn", self.probability, self.extra)
        return mean


class Simulation:
    """A model to sample from."""

    def __init__(self, problem: RCMDP, marks: Marks | None = None, kernel: Any = None) -> None:
        self.problem = problem
        self.marks = Marks.none(problem) if marks is None else marks
        self._base_costs = problem.costs.transpose(1, 2, 0) - self.marks.mean()[:, None]  # (S, A, N+1)
        self._initial = RowSampler(compress(problem.initial[None]))
        self.use_kernel(kernel)

    def use_kernel(self, kernel: Any) -> None:
        """Simulate this kernel, dense (S, A, S) or CSR (S·A, S), from now on; the nominal one if None."""
        model = self.problem if kernel is None else replace(self.problem, kernel=kernel)
        self._next = RowSampler(model.rows)

    def configure(self, options: dict[str, Any] | None) -> None:
        """Apply the options of `reset`: {"kernel": …}. Without it, the kernel stays what it is."""
        options = options or {}
        if unknown := sorted(set(options) - {"kernel"}):
            raise InputError(f"options: {unknown[0]!r} given, only 'kernel' is known")
        if "kernel" in options:
            self.use_kernel(options["kernel"])

    def start(self, uniform: Any) -> Any:
        return self._initial.sample(np.zeros_like(uniform, dtype=np.int64), uniform)

    def move(self, state: Any, action: Any, uniform: Any) -> Any:
        return self._next.sample(state * self.problem.num_actions + action, uniform)

    def costs(self, state: Any, action: Any, marked: np.ndarray) -> np.ndarray:
        """Costs (…, N+1) of a step, given which marks (…, K) lie on its state."""
        costs: np.ndarray = self._base_costs[state, action].copy()
        if self.marks.names:
            costs += (marked[..., None, :] @ self.marks.extra[state])[..., 0, :]
        return costs
