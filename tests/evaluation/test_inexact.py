"""Evaluations with an error: the paper's sampled evaluator against a chain by hand and its own limit, noise by its moments."""

import numpy as np
import pytest
from conftest import random_policy, random_problem

from rcac import RCMDP, InputError, evaluate
from rcac.evaluation import evaluate_sampled, with_noise
from rcac.uncertainty import KLBall, KLPenalty

LINEAR = KLPenalty(20.0, "linear")


def cycle():
    """0 → 1 → 0, one action, costs 1 and 2."""
    kernel = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
    return RCMDP(kernel, costs=np.array([[[1.0], [2.0]]]), budgets=[], initial=np.array([1.0, 0.0]), discount=0.5)


def test_the_sampled_table_by_hand(monkeypatch):
    """V_0 ← 1, V_1 ← 2 + ½·1, V_0 ← 1 + ½·2.5: what the tilt is given after three samples."""
    seen = []
    sweep = KLPenalty.sweep
    monkeypatch.setattr(KLPenalty, "sweep", lambda self, values, rows: seen.append(values) or sweep(self, values, rows))
    found = evaluate_sampled(cycle(), np.ones((2, 1)), LINEAR, 3, np.random.default_rng(0))
    np.testing.assert_allclose(seen[0], [[2.25, 2.5]])
    assert found.returns == pytest.approx([(1 + 0.5 * 2) / (1 - 0.25)])  # the kernel has no choice, so this is exact


def test_many_samples_find_the_worst_kernel_and_few_do_not():
    problem = random_problem(np.random.default_rng(1), states=4)
    policy = random_policy(np.random.default_rng(2), problem)
    set_ = KLPenalty(5.0, "linear")
    exact = evaluate(problem, policy, set_)
    errors = [
        np.abs(evaluate_sampled(problem, policy, set_, count, np.random.default_rng(3)).returns - exact.returns).max()
        for count in (10, 100_000)
    ]
    assert errors[1] < 1e-9 < errors[0]


@pytest.mark.parametrize("other", [KLPenalty(20.0), KLBall(0.1)])
def test_samples_are_for_the_papers_set(other):
    with pytest.raises(InputError, match=r"samples: 10 given with .*, a KL penalty with value=linear expected"):
        evaluate_sampled(cycle(), np.ones((2, 1)), other, 10, np.random.default_rng(0))


def test_noise_has_the_stated_size(rng):
    problem = random_problem(rng)
    exact = evaluate(problem, random_policy(rng, problem), KLBall(0.05))
    made = [with_noise(exact, 0.1, rng) for _ in range(4000)]
    scale = 0.1 * np.abs(exact.q_values).max(axis=(1, 2))
    for name in ("returns", "q_values"):
        errors = np.stack([getattr(m, name) for m in made]) - getattr(exact, name)
        sizes = scale.reshape(-1, *[1] * (errors.ndim - 2))
        assert np.abs(errors.mean(axis=0) / sizes).max() < 5 / np.sqrt(4000)
        np.testing.assert_allclose(errors.std(axis=0) / sizes, 1, atol=0.06)
    np.testing.assert_array_equal(made[0].values, exact.values)
