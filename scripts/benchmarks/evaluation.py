"""Robust evaluation, robust value iteration and the inner problems."""

import time
from functools import partial

import numpy as np
from numba import get_num_threads, njit, set_num_threads

from benchmarks import inner, problems
from benchmarks.measure import Row, peak_memory, processor_seconds, seconds
from rcac.evaluation import evaluate
from rcac.problem import RCMDP
from rcac.tabular.bounds import robust_value_iteration
from rcac.uncertainty import ChiSquare, KLBall, KLPenalty, TotalVariation


def row_wise_iteration(problem: RCMDP, policy: np.ndarray, theta: float, error: float = 1e-8) -> np.ndarray:
    """What one writes first: V ← Σ_a π (c + γ θ log E exp(V/θ)), with a log-sum-exp over every row, until it settles."""
    values, gamma = np.zeros(problem.costs.shape[:2]), problem.discount
    log_kernel = np.log(problem.kernel)
    while True:
        scaled = values[:, None, None, :] / theta + log_kernel
        top = scaled.max(axis=-1, keepdims=True)
        soft = theta * (np.log(np.exp(scaled - top).sum(axis=-1)) + top[..., 0])
        image = np.einsum("sa,ksa->ks", policy, problem.costs + gamma * soft)
        if gamma * np.abs(image - values).max() / (1 - gamma) <= error:
            return image
        values = image


def measure() -> list[Row]:
    rows = []
    small = problems.dense(15, 20, 0.99)
    policy, penalty = problems.random_policy(small), KLPenalty(20.0)
    exact = evaluate(small, policy, penalty, tolerance=1e-10).values
    assert np.abs(row_wise_iteration(small, policy, 20.0) - exact).max() < 1e-7
    ours = seconds(lambda: evaluate(small, policy, penalty, tolerance=1e-10), 51)
    theirs = seconds(lambda: row_wise_iteration(small, policy, 20.0), 3)
    rows.append(
        Row("KL penalty, 15×20, γ .99, error 1e-8", ours * 1e3, "ms", theirs / ours, "row-wise log-sum-exp iteration")
    )

    medium = problems.dense(500, 10, 0.99)
    policy = problems.random_policy(medium)
    matrix, right = np.eye(500) - 0.99 * np.einsum("sa,sat->st", policy, medium.kernel), np.ones(500)
    single = RCMDP(medium.kernel, medium.costs[:1], [], medium.initial, 0.99)
    # timed apart: threads that still spin after a parallel sweep would slow the solve, and flatter the ratio
    solve = seconds(lambda: np.linalg.solve(matrix, right), 51)
    for model, words in ((single, "1 cost"), (medium, "2 costs")):
        evaluation = partial(evaluate, model, policy, KLBall(0.01))
        ball = seconds(evaluation, 15)
        note = f"{evaluation().rounds} rounds"
        rows.append(
            Row(f"KL ball, 500×10 dense, {words}", ball * 1e3, "ms", ball / solve, "times one linear solve (500)", note)
        )

    rows += _rounds(medium, policy)
    first = evaluate(medium, policy, KLBall(0.01))
    moved = policy * np.exp(0.01 * np.random.default_rng(2).normal(size=policy.shape))
    moved /= moved.sum(axis=1, keepdims=True)
    warm = seconds(lambda: evaluate(medium, moved, KLBall(0.01), first))
    again = evaluate(medium, moved, KLBall(0.01), first).rounds
    rows.append(Row("  after a small change of policy", warm * 1e3, "ms", ball / warm, "cold start", f"{again} rounds"))

    control = problems.dense(500, 10, 0.95)
    radius = TotalVariation(0.1)
    fast = seconds(lambda: robust_value_iteration(control, radius, tolerance=1e-6))
    rows.append(
        Row(
            "robust value iteration, 500×10, TV .1, γ .95, 1e-6",
            fast * 1e3,
            "ms",
            _plain(control, radius) / fast,
            "plain iteration, same sweeps",
        )
    )

    large = problems.sparse(10_000, 10, 10, 0.99)
    uniform = np.full((10_000, 10), 0.1)
    for name, uncertainty in (
        ("KL penalty", KLPenalty(20.0)),
        ("KL ball .01", KLBall(0.01)),
        ("TV .05", TotalVariation(0.05)),
    ):
        took = seconds(partial(evaluate, large, uniform, uncertainty), 1)
        rows.append(Row(f"{name}, 10 000×10 sparse, 10 successors", took, "s"))
    rows.append(Row("  peak memory so far", peak_memory(), "GB"))
    return rows + inner.measure()


STREAM = 1 << 25  # numbers in an array that no cache holds: 270 MB


@njit(fastmath=True)
def _read(numbers):
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i]
    return total


def read_bandwidth() -> float:
    """Bytes per second of adding up a large array."""
    numbers = np.ones(STREAM)
    return numbers.nbytes / processor_seconds(partial(_read, numbers))


def _rounds(problem: RCMDP, policy: np.ndarray) -> list[Row]:
    """A round of Newton's method in sweeps, and a sweep beside the reading of as much memory: it cannot do with less than reading
    the kernel's probabilities once, for all costs. Processor time of one thread."""
    threads = get_num_threads()
    set_num_threads(1)
    bandwidth, out = read_bandwidth(), []
    out.append(Row("reading memory", bandwidth / 1e9, "GB/s"))
    for name, uncertainty in (
        ("KL ball .01", KLBall(0.01)),
        ("TV .05", TotalVariation(0.05)),
        ("χ² .1", ChiSquare(0.1)),
    ):
        found = evaluate(problem, policy, uncertainty)
        sweep = processor_seconds(partial(uncertainty.sweep, found.values, problem.rows, found.worst.memory))
        each = processor_seconds(partial(evaluate, problem, policy, uncertainty)) / max(found.rounds, 1)
        words = f"{name}, {problem.num_states}×{problem.num_actions} dense, {len(problem.costs)} costs"
        out.append(
            Row(f"a round, {words}", each * 1e3, "ms", each / sweep, "times one sweep", f"{found.rounds} rounds")
        )
        share = problem.rows.data.nbytes / bandwidth / sweep
        out.append(Row(f"a sweep, {words}", sweep * 1e3, "ms", share, "of the speed of reading the kernel from memory"))
    set_num_threads(threads)
    return out


def _plain(problem: RCMDP, uncertainty: TotalVariation) -> float:
    """Seconds of V ← min_a (c + γ sup qᵀV) to 1e-6."""
    start, values = time.perf_counter(), np.zeros((1, problem.num_states))
    while True:
        worst = uncertainty.sweep(values, problem.rows).value.reshape(problem.num_states, -1)
        image = (problem.costs[0] + problem.discount * worst).min(axis=1)[None]
        if problem.discount * np.abs(image - values).max() / (1 - problem.discount) <= 1e-6:
            return time.perf_counter() - start
        values = image
