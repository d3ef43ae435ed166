"""Robust targets and advantages against numbers worked out by hand, brute force, and the core's robust evaluation."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.deep.critics import Critics
from rcac.deep.networks import MLP
from rcac.deep.returns import kappa_of, robust_gae, robust_targets


def column(*numbers):
    """One cost, T steps, one copy: (1, T, 1)."""
    return np.array(numbers, dtype=float)[None, :, None]


def flags(*numbers):
    return np.array(numbers, dtype=bool)[:, None]


def test_by_hand_with_a_truncation_and_a_termination():
    # γ = .5, λ = .5, ρ‖w‖ = 1. Step 1 is truncated (true next value 8), step 3 terminates.
    returns = robust_gae(
        costs=column(1, 2, 3, 4, 5),
        values=column(10, 20, 30, 40, 50),
        next_values=column(20, 8, 40, 999, 6),
        terminated=flags(0, 0, 0, 1, 0),
        truncated=flags(0, 1, 0, 0, 0),
        margins=np.array([1.0]),
        gamma=0.5,
        gae_lambda=0.5,
        critic_lambda=0.5,
    )
    errors = [1 + 0.5 * 21 - 10, 2 + 0.5 * 9 - 20, 3 + 0.5 * 41 - 30, 4 - 40, 5 + 0.5 * 7 - 50]
    assert errors == [1.5, -13.5, -6.5, -36.0, -41.5]
    np.testing.assert_allclose(returns.errors.ravel(), errors, atol=1e-6)
    # Nothing passes the end of an episode: steps 1 and 3 stand alone.
    advantages = [1.5 + 0.25 * -13.5, -13.5, -6.5 + 0.25 * -36.0, -36.0, -41.5]
    np.testing.assert_allclose(returns.advantages.ravel(), advantages, atol=1e-6)
    np.testing.assert_allclose(returns.targets.ravel(), [8.125, 6.5, 14.5, 4.0, 8.5], atol=1e-6)


def test_the_reset_row_reaches_nothing():
    shape = {"terminated": flags(0, 1, 0, 0), "truncated": flags(0, 0, 0, 0), "margins": np.zeros(1)}
    results = []
    for junk in (0.0, 1e6):
        costs, values = column(1, 1, junk, 1), column(0, 0, junk, 0)
        returns = robust_gae(
            costs, values, column(0, 0, junk, 2), gamma=0.9, gae_lambda=0.8, critic_lambda=0.8, **shape
        )
        results.append(np.delete(returns.advantages.ravel(), 2))
    np.testing.assert_array_equal(*results)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.999), st.floats(0, 1), st.floats(0, 1))
def test_against_the_sum_it_stands_for(seed, gamma, gae_lambda, critic_lambda):
    """Σ_k (γλ)^k δ(t+k), up to and including the episode's last step, for every cost and copy."""
    rng = np.random.default_rng(seed)
    costs, values, next_values = rng.normal(size=(3, 2, 7, 3))
    terminated, truncated = rng.random((2, 7, 3)) < 0.2
    margins = rng.random(2)
    returns = robust_gae(costs, values, next_values, terminated, truncated, margins, gamma, gae_lambda, critic_lambda)
    for n, t, i in np.ndindex(2, 7, 3):
        sums, factors = np.zeros(2), np.ones(2)  # with the advantages' λ and the critics'
        for k in range(t, 7):
            bootstrap = 0.0 if terminated[k, i] else gamma * (next_values[n, k, i] + margins[n])
            sums += factors * (costs[n, k, i] + bootstrap - values[n, k, i])
            factors *= gamma * np.array([gae_lambda, critic_lambda])
            if terminated[k, i] or truncated[k, i]:
                break
        assert returns.advantages[n, t, i] == pytest.approx(sums[0], abs=1e-9)
        assert returns.targets[n, t, i] == pytest.approx(sums[1] + values[n, t, i], abs=1e-9)


def test_the_margin_raises_a_cost_by_gamma_times_itself():
    zero = np.zeros((2, 1, 1))
    open_end = np.zeros((1, 1), dtype=bool)
    plain = robust_targets(zero, zero, open_end, np.zeros(2), 0.9)
    robust = robust_targets(zero, zero, open_end, np.array([2.0, 3.0]), 0.9)
    np.testing.assert_allclose((robust - plain).ravel(), [1.8, 2.7])


def test_budgets_of_a_constant_cost():
    gamma, horizon = 0.9, 7
    assert kappa_of(gamma, horizon) * horizon == pytest.approx(sum(gamma**t for t in range(horizon)))
    np.testing.assert_allclose(200 * kappa_of(0.99, 500), 200 * (1 - 0.99**500) / 5)


def test_norms_leave_out_the_last_bias():
    body = MLP(2, [3])
    critics = Critics(None, [body], np.random.default_rng(0))
    for tensor, values in zip(
        critics.parameters(), ([[1, 2], [3, 4], [5, 6]], [7, 8, 9], [[10, 11, 12]], [13]), strict=True
    ):
        tensor.data = torch.tensor(values, dtype=torch.float32)
    critics.scales[:] = 2.0
    last = np.sqrt(4 * (100 + 121 + 144))
    assert critics.norms("last_layer") == pytest.approx([last])
    assert critics.norms("all") == pytest.approx([np.sqrt(last**2 + np.sum(np.arange(10) ** 2))])


def norms(weights):
    """Of critics without hidden layers: inputs are the features but the first, whose weight (N+1, d) is the bias."""
    critics = Critics(None, [MLP(weights.shape[1] - 1, []) for _ in weights], np.random.default_rng(0)).double()
    for head, row in zip(critics.heads, weights, strict=True):
        head.weight.data[0], head.bias.data[0] = torch.tensor(row[1:]), float(row[0])
    critics.scales[:] = 1.0
    return critics.norms("last_layer")


# A small tabular problem with linear features: V = Ψw, first feature 1.


def tabular():
    rng = np.random.default_rng(7)
    states, actions = 6, 2
    kernel = rng.dirichlet(np.full(states, 5.0), size=(states, actions))  # (S, A, S), well inside the simplex
    costs = rng.random((2, states, actions))  # (N+1, S, A)
    features = np.concatenate([np.ones((states, 1)), rng.normal(size=(states, states - 1))], axis=1)  # (S, d), d = S
    policy = rng.dirichlet(np.ones(actions), size=states)  # (S, A)
    return kernel, costs, features, policy


def test_targets_are_the_worst_case_of_the_linear_ipm_set():
    from rcac.uncertainty import LinearIPM

    kernel, costs, features, _ = tabular()
    radius, gamma = 1e-3, 0.9
    weights = np.random.default_rng(1).normal(size=(2, features.shape[1]))  # one critic per cost
    values = weights @ features.T  # (N+1, S)
    margins = radius * norms(weights)
    nominal = np.einsum("kas,ns->nka", kernel, values)  # E V(s') stands in for the sampled value
    ours = robust_targets(costs, nominal, np.zeros(nominal.shape[1:], dtype=bool), margins, gamma)
    for n in range(2):
        worst, _ = LinearIPM(features=features, radius=radius).worst_case(values[n], kernel)
        np.testing.assert_allclose(ours[n], costs[n] + gamma * worst, rtol=1e-9)


def test_the_fixed_point_of_robust_td_is_the_robust_evaluation():
    from rcac import RCMDP, evaluate
    from rcac.uncertainty import LinearIPM

    kernel, costs, features, policy = tabular()
    radius, gamma = 1e-3, 0.9
    weights = np.zeros((2, features.shape[1]))
    for _ in range(600):  # expected TD: regress the targets on the features (square, so the fit is exact)
        values = weights @ features.T
        margins = radius * norms(weights)
        nominal = np.einsum("kas,ns->nka", kernel, values)
        targets = robust_targets(costs, nominal, np.zeros(nominal.shape[1:], dtype=bool), margins, gamma)
        weights = np.linalg.solve(features, np.einsum("nka,ka->nk", targets, policy).T).T
    problem = RCMDP(kernel, costs, np.array([5.0]), np.full(6, 1 / 6), gamma)
    expected = evaluate(problem, policy, LinearIPM(features=features, radius=radius)).values
    np.testing.assert_allclose(weights @ features.T, expected, rtol=1e-6)
