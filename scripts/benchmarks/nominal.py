"""The least nominal value of one cost, beside QuantEcon's DiscreteDP (extra `peers`): policy iteration, modified policy
iteration and value iteration, all to 1e-6, with the same answers.
"""

from functools import partial
from typing import Any

import numpy as np

from benchmarks import problems
from benchmarks.measure import Row, absent, interleaved, seconds
from rcac.problem import RCMDP
from rcac.tabular.bounds import robust_value_iteration

METHODS = ("policy_iteration", "modified_policy_iteration", "value_iteration")
ERROR = 1e-6


def discrete_dp(problem: RCMDP) -> Any:
    """The same problem in QuantEcon's terms: a reward, dense, or by state-action pair where the kernel is sparse."""
    from quantecon.markov import DiscreteDP

    if not problem.sparse:
        return DiscreteDP(-problem.costs[0], np.array(problem.kernel), problem.discount)
    s, a = np.divmod(np.arange(problem.num_states * problem.num_actions), problem.num_actions)
    return DiscreteDP(-problem.costs[0].ravel(), problem.kernel, problem.discount, s, a)


def measure(sizes: tuple[int, int] = (500, 2000)) -> list[Row]:
    """Dense problems of the first size, sparse ones with 10 successors of the second; 10 actions, γ .99."""
    dense, sparse = sizes
    out = []
    for name, problem in (
        (f"nominal optimum, {dense}×10 dense", problems.dense(dense, 10, 0.99)),
        (f"nominal optimum, {sparse}×10 sparse, 10 successors", problems.sparse(sparse, 10, 10, 0.99)),
    ):
        # ours stops on an error relative to the largest value
        ours = partial(robust_value_iteration, problem, tolerance=ERROR / 100)
        try:
            peer = discrete_dp(problem)
        except ImportError:
            out.append(Row(name, seconds(ours) * 1e3, "ms", None, absent("QuantEcon")))
            continue
        for method in METHODS:
            theirs = partial(peer.solve, method=method, epsilon=ERROR, max_iter=100_000)
            difference = np.abs(ours().values + theirs().v).max()
            assert difference <= 2 * ERROR, f"{name}: QuantEcon's {method} differs by {difference}"
            mine, other = interleaved(ours, theirs, 3)
            words = method.replace("_", " ")
            out.append(Row(f"{name}, beside {words}", mine * 1e3, "ms", other / mine, "QuantEcon's time"))
    return out
