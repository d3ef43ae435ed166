"""Tabular environments: against the paper's tables, exact returns, Gymnasium's own checks and vector environment."""

import inspect
import json
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import scipy.sparse as sp
import yaml
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import rcac.envs
from rcac.envs.tabular import frozen_lake, garbage_collector, garnet, river_swim, shapes, window
from rcac.envs.tabular.base import TabularEnv
from rcac.envs.tabular.parts import initial_distribution
from rcac.envs.tabular.render import policy_image
from rcac.envs.tabular.simulation import RowSampler
from rcac.envs.tabular.vector import TabularVectorEnv
from rcac.errors import InputError
from rcac.evaluation import evaluate
from rcac.problem import RCMDP, compress
from rcac.uncertainty import KLBall

rcac.envs.register_envs()

IDS = ["rcac/RiverSwim-v0", "rcac/Garnet-v0", "rcac/FrozenLake-v0", "rcac/GarbageCollector-v0"]
MODELS = {
    "river_swim": river_swim.river_swim,
    "garnet": garnet.garnet,
    "frozen_lake": frozen_lake.frozen_lake,
    "garbage_collector": garbage_collector.garbage_collector,
}
CONF = Path(rcac.__file__).parent / "conf" / "env"


def make_vector(env_id: str, envs: int, **kwargs) -> TabularVectorEnv:
    return gym.make_vec(env_id, envs, vectorization_mode="vector_entry_point", **kwargs)


def another_kernel(problem: RCMDP, seed: int) -> np.ndarray:
    """Random rows, all pulled towards the state that earns least, so that returns differ from the nominal ones."""
    shape = (problem.num_states, problem.num_actions)
    kernel = 0.5 * np.random.default_rng(seed).dirichlet(np.full(problem.num_states, 0.5), shape)
    kernel[:, :, problem.costs[0].mean(axis=1).argmax()] += 0.5
    return kernel


def random_policy(problem: RCMDP, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(problem.num_actions), problem.num_states)


def exact_returns(problem: RCMDP, kernel: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """J_n = ρᵀ (I − γ P_π)⁻¹ c_n,π"""
    moves = np.einsum("sa,sat->st", policy, kernel)
    costs = np.einsum("sa,nsa->sn", policy, problem.costs)
    return problem.initial @ np.linalg.solve(np.eye(problem.num_states) - problem.discount * moves, costs)


def within_four_errors(samples: np.ndarray, truth: np.ndarray) -> bool:
    """Samples (n, …) have this mean."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return bool(np.all(np.abs(samples.mean(axis=0) - truth) <= 4 * error + 1e-6))


def nominal_program(problem: RCMDP) -> float:
    """Largest return within the budgets: a linear program over occupancies."""
    states, actions = problem.num_states, problem.num_actions
    flow = np.repeat(np.eye(states), actions, axis=0) - problem.discount * problem.kernel.reshape(-1, states)
    found = linprog(
        problem.costs[0].ravel(),
        A_ub=problem.costs[1:].reshape(-1, states * actions),
        b_ub=problem.budgets,
        A_eq=flow.T,
        b_eq=problem.initial,
    )
    assert found.success
    return -found.fun


# --- Gymnasium's interface ---


@pytest.mark.parametrize("env_id", IDS)
def test_check_env(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gym.make(env_id).unwrapped)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(gym.make(f"rcac:{env_id}"))


@pytest.mark.parametrize("env_id", IDS)
def test_step_reports_costs_and_the_limit_truncates(env_id):
    env = gym.make(env_id)
    env.reset(seed=0)
    for step in range(1, env.spec.max_episode_steps + 1):
        state, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert type(state) is int
        assert type(reward) is float
        assert type(info["cost"]) is float
        assert info["costs"].shape == (env.unwrapped.rcmdp.num_constraints,)
        assert info["cost"] == info["costs"][0]
        assert not terminated
        assert truncated == (step == env.spec.max_episode_steps)


def test_costs_are_those_of_the_state_before_the_step():
    env = TabularEnv(river_swim.river_swim())
    state, info = env.reset(seed=3)
    assert info == {}
    for _ in range(200):
        old = state
        state, reward, _, _, info = env.step(1)
        assert reward == river_swim.REWARDS[old]
        assert info["cost"] == river_swim.COSTS[old]


def test_true_costs_and_problems_without_constraints():
    kernel = np.ones((1, 2, 1))
    env = TabularEnv(RCMDP(kernel, np.array([[[3.0, 0.0]]]), np.zeros(0), np.ones(1), 0.9))
    env.reset(seed=0)
    assert env.step(0)[1] == -3.0
    _, reward, _, _, info = env.step(1)
    assert np.copysign(1, reward) == 1.0
    assert info["cost"] == 0.0
    assert info["costs"].shape == (0,)


def test_utilities_are_reported_as_costs():
    env = gym.make("rcac/Garnet-v0").unwrapped
    state, _ = env.reset(seed=0)
    _, reward, _, _, info = env.step(4)
    assert reward == -env.rcmdp.costs[0, state, 4]
    assert info["cost"] == env.rcmdp.costs[1, state, 4]
    assert env.rcmdp.signs.tolist() == [-1, -1]
    assert env.rcmdp.budgets.tolist() == [-90]


@pytest.mark.parametrize("env_id", IDS)
def test_same_seed_same_episode_and_only_then(env_id):
    def episode(seed):
        env = gym.make(env_id)
        first = env.reset(seed=seed)[0]
        return [first] + [tuple(env.step(t % 2)[i] for i in (0, 1)) for t in range(100)]

    assert episode(5) == episode(5)
    assert episode(5) != episode(6)


def test_one_hot_by_gymnasiums_wrappers():
    env = gym.wrappers.FlattenObservation(gym.make("rcac/RiverSwim-v0"))
    observation, _ = env.reset(seed=0)
    assert observation.tolist() == np.eye(6)[env.unwrapped._state].tolist()
    envs = gym.wrappers.vector.FlattenObservation(make_vector("rcac/RiverSwim-v0", 3))
    observation, _ = envs.reset(seed=0)
    assert observation.tolist() == np.eye(6)[envs.unwrapped._states].tolist()


# --- The models, against literal numbers ---


def test_river_swim_is_the_papers_table():
    problem = river_swim.river_swim()
    left = [
        [0.9, 0.1, 0, 0, 0, 0],
        [0.3, 0.6, 0.1, 0, 0, 0],
        [0, 0.3, 0.6, 0.1, 0, 0],
        [0, 0, 0.3, 0.6, 0.1, 0],
        [0, 0, 0, 0.3, 0.6, 0.1],
        [0, 0, 0, 0, 0.3, 0.7],
    ]
    right = [
        [0.7, 0.3, 0, 0, 0, 0],
        [0.1, 0.6, 0.3, 0, 0, 0],
        [0, 0.1, 0.6, 0.3, 0, 0],
        [0, 0, 0.1, 0.6, 0.3, 0],
        [0, 0, 0, 0.1, 0.6, 0.3],
        [0, 0, 0, 0, 0.1, 0.9],
    ]
    np.testing.assert_allclose(problem.kernel, np.stack([left, right], axis=1), atol=1e-15)
    for action in range(2):
        assert (-problem.costs[0, :, action]).tolist() == [0.001, 0, 0, 0, 0.1, 1]
        assert problem.costs[1, :, action].tolist() == [0.2, 0.035, 0, 0.01, 0.08, 0.9]
    assert problem.budgets.tolist() == [42]
    assert problem.discount == 0.99


LEFT, DOWN, RIGHT, UP = range(4)


@pytest.mark.parametrize("model", [frozen_lake.frozen_lake, garbage_collector.garbage_collector])
@pytest.mark.parametrize(
    ("cell", "action", "to"),
    [  # rows of the paper's table, x being the row
        ((0, 0), UP, {(0, 0): 2 / 3, (1, 0): 1 / 6, (0, 1): 1 / 6}),
        ((0, 0), LEFT, {(0, 0): 2 / 3, (1, 0): 1 / 6, (0, 1): 1 / 6}),
        ((0, 2), UP, {(0, 2): 1 / 2, (1, 2): 1 / 6, (0, 3): 1 / 6, (0, 1): 1 / 6}),
        ((2, 1), UP, {(1, 1): 1 / 2, (3, 1): 1 / 6, (2, 2): 1 / 6, (2, 0): 1 / 6}),
        ((2, 0), LEFT, {(2, 0): 1 / 2, (3, 0): 1 / 6, (1, 0): 1 / 6, (2, 1): 1 / 6}),
        ((1, 2), LEFT, {(1, 1): 1 / 2, (2, 2): 1 / 6, (1, 3): 1 / 6, (0, 2): 1 / 6}),
        ((3, 3), DOWN, {(3, 3): 2 / 3, (2, 3): 1 / 6, (3, 2): 1 / 6}),
        ((3, 1), DOWN, {(3, 1): 1 / 2, (2, 1): 1 / 6, (3, 2): 1 / 6, (3, 0): 1 / 6}),
        ((1, 1), DOWN, {(2, 1): 1 / 2, (0, 1): 1 / 6, (1, 2): 1 / 6, (1, 0): 1 / 6}),
        ((3, 3), RIGHT, {(3, 3): 2 / 3, (2, 3): 1 / 6, (3, 2): 1 / 6}),
        ((1, 3), RIGHT, {(1, 3): 1 / 2, (2, 3): 1 / 6, (0, 3): 1 / 6, (1, 2): 1 / 6}),
        ((0, 0), RIGHT, {(0, 1): 1 / 2, (1, 0): 1 / 6, (0, 0): 1 / 3}),  # two walls at 1/6 each
    ],
)
def test_moves_on_the_grid(model, cell, action, to):
    row = np.zeros(16)
    for (x, y), p in to.items():
        row[4 * x + y] = p
    np.testing.assert_allclose(model().kernel[4 * cell[0] + cell[1], action], row, atol=1e-15)


def test_frozen_lake_costs():
    problem = frozen_lake.frozen_lake()
    free, hole, goal = (0.8 * 0.05 + 0.2 * 0.01, 0.2 * 1.0), (0.0, 0.3), (1.0, 0.0)
    cells = [free, free, free, free, free, hole, free, hole, free, free, free, hole, hole, free, free, goal]
    for action in range(4):
        amounts = np.stack([-problem.costs[0, :, action], problem.costs[1, :, action]], axis=1)
        np.testing.assert_allclose(amounts, cells, atol=1e-15)
    assert problem.budgets.tolist() == [55]


def test_garbage_collector_costs():
    problem = garbage_collector.garbage_collector()
    other, goal = (0.4 * 0.01 + 0.6 * 0.001, 0.4 * 1.0 + 0.6 * 0.01), (1.0, 0.01)
    for action in range(4):
        amounts = np.stack([-problem.costs[0, :, action], problem.costs[1, :, action]], axis=1)
        np.testing.assert_allclose(amounts, [other] * 15 + [goal], atol=1e-15)
    assert problem.budgets.tolist() == [60]


def test_initial_distributions():
    assert initial_distribution("uniform", 4, 0).tolist() == [0.25] * 4
    logs = np.log(initial_distribution("softmax_normal", 100_000, 7))
    assert logs.std() == pytest.approx(1.0, abs=0.02)  # the log of a softmax of N(0, 1) is N(0, 1), shifted
    assert abs(np.mean((logs - logs.mean()) ** 3)) < 0.05
    same = [initial_distribution("softmax_normal", 6, seed).tolist() for seed in (1, 1, 2)]
    assert same[0] == same[1] != same[2]


@pytest.mark.parametrize(("initial", "best"), [("uniform", 46.4684), ("softmax_normal", 46.5784)])
def test_river_swims_nominal_optimum(initial, best):
    """No policy earns more than 46.5 (46.6 from the default's starts) at a cost of at most 42."""
    assert nominal_program(river_swim.river_swim(initial=initial)) == pytest.approx(best, abs=1e-3)


@pytest.mark.parametrize("build", MODELS.values())
def test_every_model_has_a_feasible_policy(build):
    assert nominal_program(build()) > 0


def test_garnet_draws():
    problem = garnet.garnet(60, 50, model_seed=3)
    np.testing.assert_allclose(problem.kernel.sum(axis=2), 1, atol=1e-12)
    logs = np.log(problem.kernel)
    assert (logs - logs.mean(axis=2, keepdims=True)).std() == pytest.approx(1.0, abs=0.02)
    for cost in problem.costs:  # −N(μ, 1)/10 with μ ~ U(0, 10): mean −.5, variance (100/12 + 1)/100
        assert cost.mean() == pytest.approx(-0.5, abs=4 * np.sqrt((100 / 12 + 1) / 100 / cost.size))
        assert cost.var() == pytest.approx((100 / 12 + 1) / 100, rel=0.06)
    uniform = garnet.garnet(60, 50, model_seed=3, initial="uniform")
    assert (uniform.kernel == problem.kernel).all()
    assert (uniform.costs == problem.costs).all()
    assert (garnet.garnet(60, 50, model_seed=4).costs != problem.costs).any()


def test_garnet_branching_dense_and_sparse_are_one_model():
    dense = garnet.garnet(30, 4, 5, sparse=False)
    sparse = garnet.garnet(30, 4, 5, sparse=True)
    assert not dense.sparse
    assert sparse.sparse
    assert (sparse.kernel.toarray() == dense.kernel.reshape(-1, 30)).all()
    assert ((dense.kernel > 0).sum(axis=2) == 5).all()


def test_garnet_successors_are_uniform():
    problem = garnet.garnet(40, 500, 6)
    counts = (problem.kernel > 0).sum(axis=(0, 1))  # of 20 000 sets of 6 among 40
    expected, rows = 6 / 40, 20_000
    assert np.abs(counts / rows - expected).max() < 4.5 * np.sqrt(expected * (1 - expected) / rows)


def test_garnet_is_sparse_when_it_should_be():
    assert not garnet.garnet(400, 2, 4).sparse
    assert not garnet.garnet(500, 1, 51).sparse
    problem = garnet.garnet(20_000, 3, 4)
    assert problem.sparse
    assert (np.diff(problem.kernel.indptr) == 4).all()
    env = TabularEnv(problem, render_mode="rgb_array")
    state, _ = env.reset(seed=0)
    row = problem.kernel[[state * 3 + 1]]
    assert env.step(1)[0] in row.indices
    assert env.render().shape == (
        12 * shapes.CELL + 2 * shapes.LINE_HEIGHT,
        12 * shapes.CELL,
        3,
    )  # the part with the agent


@pytest.mark.slow
def test_a_large_garnet_is_sparse():
    assert garnet.garnet(100_000, 10, 10).kernel.nnz == 10_000_000


@pytest.mark.parametrize("name", MODELS)
def test_configuration_is_the_constructors(name):
    config = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    spec = gym.spec(config["id"])
    builder = {**MODELS, "frozen_lake": frozen_lake.build, "garbage_collector": garbage_collector.build}[name]
    assert config["name"] == name
    assert config["tabular"] is True
    assert list(config["kwargs"]) == list(inspect.signature(builder).parameters)
    assert config["max_episode_steps"] == spec.max_episode_steps
    assert config["temperature"] == {"river_swim": 1000, "garnet": 50, "frozen_lake": 20, "garbage_collector": 20}[name]
    ours, default = gym.make(config["id"], **config["kwargs"]).unwrapped.rcmdp, gym.make(config["id"]).unwrapped.rcmdp
    for field in ("kernel", "costs", "budgets", "initial", "discount"):
        assert np.array_equal(getattr(ours, field), getattr(default, field))


# --- Simulation, against exact values ---


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8), st.floats(0, 1, exclude_max=True))
def test_sampler_inverts_the_distribution_function(seed, rows, width, uniform):
    rng = np.random.default_rng(seed)
    table = rng.random((rows, width)) * (rng.random((rows, width)) < 0.6)
    table[np.arange(rows), rng.integers(0, width, rows)] += 0.1  # no empty row
    table /= table.sum(axis=1, keepdims=True)
    sampler = RowSampler(compress(table))
    for u in (uniform, 0.0, np.nextafter(1.0, 0)):
        samples = sampler.sample(np.arange(rows), np.full(rows, u))
        for m, entry in enumerate(samples):
            assert table[m, entry] > 0
            below = table[m, :entry].sum()
            assert below - 1e-12 <= u <= below + table[m, entry] + 1e-12
            assert sampler.sample(m, u) == entry


def simulated_returns(envs: TabularVectorEnv, policy: np.ndarray, options: dict) -> np.ndarray:
    """Discounted costs (n, N+1) of one episode of each environment, γ being .9."""
    rng = np.random.default_rng(0)
    states, _ = envs.reset(seed=11, options=options)
    returns = np.zeros((envs.num_envs, envs.rcmdp.num_constraints + 1))
    for t in range(200):  # .9^200 < 1e-9
        actions = (rng.random((envs.num_envs, 1)) > policy.cumsum(axis=1)[states, :-1]).sum(axis=1)
        states, rewards, _, _, infos = envs.step(actions)
        returns += 0.9**t * np.column_stack([-rewards, infos["costs"]])
    return returns


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("other", [None, "dense", "sparse"])
def test_monte_carlo_agrees_with_the_exact_return(env_id, other):
    envs = make_vector(env_id, 4000, discount=0.9, max_episode_steps=None)
    problem = envs.rcmdp
    kernel = problem.kernel if other is None else another_kernel(problem, 1)
    options = {
        None: {},
        "dense": {"kernel": kernel},
        "sparse": {"kernel": sp.csr_array(kernel.reshape(-1, problem.num_states))},
    }
    policy = random_policy(problem, 2)
    returns = simulated_returns(envs, policy, options[other])
    assert within_four_errors(returns, exact_returns(problem, kernel, policy))
    if other is not None:  # and the test can tell the kernels apart
        assert not within_four_errors(returns, exact_returns(problem, problem.kernel, policy))


@pytest.mark.parametrize("env_id", IDS)
def test_monte_carlo_under_the_worst_kernels_agrees_with_the_evaluator(env_id):
    """Each cost has its own worst kernel, under which its simulated return is the worst-case one."""
    envs = make_vector(env_id, 4000, discount=0.9, max_episode_steps=None)
    policy = random_policy(envs.rcmdp, 2)
    worst = evaluate(envs.rcmdp, policy, KLBall(0.1))
    nominal = exact_returns(envs.rcmdp, envs.rcmdp.kernel, policy)
    for n, kernel in enumerate(worst.kernels):
        samples = simulated_returns(envs, policy, {"kernel": kernel})[:, n]
        assert within_four_errors(samples, worst.returns[n])
        assert not within_four_errors(samples, nominal[n])


@pytest.mark.parametrize("env_id", IDS)
def test_single_environment_agrees_with_the_exact_return(env_id):
    env = gym.make(env_id, discount=0.8).unwrapped
    kernel, policy = another_kernel(env.rcmdp, 5), random_policy(env.rcmdp, 6)
    env = gym.make(env_id, discount=0.8, kernel=kernel).unwrapped
    rng = np.random.default_rng(0)
    returns = np.zeros((300, env.rcmdp.num_constraints + 1))
    for episode in range(300):
        state, _ = env.reset(seed=None if episode else 12)
        for t in range(60):  # .8^60 < 2e-6
            action = int((rng.random() > policy[state].cumsum()[:-1]).sum())
            state, reward, _, _, info = env.step(action)
            returns[episode] += 0.8**t * np.array([-reward, *info["costs"]])
    assert within_four_errors(returns, exact_returns(env.rcmdp, kernel, policy))


@pytest.mark.parametrize("env_id", ["rcac/FrozenLake-v0", "rcac/GarbageCollector-v0"])
def test_simulated_costs_have_the_models_as_expectation(env_id):
    """Mean reward and cost of the first step, for every state and action, each environment with its own marks."""
    n = 40_000
    envs = make_vector(env_id, n, initial="uniform")
    for action in range(4):
        states, _ = envs.reset(seed=action)
        _, rewards, _, _, infos = envs.step(np.full(n, action))
        for state in range(16):
            here = states == state
            samples = np.column_stack([-rewards[here], infos["cost"][here]])
            assert len(samples) > 2000
            assert within_four_errors(samples, envs.rcmdp.costs[:, state, action])


def outcomes(env_id: str, episodes: int, steps: int) -> list[dict[int, set]]:
    """For each episode, what each state was seen to give: (reward, cost), rounded."""
    env = gym.make(env_id).unwrapped
    outcomes_seen = []
    for episode in range(episodes):
        state, _ = env.reset(seed=episode)
        outcomes_seen.append({s: set() for s in range(16)})
        for t in range(steps):
            old = state
            state, reward, _, _, info = env.step((t + episode) % 4)
            outcomes_seen[-1][old].add((round(reward, 12), round(info["cost"], 12)))
    return outcomes_seen


def test_obstacles_stay_for_an_episode():
    seen = outcomes("rcac/FrozenLake-v0", 30, 300)
    assert all(len(found) <= 1 for episode in seen for found in episode.values())
    together = [set.union(*(episode[s] for episode in seen)) for s in range(16)]
    for state in range(16):
        if state == 15:
            assert together[state] == {(1.0, 0.0)}
        elif state in (5, 7, 11, 12):
            assert together[state] == {(0.0, 0.3)}
        else:
            assert together[state] == {(0.01, 1.0), (0.05, 0.0)}


def test_blockages_and_garbage_change_at_every_step():
    (seen,) = outcomes("rcac/GarbageCollector-v0", 1, 4000)
    assert seen[15] == {(1.0, 0.01)}
    for state in range(15):
        assert seen[state] == {(0.001, 0.01), (0.01, 0.01), (0.001, 1.0), (0.01, 1.0)}


def test_the_kernel_of_the_options_stays_until_another_is_given():
    problem = river_swim.river_swim()
    stay = np.repeat(np.eye(6)[:, None], 2, axis=1)
    env = TabularEnv(problem)

    def moves(options):
        start, _ = env.reset(seed=0, options=options)
        return any(env.step(1)[0] != start for _ in range(50))

    assert moves(None)
    assert not moves({"kernel": stay})
    assert not moves(None)  # still
    assert not moves({})
    assert moves({"kernel": None})
    start, _ = TabularEnv(problem, kernel=sp.csr_array(stay.reshape(12, 6))).reset(seed=0)
    env = TabularEnv(problem, kernel=sp.csr_array(stay.reshape(12, 6)))
    env.reset(seed=0)
    assert all(env.step(1)[0] == start for _ in range(50))


def through_json(state: dict) -> dict:
    """Through JSON and back."""
    lists = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in state.items()}
    return json.loads(json.dumps(lists))


@pytest.mark.parametrize("env_id", IDS)
def test_a_state_can_be_restored(env_id):
    env = gym.make(env_id, max_episode_steps=30)
    env.reset(seed=1)
    for t in range(20):
        env.step(t % 2)
    saved = through_json(env.unwrapped.get_state())
    later = gym.make(env_id, max_episode_steps=30)
    later.reset(seed=99)
    later.unwrapped.set_state(saved)
    later.set_wrapper_attr("_elapsed_steps", int(saved["steps"]))

    def continue_from(env):
        steps = [env.step(t % 2) for t in range(10)]
        return [(*step[:4], step[4]["cost"]) for step in steps] + [env.reset()[0], env.step(0)[0]]

    assert continue_from(env) == continue_from(later)


# --- Vector environment ---


def same(one, other) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_of_one_is_gymnasiums_vector_of_one(env_id, mode):
    ours = make_vector(env_id, 1, max_episode_steps=7, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: gym.make(env_id, max_episode_steps=7)], autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] is theirs.metadata["autoreset_mode"]
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert same(ours.reset(seed=4)[0], theirs.reset(seed=4)[0])
    for t in range(40):
        action = np.array([t % 2])
        mine, reference = ours.step(action), theirs.step(action)
        for a, b in zip(mine[:4], reference[:4], strict=True):
            assert a.dtype == b.dtype
            assert same(a, b)
        missing = {key for key in mine[4] if key not in reference[4]}
        # Ours are always there; theirs are missing when no environment has any.
        assert missing == (set() if mine[4]["_cost"].any() else {"cost", "_cost", "costs", "_costs"})
        assert same({key: mine[4][key] for key in reference[4]}, reference[4])


class Tape:
    """A generator that replays what another has sampled."""

    def __init__(self, source=None):
        self.source, self.samples = source, []

    def random(self, size=None):
        if self.source is None:
            found = self.samples.pop(0)
            assert found.shape == (() if size is None else size)
            return found
        self.samples.append(self.source.random(size))
        return self.samples[-1]


@pytest.mark.parametrize("env_id", IDS)
def test_each_environment_is_a_single_one_with_the_same_random_numbers(env_id):
    envs = make_vector(env_id, 5, max_episode_steps=None)
    envs.np_random = tape = Tape(np.random.default_rng(3))
    first, _ = envs.reset()
    actions = np.random.default_rng(4).integers(0, 2, (60, 5))
    steps = [envs.step(row) for row in actions]
    for i in range(5):
        single = gym.make(env_id).unwrapped
        single.np_random = mine = Tape()
        mine.samples = [draws[i] for draws in tape.samples]
        assert single.reset()[0] == first[i]
        for row, (states, rewards, _, _, infos) in zip(actions, steps, strict=True):
            state, reward, _, _, info = single.step(int(row[i]))
            assert (state, reward, info["cost"]) == (states[i], rewards[i], infos["cost"][i])
            assert same(info["costs"], infos["costs"][i])


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_state_can_be_restored(env_id, mode):
    def made():
        return make_vector(env_id, 4, max_episode_steps=9, autoreset_mode=mode)

    envs, later = made(), made()
    envs.reset(seed=2)
    for _ in range(9):  # NEXT_STEP: resets are pending
        envs.step(np.array([0, 1, 0, 1]))
    later.set_state(through_json(envs.get_state()))
    for t in range(30):
        actions = (np.arange(4) + t) % 2
        for a, b in zip(envs.step(actions), later.step(actions), strict=True):
            assert same(a, b)


def test_returned_arrays_are_not_reused():
    envs = make_vector("rcac/RiverSwim-v0", 2)
    first, _ = envs.reset(seed=0)
    saved = first.copy()
    results = envs.step(np.array([0, 1]))
    results[0][:] = -1
    results[3][:] = True
    envs.step(np.array([0, 1]))
    assert (first == saved).all()
    assert (envs._states >= 0).all()
    assert not envs._pending.any()


# --- Anybody's problem ---


def test_register_rcmdp_from_a_file_and_from_an_object(tmp_path, monkeypatch):
    problem = garnet.garnet(7, 3, 2, sparse=True, model_seed=5)
    monkeypatch.chdir(tmp_path)
    problem.save("mine.npz")
    rcac.envs.register_rcmdp("me/File-v0", "mine.npz", max_episode_steps=12)
    rcac.envs.register_rcmdp("me/Object-v0", problem)
    monkeypatch.chdir("/")
    assert json.loads(gym.spec("me/File-v0").to_json())["kwargs"] == {"problem": str(tmp_path / "mine.npz")}
    for env_id, limit in (("me/File-v0", 12), ("me/Object-v0", 1000)):
        env = gym.make(env_id)
        assert env.spec.max_episode_steps == limit
        check_env(env.unwrapped, skip_render_check=False)
        loaded = env.unwrapped.rcmdp
        assert (loaded.kernel.toarray() == problem.kernel.toarray()).all()
        assert (loaded.costs == problem.costs).all()
        assert make_vector(env_id, 3).reset(seed=0)[0].shape == (3,)


def test_register_rcmdp_rejects_what_is_no_problem(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    for path in (tmp_path / "bad.npz", tmp_path / "absent.npz"):
        with pytest.raises(InputError, match="path"):
            rcac.envs.register_rcmdp("me/Bad-v0", path)
    assert "me/Bad-v0" not in gym.registry


# --- Pictures ---


def has(image: np.ndarray, colour: tuple) -> bool:
    return bool((image == np.array(colour, dtype=np.uint8)).all(axis=2).sum() > 20)


@pytest.mark.parametrize(
    ("env_id", "cells", "colours"),
    [
        ("rcac/RiverSwim-v0", (1, 6), {shapes.GOAL, shapes.HAZARD}),
        ("rcac/FrozenLake-v0", (4, 4), {shapes.GOAL, shapes.HAZARD, shapes.HOLE}),
        ("rcac/GarbageCollector-v0", (4, 4), {shapes.GOAL, shapes.HAZARD, shapes.GARBAGE}),
        ("rcac/Garnet-v0", (2, 12), set()),
    ],
)
def test_pictures_show_agent_hazards_and_goal(env_id, cells, colours):
    env = gym.make(env_id, render_mode="rgb_array")
    env.reset(seed=1)
    frame = env.render()
    assert frame.dtype == np.uint8
    image, words = np.split(frame, [cells[0] * shapes.CELL])
    assert image.shape == (cells[0] * shapes.CELL, cells[1] * shapes.CELL, 3)
    assert len(words) % shapes.LINE_HEIGHT == 0
    assert all(has(words, colour) for colour in {*colours, shapes.INK} - {shapes.LINE})  # the legend shows each thing
    for colour in {shapes.GOAL, shapes.HAZARD, shapes.HOLE, shapes.GARBAGE}:
        assert has(image, colour) == (colour in colours)
    row, column = divmod(env.unwrapped._state, cells[1])
    tile = image[row * shapes.CELL : (row + 1) * shapes.CELL, column * shapes.CELL : (column + 1) * shapes.CELL]
    assert has(tile, shapes.AGENT)
    assert (image == np.array(shapes.AGENT)).all(axis=2).sum() == (tile == np.array(shapes.AGENT)).all(axis=2).sum()
    env.unwrapped.policy = np.eye(env.action_space.n)[np.zeros(env.observation_space.n, dtype=int)]
    assert (env.render() == np.array(shapes.INK)).all(axis=2).sum() > (image == np.array(shapes.INK)).all(axis=2).sum()


def test_arrows_are_as_long_as_the_probability():
    def ink(p):
        image = policy_image(gym.make("rcac/RiverSwim-v0"), np.array([[1 - p, p]] * 6))
        right = image[40:56, 2 * shapes.CELL + 48 : 3 * shapes.CELL]  # beside the middle of island 2
        columns = np.flatnonzero((right == np.array(shapes.INK)).all(axis=2).any(axis=0))
        return columns.max() if len(columns) else 0

    lengths = [ink(p) for p in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert lengths[0] == 0
    np.testing.assert_allclose(np.diff(lengths[1:]), 0.25 * 0.26 * shapes.CELL, atol=2)


def test_policy_image_of_a_grid_and_of_an_environment():
    values = np.linspace(-3, 1e6, 15)
    image = policy_image((3, 5), np.full((15, 3), 1 / 3), values)
    assert image.shape == (3 * shapes.CELL, 5 * shapes.CELL, 3)
    assert has(image[-shapes.CELL :, -shapes.CELL :], shapes.HIGH)
    assert not has(image[: shapes.CELL], shapes.HIGH)
    assert policy_image(gym.make("rcac/FrozenLake-v0"), values=np.ones(16)).shape == (
        4 * shapes.CELL,
        4 * shapes.CELL,
        3,
    )
    for bad in (dict(values=np.ones(14)), dict(policy=np.ones((4, 3))), dict(values=np.full(15, np.nan))):
        with pytest.raises(InputError, match=next(iter(bad))):
            policy_image((3, 5), **bad)


def test_texts():
    env = gym.make("rcac/FrozenLake-v0", render_mode="ansi", obstacle_probability=0.0)
    state, _ = env.reset(seed=1)
    cells = [" . "] * 16
    for s, letter in {5: "H", 7: "H", 11: "H", 12: "H", 15: "G"}.items():
        cells[s] = f" {letter} "
    cells[state] = f"[{cells[state][1]}]"
    rows = env.render().splitlines()
    assert rows[:4] == ["".join(cells[i : i + 4]) for i in (0, 4, 8, 12)]
    assert rows[4:] == [f"state {state} of 0 to 15", "H hole, G goal"]
    env.unwrapped.policy = np.eye(4)[np.full(16, UP)]
    assert "H↑" in env.render()
    assert "policy 0.000 0.000 0.000 1.000" in env.render()
    envs = make_vector("rcac/Garnet-v0", 2, render_mode="ansi")
    envs.reset(seed=0)
    assert [text.count("[.]") for text in envs.render()] == [1, 1]


def test_titles_count_rewards_and_utilities_in_their_own_sign():
    env = gym.make("rcac/Garnet-v0", render_mode="rgb_array")
    env.reset(seed=0)
    reward, utility = (sum(x) for x in zip(*((r, -i["cost"]) for _, r, *_, i in map(env.step, [3, 1])), strict=True))
    said = env.unwrapped._sums_in_words()
    assert [text.partition(", ")[2] for text in said] == [f"so far {reward:.4g}", f"so far {utility:.4g}"]
    assert [text.split(" ")[0] for text in said] == ["reward", "utility"]


def test_a_window_shows_every_step_without_a_warning(recwarn, monkeypatch):
    shown, closed = [], []

    class Screen:
        def __init__(self, title, frames_per_second):
            assert (title, frames_per_second) == ("RiverSwim", 4)

        show = shown.append

        def close(self):
            closed.append(True)

    monkeypatch.setattr("rcac.envs.tabular.base.Window", Screen)
    env = gym.make("rcac/RiverSwim-v0", render_mode="human")
    env.reset(seed=0)
    env.step(1)
    assert env.render() is None
    env.close()
    assert len(shown) == 3
    assert shown[0].shape[2] == 3
    assert closed == [True]
    assert not recwarn.list


def test_a_window_of_pygame():
    screen = window.Window("river", 1000)
    for size in ((20, 30, 3), (20, 40, 3)):
        screen.show(np.zeros(size, dtype=np.uint8))
        assert screen._screen.get_size() == size[1::-1]
    screen.close()
    screen.close()


def test_a_window_without_pygame(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match=r"rcac\[video\]"):
        window.Window("river", 4)


# --- Bad input ---


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("rcac/RiverSwim-v0", {"initial": "left"}, "initial: 'left'"),
        ("rcac/RiverSwim-v0", {"discount": 1.0}, "discount: 1.0"),
        ("rcac/RiverSwim-v0", {"costs": [1.0]}, "costs: 1 given for 6 rewards"),
        ("rcac/RiverSwim-v0", {"costs": [np.nan] * 6}, "costs"),
        ("rcac/RiverSwim-v0", {"model_seed": -1}, "model_seed: -1"),
        ("rcac/RiverSwim-v0", {"policy": np.ones((6, 3))}, "policy: shape"),
        ("rcac/RiverSwim-v0", {"kernel": np.ones((2, 6, 6)) / 6}, r"kernel: shape \(2, 6, 6\)"),
        ("rcac/RiverSwim-v0", {"kernel": np.ones((6, 2, 6))}, r"kernel\[0, 0\]: sums to 6"),
        ("rcac/RiverSwim-v0", {"rewards": "abc"}, "rewards: 'abc'"),
        ("rcac/RiverSwim-v0", {"rewards": 1.0}, "rewards: 1.0"),
        ("rcac/RiverSwim-v0", {"budget": "much"}, "budgets"),
        ("rcac/Garnet-v0", {"sparse": "yes"}, "sparse: 'yes'"),
        ("rcac/Garnet-v0", {"branching": 16}, "branching: 16"),
        ("rcac/Garnet-v0", {"num_states": 2.5}, "num_states: 2.5"),
        ("rcac/FrozenLake-v0", {"obstacle_probability": 1.2}, "obstacle_probability: 1.2"),
        ("rcac/FrozenLake-v0", {"desc": ["SF", "FXG"]}, "desc"),
        ("rcac/FrozenLake-v0", {"desc": ["SF", "XG"]}, r"desc\[1\]\[0\]: 'X'"),
        ("rcac/FrozenLake-v0", {"costs": {"whole": 1.0}}, "costs: 'whole'"),
        ("rcac/FrozenLake-v0", {"rewards": {"hole": np.inf}}, r"rewards\['hole'\]: inf"),
        ("rcac/GarbageCollector-v0", {"slip": -0.1}, "slip: -0.1"),
        ("rcac/GarbageCollector-v0", {"size": 1}, "size: 1"),
    ],
)
def test_bad_arguments(env_id, kwargs, message):
    with pytest.raises(InputError, match=message):
        gym.make(env_id, **kwargs)


def test_bad_use():
    env = TabularEnv(river_swim.river_swim())
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.get_state()
    with pytest.raises(InputError, match="render_mode: 'loud'"):
        TabularEnv(env.rcmdp, render_mode="loud")
    with pytest.raises(InputError, match="render_mode: 'human' given"):
        make_vector("rcac/RiverSwim-v0", 2, render_mode="human")
    env.reset(seed=0)
    for action in (2, -1, 0.5, None, "left"):
        with pytest.raises(InputError, match="action"):
            env.step(action)
    with pytest.raises(InputError, match="options: 'kernal'"):
        env.reset(options={"kernal": None})
    kernel = env.rcmdp.kernel.copy()
    kernel[3, 1] *= 2
    with pytest.raises(InputError, match=r"kernel\[3, 1\]"):
        env.reset(options={"kernel": kernel})
    saved = env.get_state()
    for change in ({"state": 6}, {"state": [1, 2]}, {"generator": {"name": "none"}}, {"marked": [1]}):
        with pytest.raises(InputError, match=next(iter(change))):
            env.set_state({**saved, **change})


def test_bad_vectors():
    envs = make_vector("rcac/RiverSwim-v0", 3)
    with pytest.raises(gym.error.ResetNeeded):
        envs.step(np.zeros(3, dtype=int))
    envs.reset(seed=0)
    for actions in ([0, 1], [0.0, 1.0, 0.0], [0, 1, 2], [0, -1, 0]):
        with pytest.raises(InputError, match="actions"):
            envs.step(np.array(actions))
    for wrong in ({"autoreset_mode": "Disabled"}, {"max_episode_steps": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            make_vector("rcac/RiverSwim-v0", 3, **wrong)
    with pytest.raises(InputError, match="num_envs"):
        make_vector("rcac/RiverSwim-v0", 0)


def test_every_frame_of_a_film_has_one_size():
    env = gym.make("rcac/GarbageCollector-v0", render_mode="rgb_array")
    env.reset(seed=0)
    shapes_seen = {env.render().shape}
    for step in range(6):  # garbage and blockages come and go
        env.step(step % 4)
        shapes_seen.add(env.render().shape)
    assert len(shapes_seen) == 1
    env.unwrapped.set_state(env.unwrapped.get_state())
    assert env.render().shape in shapes_seen
