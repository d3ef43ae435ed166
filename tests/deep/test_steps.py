"""The actor steps against explicit Fisher matrices, finite differences, least squares, and a convex solver."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from deep.small_actors import KINDS, LAWS, small, some_actions
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.deep.regression import regress
from rcac.deep.settings import DeepSettings
from rcac.deep.steps import actor_step
from rcac.deep.steps.base import ActorStepInputs, Batch, Flat, finite, line_search, weighted_advantage
from rcac.deep.steps.fisher import (
    Jacobian,
    conjugate_gradient,
    damped_fisher,
    fisher_product,
    outputs_to_differentiate,
)
from rcac.deep.steps.gradient import _shorten, clipped_loss
from rcac.deep.steps.trust_region import _least_violation, one_multiplier, trust_region_step


def inputs_of(actor, law, batch, weights, options, excess=(), rng=0, optimizer=None, directions=None):
    optimizer = optimizer or torch.optim.Adam(actor.parameters(), fused=True)
    excess, rng = np.array(excess, dtype=float), np.random.default_rng(rng)
    return ActorStepInputs(
        actor, law, optimizer, batch, np.array(weights, dtype=float), excess, 1.0, directions, options, 1.0, rng
    )


def scores(actor, law, rows, actions):
    """Ψ (B, P): ∇log π of each sample, one by one."""
    found = []
    for row, action in zip(rows, actions, strict=True):
        log = law.log_prob(actor(row[None]), action[None])[0]
        found.append(
            torch.cat([g.flatten() for g in torch.autograd.grad(log, Flat(actor).tensors, materialize_grads=True)])
        )
    return torch.stack(found).numpy()


def by_finite_differences(function, flat, step=1e-6):
    """Slopes (P, …) of a function of no arguments in the parameters."""
    start, slopes = flat.get(), []
    for k in range(len(start)):
        ends = []
        for sign in (1, -1):
            moved = start.clone()
            moved[k] += sign * step
            flat.set(moved)
            with torch.no_grad():
                ends.append(function())
        slopes.append((ends[0] - ends[1]) / (2 * step))
    flat.set(start)
    return torch.stack(slopes)


# Every kind of network and of distribution


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_the_jacobian_are_those_of_finite_differences(kind):
    actor, _law, rows = small(kind)
    flat = Flat(actor)
    explicit = by_finite_differences(lambda: actor(rows), flat)  # (P, B, o)
    outputs = outputs_to_differentiate(actor, rows)
    jacobian = Jacobian(outputs, flat)
    rng = np.random.default_rng(0)
    for count in (1, 3):  # rows at once
        v = torch.tensor(rng.normal(size=(count, len(explicit))))
        u = torch.tensor(rng.normal(size=(count, *outputs.shape)))
        torch.testing.assert_close(jacobian.times(v), torch.einsum("rp,pbo->rbo", v, explicit), rtol=1e-6, atol=1e-6)
        expected = torch.einsum("rbo,pbo->rp", u, explicit)
        torch.testing.assert_close(jacobian.transposed_times(u), expected, rtol=1e-6, atol=1e-6)


def explicit_fisher(actor, law, rows):
    """E_s Σ_a π(a|s) ∇log π ∇log πᵀ; for a Gaussian by Gauss–Hermite quadrature, exact for the score's polynomials."""
    total = 0.0
    for row in rows:
        with torch.no_grad():
            outputs = actor(row[None])
        probabilities, actions = LAWS[type(law)](law, outputs)
        psi = scores(actor, law, row.expand(len(actions), -1), actions)
        total = total + psi.T @ (np.array(probabilities)[:, None] * psi)
    return total / len(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_fisher_products_are_those_of_the_explicit_matrix(kind):
    actor, law, rows = small(kind)
    flat = Flat(actor)
    explicit = explicit_fisher(actor, law, rows)
    product = fisher_product(law, Jacobian(outputs_to_differentiate(actor, rows), flat), damping=0.1)
    v = torch.tensor(np.random.default_rng(0).normal(size=(3, len(explicit))))
    expected = v.numpy() @ (explicit + 0.1 * np.eye(len(explicit)))
    for some in (v, v[:1]):
        np.testing.assert_allclose(product(some).numpy(), expected[: len(some)], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_kl_is_half_the_fisher_norm_for_small_moves(kind):
    actor, law, rows = small(kind)
    flat = Flat(actor)
    product = fisher_product(law, Jacobian(outputs_to_differentiate(actor, rows), flat), damping=0.0)
    start = flat.get()
    move = 1e-4 * torch.tensor(np.random.default_rng(9).normal(size=len(start)))
    size = float(move @ product(move[None])[0])
    with torch.no_grad():
        old = actor(rows)
        flat.set(start + move)
        assert float(law.kl(old, actor(rows)).mean()) == pytest.approx(0.5 * size, rel=1e-2)
    assert float(law.kl(old, old).abs().max()) == pytest.approx(0.0, abs=1e-12)


def test_conjugate_gradient_solves_several_rows_at_once():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 8))
    matrix, targets = torch.tensor(root @ root.T + np.eye(8)), torch.tensor(rng.normal(size=(3, 8)))
    targets[1] = 0.0  # solved from the start
    together = conjugate_gradient(lambda v: v @ matrix, targets, 5)
    apart = torch.stack([conjugate_gradient(lambda v: matrix @ v, target, 5) for target in targets])
    torch.testing.assert_close(together, apart)
    assert together[1].tolist() == [0.0] * 8
    solved = conjugate_gradient(lambda v: v @ matrix, targets, 200)  # long after the last digit
    np.testing.assert_allclose((solved @ matrix).numpy(), targets.numpy(), atol=1e-8)


def test_clipping_stops_samples_that_went_the_right_way():
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5, 0.9, 1.1], requires_grad=True)
    cost = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    # A costly action made rarer, or a cheap one made likelier, beyond ±.2: no more pull.
    (slope,) = torch.autograd.grad(clipped_loss(ratio, cost, 0.2).sum(), ratio)
    assert slope.tolist() == (cost * torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])).tolist()
    (slope,) = torch.autograd.grad(clipped_loss(ratio, cost, 0.0).sum(), ratio)
    assert slope.tolist() == cost.tolist()


@pytest.mark.parametrize("bonus", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["mlp", "dict", "multi", "bernoulli", "gaussian"])
def test_the_natural_step_is_along_the_solution_of_an_explicit_system(kind, bonus):
    actor, law, rows = small(kind, count=30)
    actions = some_actions(law, 30)
    options = DeepSettings(cg_iterations=200, kl_radius=1e-6, entropy=bonus)
    advantages = torch.tensor(np.random.default_rng(3).normal(size=(1, 30)))
    flat = Flat(actor)
    start = flat.get()
    cost = (advantages[0] - advantages[0].mean()) / advantages[0].std(correction=0)
    outputs = actor(rows)
    loss = (law.log_prob(outputs, actions) * cost).mean() - bonus * law.entropy(outputs).mean()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, flat.tensors, materialize_grads=True)]).numpy()
    solution = np.linalg.solve(explicit_fisher(actor, law, rows) + options.damping * np.eye(len(start)), gradient)
    batch = Batch(rows, actions, advantages, advantages)
    assert not actor_step("natural")(inputs_of(actor, law, batch, [1.0], options)).skipped
    expected = -np.sqrt(2e-6 / (gradient @ solution)) * solution
    step = (flat.get() - start).numpy()
    assert step @ expected == pytest.approx(np.linalg.norm(step) * np.linalg.norm(expected), rel=1e-6)
    shrunk = np.linalg.norm(step) / np.linalg.norm(expected)
    assert min(abs(shrunk - 0.8**k) for k in range(3)) < 1e-4


def test_regression_is_least_squares_on_the_scores():
    actor, law, rows = small("mlp", count=40)
    actions = some_actions(law, 40)
    errors = torch.tensor(np.random.default_rng(3).normal(size=(2, 40)))
    fit = regress(actor, law, rows, actions, errors, damping=1e-2, iterations=300)
    psi = scores(actor, law, rows, actions)
    normal = psi.T @ psi / 40 + 1e-2 * np.eye(psi.shape[1])
    expected = np.linalg.solve(normal, psi.T @ errors.numpy().T / 40).T
    np.testing.assert_allclose(fit.directions.numpy(), expected, atol=1e-7)
    np.testing.assert_allclose(fit.advantages.numpy(), expected @ psi.T, atol=1e-7)


def test_weighted_advantages():
    actor, law, rows = small("mlp", count=5)
    advantages = torch.tensor([[1.0, 2, 3, 4, 0], [0.0, 0, 0, 100, 0]], dtype=torch.float64)
    batch = Batch(rows, some_actions(law, 5), advantages, advantages)
    for options in (DeepSettings(), DeepSettings(normalize_advantages=False)):
        alone = weighted_advantage(inputs_of(actor, law, batch, [0.02, 0.0], options)).numpy()
        expected = 0.02 * advantages[0].numpy()
        if options.normalize_advantages:
            expected = (expected - expected.mean()) / (expected.std() + 1e-8)
        np.testing.assert_allclose(alone, expected, rtol=1e-9)
    plain = weighted_advantage(inputs_of(actor, law, batch, [0.25, 0.75], DeepSettings(normalize_advantages=False)))
    np.testing.assert_allclose(plain, 0.25 * advantages[0] + 0.75 * advantages[1])
    # In a mixture each cost counts in units of its own spread: the unit of a cost changes nothing.
    mixed = [
        weighted_advantage(
            inputs_of(actor, law, batch._replace(advantages=advantages * unit), [0.25, 0.75], DeepSettings())
        )
        for unit in (torch.ones(2, 1), torch.tensor([[1.0], [1e-4]]))
    ]
    np.testing.assert_allclose(mixed[0], mixed[1], rtol=1e-3)


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


@pytest.mark.parametrize(
    ("gram", "excess", "change"),
    [
        ([[0, 0], [0, 1]], [0.1], [0, -0.1]),  # nothing to gain: the violation is mended, and no more
        ([[0, 0], [0, 1]], [-0.1], [0, 0]),
        ([[1, -1], [-1, 1]], [0.1], [0.1, -0.1]),  # objective and constraint straight against each other
        ([[1, -1], [-1, 1]], [-0.1], [-0.1, 0.1]),  # up to the budget
        ([[1, 0], [0, 0]], [0.1], [-1, 0]),  # a violation that no step moves
        ([[0, 0, 0], [0, 1, 0], [0, 0, 1]], [0.1, -0.2], [0, -0.1, 0]),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e-7, 1e7])  # of all costs
def test_steps_where_gradients_vanish(gram, excess, change, unit):
    changes, size, recovery = outcome(unit**2 * np.array(gram, dtype=float), unit * np.array(excess), 0.5)
    np.testing.assert_allclose(changes, unit * np.array(change), atol=1e-4 * unit)
    assert size <= 0.5 * (1 + 1e-9)
    assert not recovery


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_step_does_not_depend_on_units(seed, constraints):
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(constraints + 1, constraints + 4))
    gram, units = gradients @ gradients.T, 10 ** rng.uniform(-6, 6, size=constraints + 1)
    excess = rng.uniform(-1.3, 1.3, size=constraints)
    step, other = (
        trust_region_step(gram, excess, 0.1),
        trust_region_step(gram * np.outer(units, units), excess * units[1:], 0.1),
    )
    assert step.recovery == other.recovery
    np.testing.assert_allclose(other.weights * units, step.weights, rtol=1e-4, atol=1e-4 * np.abs(step.weights).max())


# Whole steps on a bandit: one state, actions with known costs


def bandit(costs, step, excess=(), weights=None, **changes):
    """A batch sampled from a uniform policy over 4 actions with costs (K, 4), and the step on it."""
    actor, law, _ = small("bandit")
    actions = torch.arange(400) % 4
    table = torch.tensor(np.array(costs), dtype=torch.float32)
    advantages = table[:, actions] - table.mean(dim=1, keepdim=True)
    batch = Batch(torch.ones(400, 3), actions, advantages, advantages)
    options = DeepSettings(gamma=0.0, kl_radius=0.05, **changes)
    weights = np.eye(len(costs))[0] if weights is None else weights
    inputs = inputs_of(actor, law, batch, weights, options, excess)
    return lambda: actor_step(step)(inputs), inputs


def probabilities(actor):
    with torch.no_grad():
        return torch.softmax(actor(torch.ones(1, 3)), 1)[0].numpy()


@pytest.mark.parametrize("name", ["gradient", "natural"])
def test_the_chosen_cost_falls(name):
    for weights, cheapest in (([0.02, 0], 2), ([0, 1], 3)):
        step, inputs = bandit([[1, 1, 0, 1], [1, 1, 1, 0]], name, [0.0], weights)
        update = step()
        assert not update.skipped
        assert np.argmax(probabilities(inputs.actor)) == cheapest
        assert update.kl > 0
        if name == "natural":
            assert 0.5 * 0.05 < update.kl <= 0.05


@pytest.mark.parametrize("name", ["gradient", "natural"])
def test_a_weighted_sum_falls(name):
    step, inputs = bandit([[1, 0, 0.1, 1], [0, 1, 0.1, 1]], name, [0.0], [0.5, 0.5], actor_epochs=20)
    step()
    p = probabilities(inputs.actor)
    assert np.argmax(p) == 2  # the best for the sum, and for neither alone
    assert np.argmin(p) == 3


def test_sqp_lowers_the_objective_within_the_budget():
    # The cheapest action for the objective costs most for the constraint: J_1 may rise by .03 and no more.
    step, inputs = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", [-0.03])
    update = step()
    p = probabilities(inputs.actor)
    assert not update.skipped
    assert not update.recovery
    assert 0.25 < p[0] <= 0.28 + 1e-6
    free, other = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", [-1.0])
    free()
    assert probabilities(other.actor)[0] > p[0]


def test_sqp_recovers_from_a_violation_it_cannot_mend_at_once():
    step, inputs = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", [0.9])
    update = step()
    assert update.recovery
    assert not update.skipped
    assert probabilities(inputs.actor)[0] < 0.25


@pytest.mark.parametrize("name", ["gradient", "natural", "sqp"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_ends_the_training(name, bad):
    step, inputs = bandit([[1, 1, 0, 1], [1, 1, 1, 0]], name, [-1.0])
    inputs.batch.advantages[:, 0] = bad
    with pytest.raises(FloatingPointError, match="the actor's gradient is not finite"):
        step()


def test_a_natural_step_that_is_not_finite_is_skipped():
    """Where every action costs the same the gradient is zero, and no multiple of it has the KL wanted."""
    step, inputs = bandit([[1, 1, 1, 1]], "natural")
    before = Flat(inputs.actor).get()
    assert step().skipped
    torch.testing.assert_close(Flat(inputs.actor).get(), before, rtol=0, atol=0)


def test_one_number_that_is_not_finite_is_enough():
    numbers = torch.tensor([1.0, 2.0])
    assert finite(numbers, "x") is numbers
    with pytest.raises(FloatingPointError, match="x is not finite"):
        finite(torch.tensor([1.0, np.nan]), "x")


def test_a_step_that_is_rejected_at_every_length_leaves_the_actor():
    _, inputs = bandit([[1, 0, 0, 1]], "natural")
    before, old = Flat(inputs.actor).get(), inputs.actor(inputs.batch.observations).detach()
    lengths: list[float] = []

    def reject(new):
        lengths.append(float((Flat(inputs.actor).get() - before).norm()))
        return False

    assert line_search(inputs, torch.full_like(before, 1e-3), old, 0.05, reject).skipped
    assert len(lengths) == inputs.settings.backtracks + 1
    np.testing.assert_allclose(np.divide(lengths[1:], lengths[:-1]), 0.8, rtol=1e-3)
    torch.testing.assert_close(Flat(inputs.actor).get(), before, rtol=0, atol=0)


def test_a_gradient_is_shortened_to_a_joint_length_and_never_made_longer():
    for length, expected in ((2.5, 0.5), (50.0, 1.0)):
        slopes = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
        _shorten(slopes, length)
        torch.testing.assert_close(slopes[0], torch.tensor([3.0 * expected, 0.0]))
        torch.testing.assert_close(slopes[1], torch.tensor([[4.0 * expected]]))


def test_an_entropy_bonus_keeps_a_gradient_step_random():
    entropies = []
    for bonus in (0.0, 1.0):
        step, _ = bandit([[0, 1, 1, 1]], "gradient", entropy=bonus, actor_epochs=20, actor_lr=0.01)
        entropies.append(step().entropy)
    assert entropies[1] > entropies[0] + 0.1


@pytest.mark.parametrize("steps", [1.0, 10.0, 0.1])
def test_sqp_takes_costs_in_the_units_of_an_episode(steps):
    """J is so many times the surrogate: the same step, where the room up to the budget is as many times as large."""
    step, inputs = bandit([[0, 1, 1, 1], [1, 0, 0, 0]], "sqp", [-0.03 * steps])
    update = actor_step("sqp")(inputs._replace(steps=steps))
    assert not update.skipped
    assert probabilities(inputs.actor)[0] == pytest.approx(0.28, abs=2e-3)
    step()


@pytest.mark.parametrize("excess", [-0.3, -10.0])
def test_sqp_with_directions_that_come_with_the_advantages(excess):
    costs = [[0, 1, 1, 1], [1, 0, 0, 0]]
    _, own = bandit(costs, "sqp", [excess])
    _, other = bandit(costs, "sqp", [excess])
    batch, law = other.batch, other.distribution
    logs = law.log_prob(other.actor(batch.observations), batch.actions)
    centred = batch.advantages - batch.advantages.mean(dim=1, keepdim=True)
    flat = Flat(other.actor)
    rows = [
        torch.cat([g.flatten() for g in torch.autograd.grad((logs * c).mean(), flat.tensors, retain_graph=True)])
        for c in centred
    ]
    product = damped_fisher(other)
    directions = conjugate_gradient(product, torch.stack(rows), other.settings.cg_iterations)
    actor_step("sqp")(own._replace(steps=10.0))
    actor_step("sqp")(other._replace(steps=10.0, directions=directions))
    torch.testing.assert_close(Flat(other.actor).get(), Flat(own.actor).get(), rtol=1e-3, atol=1e-5)


def test_the_least_violation_by_a_grid():
    share = np.linspace(0, 1, 20_001)
    grid = np.stack([share, 1 - share])
    for s, excess, delta in (
        ([[1, 0.2], [0.2, 4]], [1.0, 2.0], 0.1),
        ([[2, -0.5], [-0.5, 1]], [0.5, 0.4], 0.3),
        ([[1, 0], [0, 1]], [3.0, 0.1], 0.1),
    ):
        s, excess = np.array(s, dtype=float), np.array(excess)
        attained = excess @ grid - np.sqrt(2 * delta * np.einsum("ik,ij,jk->k", grid, s, grid))
        np.testing.assert_allclose(_least_violation(s, excess, delta), grid[:, np.argmax(attained)], atol=2e-3)


def test_a_constraint_that_nothing_moves_is_left_out():
    gram = np.array([[1.0, 0.0, -0.3], [0.0, 0.0, 0.0], [-0.3, 0.0, 1.0]])
    step = trust_region_step(gram, np.array([0.1, 0.2]), 0.5)
    alone = trust_region_step(gram[np.ix_([0, 2], [0, 2])], np.array([0.2]), 0.5)
    assert step.recovery == alone.recovery
    assert step.weights.tolist() == [alone.weights[0], 0.0, alone.weights[1]]


def test_the_shortest_step_onto_constraints_stays_in_the_region():
    """Nothing to gain, and two violated constraints that only a long step would both end on."""
    gradients = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.1]])
    for delta in (0.5, 0.3, 2.0):
        _, size, _ = outcome(gradients @ gradients.T, np.array([0.1, 0.5]), delta)
        assert size <= delta * (1 + 1e-9)
