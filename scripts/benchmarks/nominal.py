"""The least nominal value of one cost, beside those who solve nominal problems only (extra `peers`): QuantEcon's policy iteration,
modified policy iteration and value iteration, and the modified policy iterations of mdpsolver and pymdptoolbox, all to 1e-6,
with the same answers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import problems
from benchmarks.measure import Row, absent, interleaved, seconds
from rcac.problem import RCMDP
from rcac.tabular.bounds import robust_value_iteration

ERROR = 1e-6
Solve = Callable[[], np.ndarray]  # least values (S,)


def quantecon(problem: RCMDP, method: str) -> Solve:
    """A reward, dense, or by state-action pair where the kernel is sparse."""
    from quantecon.markov import DiscreteDP

    if not problem.sparse:
        peer = DiscreteDP(-problem.costs[0], np.array(problem.kernel), problem.discount)
    else:
        s, a = np.divmod(np.arange(problem.num_states * problem.num_actions), problem.num_actions)
        peer = DiscreteDP(-problem.costs[0].ravel(), problem.kernel, problem.discount, s, a)
    return lambda: -peer.solve(method=method, epsilon=ERROR, max_iter=100_000).v


def mdpsolver(problem: RCMDP) -> Solve:
    """Lists of what is stored."""
    from mdpsolver import model

    rows, shape = problem.rows, problem.costs.shape[1:]

    def nested(entries: np.ndarray) -> list[list[list[Any]]]:
        cut = iter(part.tolist() for part in np.split(entries, rows.indptr[1:-1]))
        return [[next(cut) for _ in range(shape[1])] for _ in range(shape[0])]

    peer = model()
    given = dict(tranMatProbs=nested(rows.data), tranMatColumns=nested(rows.indices))
    peer.mdp(discount=problem.discount, rewards=(-problem.costs[0]).tolist(), **given)

    def solve() -> np.ndarray:
        peer.solve(algorithm="mpi", tolerance=ERROR)
        return -np.array(peer.getValueVector())

    return solve


def pymdptoolbox(problem: RCMDP) -> Solve:
    """A matrix for each action."""
    from mdptoolbox.mdp import PolicyIterationModified

    matrices = [problem.rows.matrix()[a :: problem.num_actions] for a in range(problem.num_actions)]
    if not problem.sparse:
        matrices = [matrix.toarray() for matrix in matrices]
    peer = PolicyIterationModified(matrices, -problem.costs[0], problem.discount, ERROR)
    start = peer.V

    def solve() -> np.ndarray:
        peer.V, peer.iter = start.copy(), 0
        peer.run()
        return -np.array(peer.V)

    return solve


class Peer(NamedTuple):
    package: str
    method: str
    make: Callable[[RCMDP], Solve]
    size: Callable[[np.ndarray], Any] = lambda difference: np.abs(difference).max()


PEERS = (
    *(
        Peer("QuantEcon", method.replace("_", " "), partial(quantecon, method=method))
        for method in ("policy_iteration", "modified_policy_iteration", "value_iteration")
    ),
    Peer("mdpsolver", "modified policy iteration", mdpsolver),
    Peer("pymdptoolbox", "modified policy iteration", pymdptoolbox, np.ptp),  # it stops on the span
)


def measure(sizes: tuple[int, int] = (500, 5000)) -> list[Row]:
    """Dense problems of the first size, sparse ones with 10 successors of the second; 10 actions, γ .99."""
    dense, sparse = sizes
    out = []
    for name, problem in (
        (f"nominal optimum, {dense}×10 dense", problems.dense(dense, 10, 0.99)),
        (f"nominal optimum, {sparse}×10 sparse, 10 successors", problems.sparse(sparse, 10, 10, 0.99)),
    ):
        # ours stops on an error relative to the largest value
        ours = partial(robust_value_iteration, problem, tolerance=ERROR / 100)
        for package, method, make, size in PEERS:
            words = f"{name}, beside {package}'s {method}"
            try:
                theirs = make(problem)
            except ImportError:
                out.append(Row(words, seconds(ours, 3) * 1e3, "ms", None, absent(package)))
                continue
            difference = size(ours().values - theirs())
            assert difference <= 2 * ERROR, f"{words} differs by {difference}"
            mine, other = interleaved(ours, theirs, 3)
            out.append(Row(words, mine * 1e3, "ms", other / mine, f"{package}'s time"))
    return out
