"""The actor steps against autograd, explicit matrices, least squares, and a convex solver."""

from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rcac.deep import networks
from rcac.deep.adam import Adam
from rcac.deep.forward import actor_shape
from rcac.deep.gradient import clipped_pull, gradient_step
from rcac.deep.natural import conjugate_gradient, fisher_product, natural_step
from rcac.deep.passes import Networks
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


def plain(sizes, tail, parameters, inputs):
    """Outputs (o, B) of one network by torch's own operations, which autograd can differentiate."""
    hidden, start = inputs, 0
    for layer, (a, b) in enumerate(pairwise(sizes)):
        weight, bias = parameters[start : start + a * b].view(a, b), parameters[start + a * b : start + a * b + b]
        hidden, start = hidden @ weight + bias, start + a * b + b
        if layer < len(sizes) - 2:
            hidden = torch.tanh(hidden)
    return torch.cat([hidden, parameters[start : start + tail].expand(len(inputs), -1)], dim=1).T


def plain_log_prob(shape, parameters, states, actions):
    outputs = plain(shape.sizes, shape.tail, parameters, states).T
    if shape.kind == "categorical":
        return torch.distributions.Categorical(logits=outputs).log_prob(actions)
    mean, log_std = outputs.split(shape.actions, dim=1)
    return torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp()).log_prob(actions).sum(dim=1)


def some_actions(shape, count, seed=2):
    rng = np.random.default_rng(seed)
    if shape.kind == "categorical":
        return torch.tensor(rng.integers(shape.actions, size=count))
    return torch.tensor(rng.normal(size=(count, shape.actions)))


def score(shape, parameters, observation, action):
    leaf = parameters.clone().requires_grad_(True)
    return torch.autograd.grad(plain_log_prob(shape, leaf, observation[None], action[None])[0], leaf)[0].numpy()


def explicit_fisher(shape, parameters, states):
    """E_s Σ_a π(a|s) ∇log π ∇log πᵀ; for a Gaussian by Gauss–Hermite quadrature, exact for the score's polynomials."""
    total = np.zeros((len(parameters), len(parameters)))
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)
    weights = weights / weights.sum()
    for state in states:
        outputs = networks.actor_outputs(shape, parameters, state[None])[:, 0].numpy()
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
    product = fisher_product(shape, networks.actor_pass(shape, parameters, states), damping=0.1)
    np.testing.assert_allclose(product(torch.eye(shape.length, dtype=torch.float64)).numpy(), explicit, atol=1e-8)


@pytest.mark.parametrize("shape", [CATEGORICAL, GAUSSIAN, DEPENDENT], ids=["categorical", "gaussian", "dependent"])
def test_kl_is_half_the_fisher_norm_for_small_moves(shape):
    parameters, states = actor(shape), observations()
    move = 1e-4 * actor(shape, seed=9)
    old, new = (networks.actor_outputs(shape, p, states) for p in (parameters, parameters + move))
    product = fisher_product(shape, networks.actor_pass(shape, parameters, states), damping=0.0)
    size = float(move @ product(move[None])[0])
    assert float(networks.kl(shape, old, new).mean()) == pytest.approx(0.5 * size, rel=1e-2)
    assert float(networks.kl(shape, old, old).abs().max()) == pytest.approx(0.0, abs=1e-12)


def test_distributions_agree_with_torch():
    # log scales within (−1, 1), where nothing is clamped
    rng = np.random.default_rng(0)
    outputs, other = torch.tensor(rng.uniform(-1, 1, (2, 4, 7)))
    real, actions = torch.tensor(rng.normal(size=(7, 2))), torch.arange(7) % 4
    reference = torch.distributions.Categorical(logits=outputs.T)
    torch.testing.assert_close(networks.log_prob(CATEGORICAL, outputs, actions), reference.log_prob(actions))
    torch.testing.assert_close(networks.entropy(CATEGORICAL, outputs), reference.entropy())
    normal = torch.distributions.Normal(outputs[:2].T, outputs[2:].T.exp())
    torch.testing.assert_close(networks.log_prob(GAUSSIAN, outputs, real), normal.log_prob(real).sum(1))
    torch.testing.assert_close(networks.entropy(GAUSSIAN, outputs), normal.entropy().sum(1))
    moved = torch.distributions.Normal(other[:2].T, other[2:].T.exp())
    expected = torch.distributions.kl_divergence(normal, moved).sum(1)
    torch.testing.assert_close(networks.kl(GAUSSIAN, outputs, other), expected)


@pytest.mark.parametrize("shape", [CATEGORICAL, GAUSSIAN], ids=["categorical", "gaussian"])
def test_slopes_of_the_distributions_are_those_of_autograd(shape):
    outputs = torch.tensor(np.random.default_rng(0).normal(scale=3.0, size=(4, 50)), requires_grad=True)
    assert float(outputs[2:].detach().min()) < -5.0 < 2.0 < float(outputs[2:].detach().max())  # some scales are held
    actions = some_actions(shape, 50)
    (expected,) = torch.autograd.grad(networks.log_prob(shape, outputs, actions).sum(), outputs)
    torch.testing.assert_close(networks.score(shape, outputs.detach(), actions), expected)
    (expected,) = torch.autograd.grad(networks.entropy(shape, outputs).sum(), outputs)
    torch.testing.assert_close(networks.entropy_slope(shape, outputs.detach()), expected)


def test_a_log_scale_outside_its_range_is_held_at_the_end():
    mean, action = torch.zeros(2, 1, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)
    for outside, end in ((50.0, 2.0), (-50.0, -5.0)):
        one, other = (torch.cat([mean, torch.full_like(mean, value)]) for value in (outside, end))
        for function in (networks.log_prob, networks.kl):
            last = action if function is networks.log_prob else other
            torch.testing.assert_close(function(GAUSSIAN, one, last), function(GAUSSIAN, other, last))
        assert networks.fisher_metric(GAUSSIAN, one, torch.ones(1, 4, 1))[0, 2:, 0].tolist() == [0.0, 0.0]


# (sizes, tail, K networks, R rows)
PASSES = [((3, 5, 4, 2), 0, 1, 1), ((3, 5, 4, 2), 2, 1, 3), ((3, 6, 1), 0, 3, 3), ((3, 2), 1, 2, 2)]


@pytest.mark.parametrize(("sizes", "tail", "count", "rows"), PASSES)
def test_products_with_the_jacobian_are_those_of_autograd(sizes, tail, count, rows):
    rng = np.random.default_rng(0)
    length = sum(a * b + b for a, b in pairwise(sizes)) + tail
    parameters, v = (torch.tensor(rng.normal(size=(n, length))) for n in (count, rows))
    inputs, u = observations(), torch.tensor(rng.normal(size=(rows, sizes[-1] + tail, 6)))
    columns = torch.tensor([4, 0, 5])
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        here = Networks(parameters.to(dtype), sizes, tail).at(inputs.to(dtype))
        some = here.among(columns)
        for row in range(rows):
            network = min(row, count - 1)
            jacobian = torch.func.jacrev(lambda p: plain(sizes, tail, p, inputs))(parameters[network])  # (o, B, P)
            pairs = [
                (here.outputs[network], plain(sizes, tail, parameters[network], inputs)),
                (here.forward(v.to(dtype))[row], jacobian @ v[row]),
                (here.backward(u.to(dtype))[row], torch.einsum("obp,ob->p", jacobian, u[row])),
                (some.outputs[network], plain(sizes, tail, parameters[network], inputs[columns])),
                (some.forward(v.to(dtype))[row], jacobian[:, columns] @ v[row]),
            ]
            for ours, expected in pairs:
                assert float((ours - expected).abs().max()) <= tolerance * float(expected.abs().max())


def test_a_pass_follows_parameters_that_change_in_place():
    parameters, inputs = actor(GAUSSIAN)[None].clone(), observations()
    followed = Networks(parameters, GAUSSIAN.sizes, GAUSSIAN.tail)
    parameters += 0.1
    expected = plain(GAUSSIAN.sizes, GAUSSIAN.tail, actor(GAUSSIAN) + 0.1, inputs)
    torch.testing.assert_close(followed.at(inputs).outputs[0], expected)


def test_conjugate_gradient_solves():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 8))
    matrix, target = torch.tensor(root @ root.T + np.eye(8)), torch.tensor(rng.normal(size=8))
    solution = conjugate_gradient(lambda v: matrix @ v, target, 30)
    np.testing.assert_allclose((matrix @ solution).numpy(), target.numpy(), atol=1e-8)


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
    ratio = torch.tensor([0.5, 0.5, 1.5, 1.5, 0.9, 1.1])
    cost = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    # A costly action made rarer, or a cheap one made likelier, beyond ±.2: no more pull.
    expected = ratio * cost * torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 1.0])
    assert clipped_pull(ratio, cost, 0.2).tolist() == expected.tolist()
    assert clipped_pull(ratio, cost, 0.0).tolist() == (ratio * cost).tolist()


@pytest.mark.parametrize("shape", [CATEGORICAL, GAUSSIAN, DEPENDENT], ids=["categorical", "gaussian", "dependent"])
@pytest.mark.parametrize(("clip", "bonus"), [(0.0, 0.0), (0.2, 0.1)])
def test_the_gradient_step_is_autograd_and_torchs_adam(shape, clip, bonus):
    options = DeepSettings(
        actor_batch=16, actor_epochs=3, actor_lr=0.05, clip=clip, entropy=bonus, max_grad_norm=0.3, anneal=False
    )
    parameters, states, actions = actor(shape), observations(40), some_actions(shape, 40)
    advantages = torch.tensor(np.random.default_rng(3).normal(size=(1, 40)))
    batch, rng = Batch(states, actions, advantages, advantages), np.random.default_rng(5)
    task = Task(shape, parameters, batch, 0, 1.0, np.zeros(0), 1.0, None, options, 1.0, rng)
    taken = gradient_step(task, Adam(parameters[None]))

    leaf, rng = parameters.clone().requires_grad_(True), np.random.default_rng(5)
    optimiser = torch.optim.Adam([leaf], lr=0.05)
    old = plain_log_prob(shape, parameters, states, actions)
    cost = (advantages[0] - advantages[0].mean()) / advantages[0].std(correction=0)
    for _ in range(3):
        for rows in torch.from_numpy(rng.permutation(40)).split(16):
            ratio = (plain_log_prob(shape, leaf, states[rows], actions[rows]) - old[rows]).exp()
            bounded = ratio.clamp(1 - clip, 1 + clip) if clip else ratio
            loss = torch.maximum(ratio * cost[rows], bounded * cost[rows]).mean()
            spread = networks.entropy(shape, plain(shape.sizes, shape.tail, leaf, states[rows])).mean()
            optimiser.zero_grad()
            (loss - bonus * spread).backward()
            torch.nn.utils.clip_grad_norm_([leaf], 0.3, error_if_nonfinite=True)
            optimiser.step()
    assert float((leaf.detach() - parameters).abs().max()) > 0.1
    torch.testing.assert_close(taken.parameters, leaf.detach(), rtol=1e-5, atol=1e-5)
    assert bool((task.parameters == actor(shape)).all())  # what it was given stays


@pytest.mark.parametrize("bonus", [0.0, 0.5])
def test_the_natural_step_is_along_the_solution_of_an_explicit_system(bonus):
    shape, parameters, states = CATEGORICAL, actor(CATEGORICAL), observations(40)
    actions, options = some_actions(shape, 40), DeepSettings(cg_iterations=200, kl_radius=1e-6, entropy=bonus)
    advantages = torch.tensor(np.random.default_rng(3).normal(size=(1, 40)))
    batch = Batch(states, actions, advantages, advantages)
    rng = np.random.default_rng(0)
    taken = natural_step(Task(shape, parameters, batch, 0, 1.0, np.zeros(0), 1.0, None, options, 1.0, rng))
    leaf = parameters.clone().requires_grad_(True)
    cost = (advantages[0] - advantages[0].mean()) / advantages[0].std(correction=0)
    loss = (plain_log_prob(shape, leaf, states, actions) * cost).mean()
    loss = loss - bonus * networks.entropy(shape, plain(shape.sizes, shape.tail, leaf, states)).mean()
    gradient = torch.autograd.grad(loss, leaf)[0].numpy()
    fisher = explicit_fisher(shape, parameters, states) + options.damping * np.eye(shape.length)
    solution = np.linalg.solve(fisher, gradient)
    expected = -np.sqrt(2e-6 / (gradient @ solution)) * solution
    step = (taken.parameters - parameters).numpy()
    assert step @ expected == pytest.approx(np.linalg.norm(step) * np.linalg.norm(expected), rel=1e-6)
    shrunk = np.linalg.norm(step) / np.linalg.norm(expected)
    assert min(abs(shrunk - 0.8**k) for k in range(3)) < 1e-5


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
    step, other = trust_region_step(gram, excess, 0.1), trust_region_step(gram * np.outer(units, units), excess * units[1:], 0.1)
    assert step.recovery == other.recovery
    np.testing.assert_allclose(other.weights * units, step.weights, rtol=1e-4, atol=1e-4 * np.abs(step.weights).max())


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
    task = Task(shape, parameters, batch, chosen, 1.0, np.array(excess, dtype=float), 1.0, None, options, 1.0, rng)
    return shape, task


def probabilities(shape, parameters):
    return torch.softmax(networks.actor_outputs(shape, parameters, torch.ones(1, 3)), 0)[:, 0].numpy()


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
