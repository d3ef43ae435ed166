"""The actor steps against explicit matrices, least squares, and a convex solver."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.deep import networks
from rcac.deep.adam import Adam
from rcac.deep.forward import actor_shape
from rcac.deep.gradient import clipped_surrogate, gradient_step
from rcac.deep.natural import conjugate_gradient, fisher_product, natural_step
from rcac.deep.regression import regress
from rcac.deep.settings import DeepSettings
from rcac.deep.sqp import one_multiplier, sqp_step, trust_region_step
from rcac.deep.update import Batch, Task

CATEGORICAL = actor_shape(3, [5], "categorical", 4, "independent")
GAUSSIAN = actor_shape(3, [5], "gaussian", 2, "independent")
DEPENDENT = actor_shape(3, [5], "gaussian", 2, "dependent")


def actor(shape, seed=0, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    return torch.tensor(0.5 * rng.normal(size=shape.length), dtype=dtype)


def observations(count=6, seed=1):
    return torch.tensor(np.random.default_rng(seed).normal(size=(count, 3)))


def score(shape, parameters, observation, action):
    leaf = parameters.clone().requires_grad_(True)
    log = networks.log_prob(shape, networks.actor_outputs(shape, leaf, observation[None]), action[None])[0]
    return torch.autograd.grad(log, leaf)[0].numpy()


def explicit_fisher(shape, parameters, states):
    """E_s Σ_a π(a|s) ∇log π ∇log πᵀ; for a Gaussian by Gauss–Hermite quadrature, exact for the score's polynomials."""
    total = np.zeros((len(parameters), len(parameters)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    weights = weights / weights.sum()
    for state in states:
        outputs = networks.actor_outputs(shape, parameters, state[None])[0].numpy()
        if shape.kind == "categorical":
            p = np.exp(outputs - outputs.max())
            points = [(q, torch.tensor(a)) for a, q in enumerate(p / p.sum())]
        else:
            mean, scale = outputs[:2], np.exp(outputs[2:])
            grid = [(u, v) for u in range(5) for v in range(5)]
            points = [
                (weights[u] * weights[v], torch.tensor(mean + scale * np.array([nodes[u], nodes[v]]))) for u, v in grid
            ]
        for probability, action in points:
            g = score(shape, parameters, state, action)
            total += probability * np.outer(g, g)
    return total / len(states)


@pytest.mark.parametrize("shape", [CATEGORICAL, GAUSSIAN, DEPENDENT], ids=["categorical", "gaussian", "dependent"])
def test_fisher_products_are_those_of_the_explicit_matrix(shape):
    parameters, states = actor(shape), observations()
    explicit = explicit_fisher(shape, parameters, states) + 0.1 * np.eye(shape.length)
    product = fisher_product(shape, parameters, states, damping=0.1)
    columns = np.stack([product(v).numpy() for v in torch.eye(shape.length, dtype=torch.float64)])
    np.testing.assert_allclose(columns, explicit, atol=1e-8)


@pytest.mark.parametrize("shape", [CATEGORICAL, GAUSSIAN, DEPENDENT], ids=["categorical", "gaussian", "dependent"])
def test_kl_is_half_the_fisher_norm_for_small_moves(shape):
    parameters, states = actor(shape), observations()
    move = 1e-4 * actor(shape, seed=9)
    old, new = (networks.actor_outputs(shape, p, states) for p in (parameters, parameters + move))
    product = fisher_product(shape, parameters, states, damping=0.0)
    assert float(networks.kl(shape, old, new).mean()) == pytest.approx(0.5 * float(move @ product(move)), rel=1e-2)
    assert float(networks.kl(shape, old, old).abs().max()) == pytest.approx(0.0, abs=1e-12)


def test_distributions_agree_with_torch():
    # log scales within (−1, 1), where nothing is clamped
    rng = np.random.default_rng(0)
    outputs, other = torch.tensor(rng.uniform(-1, 1, (2, 7, 4)))
    real, actions = torch.tensor(rng.normal(size=(7, 2))), torch.arange(7) % 4
    reference = torch.distributions.Categorical(logits=outputs)
    torch.testing.assert_close(networks.log_prob(CATEGORICAL, outputs, actions), reference.log_prob(actions))
    torch.testing.assert_close(networks.entropy(CATEGORICAL, outputs), reference.entropy())
    normal = torch.distributions.Normal(outputs[:, :2], outputs[:, 2:].exp())
    torch.testing.assert_close(networks.log_prob(GAUSSIAN, outputs, real), normal.log_prob(real).sum(1))
    torch.testing.assert_close(networks.entropy(GAUSSIAN, outputs), normal.entropy().sum(1))
    moved = torch.distributions.Normal(other[:, :2], other[:, 2:].exp())
    expected = torch.distributions.kl_divergence(normal, moved).sum(1)
    torch.testing.assert_close(networks.kl(GAUSSIAN, outputs, other), expected)


def test_a_log_scale_outside_its_range_is_held_at_the_end():
    mean, action = torch.zeros(1, 2, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    for outside, end in ((50.0, 2.0), (-50.0, -5.0)):
        one, other = (torch.cat([mean, torch.full_like(mean, value)], dim=1) for value in (outside, end))
        for function in (networks.log_prob, networks.kl):
            last = action if function is networks.log_prob else other
            torch.testing.assert_close(function(GAUSSIAN, one, last), function(GAUSSIAN, other, last))
        assert networks.fisher_metric(GAUSSIAN, one, torch.ones(1, 4))[0, 2:].tolist() == [0.0, 0.0]


def test_conjugate_gradient_solves():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 8))
    matrix, target = torch.tensor(root @ root.T + np.eye(8)), torch.tensor(rng.normal(size=8))
    solution = conjugate_gradient(lambda v: matrix @ v, target, 30)
    np.testing.assert_allclose((matrix @ solution).numpy(), target.numpy(), atol=1e-8)


def test_adam_agrees_with_torch_and_leaves_other_rows_alone():
    start = torch.tensor(np.random.default_rng(0).normal(size=(2, 5)))
    ours, reference = start.clone(), start[1].clone().requires_grad_(True)
    adam, optimiser = Adam(ours), torch.optim.Adam([reference], lr=0.01)
    for k in range(20):
        gradient = torch.sin(torch.arange(10.0, dtype=torch.float64) * (k + 1)).view(2, 5)
        adam.step(ours, gradient, 0.01, slice(1, 2))
        reference.grad = gradient[1].clone()
        optimiser.step()
    torch.testing.assert_close(ours[1], reference.detach())
    torch.testing.assert_close(ours[0], start[0], rtol=0, atol=0)


def test_clipping_stops_samples_that_went_the_right_way():
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5], requires_grad=True)
    cost = torch.tensor([1.0, -1.0, 1.0, -1.0])
    clipped_surrogate(ratio, cost, 0.2).backward()
    # A costly action made rarer, or a cheap one made likelier, beyond ±.2: no more pull.
    np.testing.assert_allclose(ratio.grad.numpy() * 4, [0.0, -1.0, 1.0, 0.0])


def test_regression_is_least_squares_on_the_scores():
    shape, parameters, states = CATEGORICAL, actor(CATEGORICAL), observations(40)
    actions = torch.arange(40) % 4
    errors = torch.tensor(np.random.default_rng(3).normal(size=(2, 40)))
    fit = regress(shape, parameters, states, actions, errors, damping=1e-2, iterations=300)
    scores = np.stack([score(shape, parameters, s, a) for s, a in zip(states, actions, strict=True)])  # Ψ (B, P)
    normal = scores.T @ scores / 40 + 1e-2 * np.eye(shape.length)
    expected = np.linalg.solve(normal, scores.T @ errors.numpy().T / 40).T
    np.testing.assert_allclose(fit.directions.numpy(), expected, atol=1e-7)
    np.testing.assert_allclose(fit.advantages.numpy(), expected @ scores.T, atol=1e-7)


# The trust region


def solve(gram, excess, delta):
    """The same problem by cvxpy, in coordinates z with x = √(2δ) H^{-1/2} z and every row of unit length: the least value
    of the objective, or None where there is no step within the constraints."""
    root = np.linalg.cholesky(gram)  # row n is H^{-1/2} g_n
    lengths = np.sqrt(2 * delta * np.diagonal(gram))
    rows = root * np.sqrt(2 * delta) / lengths[:, None]
    z = cp.Variable(len(gram))
    constraints = [cp.norm(z) <= 1, excess / lengths[1:] + rows[1:] @ z <= 0]
    problem = cp.Problem(cp.Minimize(rows[0] @ z), constraints)
    problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate", "infeasible", "infeasible_inaccurate")
    return lengths[0] * problem.value if problem.status.startswith("optimal") else None


def outcome(gram, excess, delta):
    """Predicted changes of all J, and ½xᵀHx, of our step."""
    step = trust_region_step(gram, excess, delta)
    return -gram @ step.weights, 0.5 * step.weights @ gram @ step.weights, step.recovery


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_step_solves_its_problem(seed, constraints):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(constraints + 1, constraints + 4))
    gram, delta = gradients @ gradients.T, float(10 ** rng.uniform(-3, 0))
    scale = np.sqrt(2 * delta * np.diagonal(gram)[1:])
    excess = rng.uniform(-1.3, 1.3, size=constraints) * scale
    changes, size, recovery = outcome(gram, excess, delta)
    best = solve(gram, excess, delta)
    assert size <= delta * (1 + 1e-6)
    unit = np.sqrt(2 * delta * gram[0, 0])
    if best is None:
        assert recovery
        return
    if recovery:  # only where the feasible set is at most a point
        assert np.max(excess + changes[1:]) <= 1e-3 * scale.max()
        return
    assert np.all(excess + changes[1:] <= 1e-4 * scale)
    assert changes[0] == pytest.approx(best, abs=2e-4 * unit)


def test_one_constraint_by_brute_force():
    """Two dimensions, H = I, a fine grid over the disc."""
    angle, radius = np.meshgrid(np.linspace(0, 2 * np.pi, 1441), np.linspace(0, 1, 401))
    delta = 0.5
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
    for g0, g1, excess in [((1, 0), (-0.6, 0.8), 0.3), ((1, 0.5), (0.2, 1), -0.4), ((1, 0), (-1, 0.1), -0.2)]:
        gradients = np.array([g0, g1])
        gram = gradients @ gradients.T
        value = np.tensordot(g0, x, 1)
        allowed = excess + np.tensordot(g1, x, 1) <= 1e-3
        changes, _, recovery = outcome(gram, np.array([excess]), delta)
        assert not recovery
        assert changes[0] == pytest.approx(value[allowed].min(), abs=6e-3)


def test_a_constraint_out_of_reach_is_ignored_and_one_beyond_repair_is_reduced():
    gram = np.array([[1.0, -0.5], [-0.5, 1.0]])
    assert one_multiplier(1.0, -0.5, 1.0, -5.0, 0.1) == 0.0
    changes, size, recovery = outcome(gram, np.array([5.0]), 0.1)
    assert recovery
    assert size == pytest.approx(0.1)
    assert changes[1] == pytest.approx(-np.sqrt(0.2))  # the steepest descent of the constraint, full length


# Whole steps on a bandit: one state, actions with known costs


def bandit(costs, step, excess=(), seed=0, chosen=0, **changes):
    """A batch drawn from a uniform policy over 4 actions with costs (K, 4)."""
    shape = actor_shape(3, [8], "categorical", 4, "independent")
    parameters = torch.tensor(networks.initial_actor(np.random.default_rng(seed), shape, 0.0))
    states = torch.ones(400, 3)
    actions = torch.arange(400) % 4
    table = torch.tensor(np.array(costs), dtype=torch.float32)
    advantages = table[:, actions] - table.mean(dim=1, keepdim=True)
    batch = Batch(states, actions, advantages, advantages)
    options = DeepSettings(step=step, gamma=0.0, kl_radius=0.05, **changes)
    rng = np.random.default_rng(seed)
    task = Task(shape, parameters, batch, chosen, 1.0, np.array(excess, dtype=float), None, options, 1.0, rng)
    return shape, task


def probabilities(shape, parameters):
    return torch.softmax(networks.actor_outputs(shape, parameters, torch.ones(1, 3)), 1)[0].numpy()


STEPS = {"gradient": lambda task: gradient_step(task, Adam(task.parameters[None])), "natural": natural_step}


@pytest.mark.parametrize("name", ["gradient", "natural"])
def test_the_chosen_cost_falls(name):
    for chosen, cheapest in ((0, 2), (1, 3)):
        shape, task = bandit([[1, 1, 0, 1], [1, 1, 1, 0]], name, excess=[0.0], chosen=chosen)
        taken = STEPS[name](task)
        assert not taken.skipped
        assert np.argmax(probabilities(shape, taken.parameters)) == cheapest
        assert taken.kl > 0
        if name == "natural":
            assert 0.5 * 0.05 < taken.kl <= 0.05


def test_sqp_lowers_the_objective_within_the_budget():
    # The cheapest action for the objective costs most for the constraint: J_1 may rise by .1 and no more.
    shape, task = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", excess=[-0.03])
    taken = sqp_step(task)
    p = probabilities(shape, taken.parameters)
    assert not taken.skipped
    assert not taken.recovery
    assert 0.25 < p[0] <= 0.28 + 1e-6
    free = sqp_step(bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", excess=[-1.0])[1])
    assert probabilities(shape, free.parameters)[0] > p[0]


def test_sqp_recovers_from_a_violation_it_cannot_mend_at_once():
    shape, task = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", excess=[0.9])
    taken = sqp_step(task)
    assert taken.recovery
    assert not taken.skipped
    assert probabilities(shape, taken.parameters)[0] < 0.25


@pytest.mark.parametrize("name", ["gradient", "natural", "sqp"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_ends_the_training(name, bad):
    _, task = bandit([[1, 1, 0, 1], [1, 1, 1, 0]], name, excess=[-1.0])
    task.batch.advantages[:, 0] = bad
    with pytest.raises(FloatingPointError, match="the actor's gradient is not finite"):
        {**STEPS, "sqp": sqp_step}[name](task)


def test_a_natural_step_that_is_not_finite_is_skipped():
    """Where every action costs the same the gradient is zero, and no multiple of it has the KL wanted."""
    _, task = bandit([[1, 1, 1, 1]], "natural")
    taken = natural_step(task)
    assert taken.skipped
    torch.testing.assert_close(taken.parameters, task.parameters, rtol=0, atol=0)
