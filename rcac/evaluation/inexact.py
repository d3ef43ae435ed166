"""Evaluations with an error, to see what a method makes of them.

noise      J_k + σ m_k ε_k and Q_k(s,a) + σ m_k ε_k(s,a),   m_k = max |Q_k|, every ε standard normal and drawn anew
samples    the paper's evaluator (its Algorithms 2 and 3): from V = 0, along one trajectory of τ steps in the nominal model,

               Q_k(s,a) ← c_k(s,a) + γ q*ᵀV_k,   V_k(s) ← Σ_a π(a|s) Q_k(s,a)      q* ∝ p(·|s,a) exp(V_k/θ)

           then the exact values under the kernels that are tilted by this V_k. They are those of some kernel, not of the
           worst. (As printed it stops as soon as a step changes no entry, so at the first state of cost 0 already; not here.)
"""

from dataclasses import replace

import numpy as np
from numba import njit

from rcac.errors import InputError
from rcac.evaluation.newton import Evaluation, evaluate_under
from rcac.problem import RCMDP, Array
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.kl import KLPenalty


def with_noise(evaluation: Evaluation, noise: float, rng: np.random.Generator) -> Evaluation:
    """Errors in returns, Q and gradients; values, kernels and occupancies stay as they are."""
    returns, q_values = evaluation.returns, evaluation.q_values
    scale = noise * np.abs(q_values).max(axis=(1, 2))  # (N+1,)
    return replace(
        evaluation,
        returns=returns + scale * rng.normal(size=returns.shape),
        q_values=q_values + scale[:, None, None] * rng.normal(size=q_values.shape),
    )


def evaluate_sampled(
    problem: RCMDP, policy: Array, uncertainty: Uncertainty, samples: int, rng: np.random.Generator
) -> Evaluation:
    if not (isinstance(uncertainty, KLPenalty) and uncertainty.value == "linear"):
        raise InputError(f"samples: {samples} given with {uncertainty!r}, a KL penalty with value=linear expected")
    rows, initial, chance = problem.rows, np.cumsum(problem.initial), rng.random((samples, 2))
    state = min(int(np.searchsorted(initial, rng.random())), problem.num_states - 1)
    table = (problem.costs, policy, rows.indptr, rows.indices, rows.data)
    values = _sampled_values(*table, problem.discount, uncertainty.temperature, state, chance)
    return evaluate_under(problem, policy, uncertainty.sweep(values, rows))


@njit(cache=True)
def _sampled_values(costs, policy, indptr, indices, data, discount, temperature, state, chance):
    count, states, actions = costs.shape
    q_values, values = np.zeros((count, states, actions)), np.zeros((count, states))
    for first, second in chance:
        action = _draw(policy[state], first)
        row = slice(indptr[state * actions + action], indptr[state * actions + action + 1])
        successors, nominal = indices[row], data[row]
        for k in range(count):
            above = values[k][successors]
            weights = nominal * np.exp((above - above.max()) / temperature)
            expected = (weights * above).sum() / weights.sum()
            q_values[k, state, action] = costs[k, state, action] + discount * expected
            values[k, state] = (policy[state] * q_values[k, state]).sum()
        state = successors[_draw(nominal, second)]
    return values


@njit(cache=True)
def _draw(probabilities, chance):
    for number in range(len(probabilities) - 1):
        chance -= probabilities[number]
        if chance < 0:
            return number
    return len(probabilities) - 1
