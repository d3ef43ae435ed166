"""NoisyCartPole against Gymnasium's CartPole, against the equations of motion, and against itself, one and many."""

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rcac.envs import ENVIRONMENTS, register_envs
from rcac.envs.control.cartpole import NoisyCartPole
from rcac.envs.control.cartpole_vector import NoisyCartPoleVector
from rcac.errors import InputError

register_envs()
PLAIN, TRADEOFF = IDS = ["rcac/NoisyCartPole-v0", "rcac/CartPoleTradeoff-v0"]
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
DETERMINISTIC = {"wind": 1.5, "mass": 2.0, "length": 0.7, "gravity": 1.2, "force": 0.9}
PERTURBATIONS = {
    "none": {},
    "observation": {"noise_high": 0.04},
    "state": {"noise_target": "state", "noise_low": -0.02, "noise_high": 0.03},
    "flips": {"action_flip": 0.2},
    "physics": DETERMINISTIC,
    "all, observed": {"noise_low": -0.01, "noise_high": 0.1, "action_flip": 0.1, **DETERMINISTIC},
    "all, on the state": {"noise_target": "state", "noise_high": 0.02, "action_flip": 0.1, **DETERMINISTIC},
}


def make_vector(env_id=PLAIN, num_envs=16, **kwargs):
    return gym.make_vec(env_id, num_envs=num_envs, vectorization_mode="vector_entry_point", **kwargs)


def balance(observation, target=0.0):
    """A hand-made controller that keeps the pole up and the cart about `target`."""
    x, x_dot, theta, theta_dot = np.asarray(observation, dtype=float).T
    lean = 1.0 * np.clip(x - target, -0.5, 0.5) + 1.7 * x_dot + 18.0 * theta + 3.5 * theta_dot
    return (lean > 0).astype(np.int64)


# Registration


def test_registering_twice_changes_nothing():
    before = dict(gym.registry)
    register_envs()
    assert dict(gym.registry) == before
    assert {row.id for row in ENVIRONMENTS} <= set(before)
    assert all(gym.spec(env_id).max_episode_steps == 500 for env_id in IDS)


def test_registering_loads_nothing_heavy():
    code = (
        "import sys, rcac.envs; rcac.envs.register_envs();"
        "light = [m for m in sys.modules if m.startswith('rcac.envs.control.')];"
        "import gymnasium; gymnasium.make('rcac/NoisyCartPole-v0').reset();"
        "heavy = [m for m in ('torch', 'matplotlib', 'pygame') if m in sys.modules];"
        "sys.exit(str(light + heavy) if light + heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kwargs", PERTURBATIONS.values(), ids=PERTURBATIONS)
@pytest.mark.parametrize("env_id", IDS)
def test_gymnasium_accepts_it(env_id, kwargs):
    check_env(gym.make(env_id, **kwargs).unwrapped, skip_render_check=True)


# Without perturbation it is Gymnasium's CartPole


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("balanced", [False, True])
def test_without_perturbation_it_is_cartpole(seed, balanced):
    ours, theirs = gym.make(PLAIN), gym.make("CartPole-v1")
    actions = np.random.default_rng(seed)
    (seen, info), (expected, _) = ours.reset(seed=seed), theirs.reset(seed=seed)
    assert info == {}
    ends = 0
    for _ in range(1100):
        assert seen.dtype == expected.dtype
        assert seen.tobytes() == expected.tobytes()
        action = int(balance(seen)) if balanced else int(actions.integers(2))
        seen, *rest, info = ours.step(action)
        expected, *truth, _ = theirs.step(action)
        assert rest == truth
        x = float(theirs.unwrapped.state[0])
        assert info["cost"] == abs(x)
        assert info["costs"].tolist() == [abs(x)]
        assert info["costs"].dtype == np.float64
        if truth[1] or truth[2]:
            ends += 1
            (seen, _), (expected, _) = ours.reset(), theirs.reset()
    assert ends == 2 if balanced else ends > 10
    assert ours.unwrapped.np_random.bit_generator.state == theirs.unwrapped.np_random.bit_generator.state


@pytest.mark.parametrize("policy", [balance, lambda seen: (seen[:, 2] > 0).astype(np.int64)])
def test_without_perturbation_the_vector_is_gymnasiums(policy):
    ours, theirs = make_vector(num_envs=64), gym.make_vec("CartPole-v1", 64, "vector_entry_point")
    seen, expected = ours.reset(seed=3)[0], theirs.reset(seed=3)[0]
    for _ in range(1100):
        assert np.array_equal(seen, expected)
        action = policy(seen)
        seen, *rest, _ = ours.step(action)
        expected, *truth, _ = theirs.step(action)
        assert all(map(np.array_equal, rest, truth))
    assert ours.np_random.bit_generator.state == theirs.np_random.bit_generator.state


def test_steps_after_the_end_earn_nothing_as_in_cartpole():
    ours, theirs = NoisyCartPole(), gym.make("CartPole-v1").unwrapped
    ours.reset(seed=0), theirs.reset(seed=0)
    with pytest.warns(UserWarning, match="call reset"):
        earned = [ours.step(1)[1] for _ in range(20)]
    with pytest.warns(UserWarning, match="call 'reset"):
        expected = [theirs.step(1)[1] for _ in range(20)]
    assert earned == expected
    assert earned[-1] == 0.0


# The vector environment is n single ones


class Columns:
    """Random numbers for n environments: each column has a generator of its own, used in the order of a single environment."""

    def __init__(self, env, seed):
        self.env = env
        self.generators = [np_random(seed + i)[0] for i in range(env.num_envs)]
        self.restarted = np.arange(env.num_envs)

    def pending(self):
        return set(np.flatnonzero(self.env.prev_done))

    def ended(self):
        if self.env.state is None:
            return np.arange(self.env.num_envs)
        if self.env.prev_done.any():
            return np.flatnonzero(self.env.prev_done)
        x, _, theta, _ = np.abs(self.env.state)
        steps = self.env.steps >= self.env.max_episode_steps
        return np.flatnonzero(steps | (x > 2.4) | (theta > self.env.theta_threshold_radians))

    def random(self, size):
        return np.array([1.0 if i in self.pending() else g.random() for i, g in enumerate(self.generators)])

    def uniform(self, low, high, size):
        if (low, high) == (self.env.low, self.env.high):
            which = self.restarted = self.ended()
        else:
            which = np.arange(self.env.num_envs) if size[1] == self.env.num_envs else self.restarted
        idle = self.pending() if self.env.perturbation.noise_target == "state" and low != self.env.low else set()
        columns = [np.zeros(4) if i in idle else self.generators[i].uniform(low, high, 4) for i in which]
        assert (4, len(columns)) == size
        return np.stack(columns, axis=1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kwargs", PERTURBATIONS.values(), ids=PERTURBATIONS)
@pytest.mark.parametrize("env_id", IDS)
def test_the_vector_is_n_single_environments(env_id, kwargs, mode):
    num_envs, limit = 6, 40
    sync = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    single = gym.make_vec(env_id, num_envs=num_envs, max_episode_steps=limit, **sync, **kwargs)
    vector = make_vector(env_id, num_envs, max_episode_steps=limit, autoreset_mode=mode, **kwargs)
    assert vector.metadata["autoreset_mode"] is single.metadata["autoreset_mode"] is mode
    expected, _ = single.reset(seed=11)
    vector.np_random = Columns(vector, 11)
    seen, infos = vector.reset()
    assert infos == {}
    actions = np.random.default_rng(0)
    terminations = truncations = 0
    for t in range(250):
        assert seen.dtype == expected.dtype
        assert np.array_equal(seen, expected), t
        action = balance(seen)
        action[:3] = actions.integers(0, 2, 3)  # three environments fall, three last
        seen, reward, terminated, truncated, infos = vector.step(action)
        expected, *truth, about = single.step(action)
        assert np.array_equal(reward, truth[0])
        assert reward.dtype == truth[0].dtype
        assert np.array_equal(terminated, truth[1])
        assert np.array_equal(truncated, truth[2])
        terminations, truncations = terminations + terminated.sum(), truncations + truncated.sum()
        for key in about.keys() | infos.keys():
            if key in about:
                assert data_equivalence(infos[key], about[key], exact=True), key
            else:  # every environment ended: Gymnasium leaves the key out, ours says that none has it
                assert not infos["_" + key.removeprefix("_")].any()
        assert infos["cost"].shape == (num_envs,)
        assert infos["costs"].shape == (num_envs, 1)
    assert truncations > 0
    assert terminations > 0


@pytest.mark.parametrize("mode", MODES)
def test_one_environment_samples_as_the_single_one(mode):
    """With real generators: the same seed, the same stream."""
    single = gym.make_vec(PLAIN, 1, "sync", vector_kwargs={"autoreset_mode": mode}, noise_high=0.1)
    vector = make_vector(PLAIN, 1, autoreset_mode=mode, noise_high=0.1)
    seen, expected = vector.reset(seed=5)[0], single.reset(seed=5)[0]
    for action in np.random.default_rng(1).integers(0, 2, (300, 1)):
        assert np.array_equal(seen, expected)
        seen, expected = vector.step(action)[0], single.step(action)[0]


def test_returned_arrays_are_not_changed_by_later_steps():
    vector = make_vector(num_envs=4, autoreset_mode="SameStep", max_episode_steps=3)
    vector.reset(seed=0)
    results = [vector.step(np.ones(4, dtype=np.int64)) for _ in range(3)]
    copies = [(seen.copy(), infos["cost"].copy()) for seen, *_, infos in results]
    finals = [row.copy() for row in results[-1][-1]["final_obs"]]
    for _ in range(5):
        vector.step(np.zeros(4, dtype=np.int64))
    assert all(np.array_equal(a, b) for a, b in zip(finals, results[-1][-1]["final_obs"], strict=True))
    for (seen, *_, infos), (seen_then, cost_then) in zip(results, copies, strict=True):
        assert np.array_equal(seen, seen_then)
        assert np.array_equal(infos["cost"], cost_then)


# Physics and perturbations


scale = st.floats(0.3, 3.0)
angle = st.floats(-0.2, 0.2)
speed = st.floats(-2.0, 2.0)


@given(scale, scale, scale, scale, st.floats(-5, 5), st.tuples(speed, speed, angle, speed), st.integers(0, 1))
def test_accelerations_solve_the_equations_of_motion(mass, length, gravity, force, wind, state, action):
    """Lagrange's equations for a cart M and a uniform pole (m, half-length l), with every constant scaled by hand.

    (M + m) ẍ + m l cos θ θ̈ = F + m l θ̇² sin θ,    m l cos θ ẍ + 4/3 m l² θ̈ = m g l sin θ
    """
    env = NoisyCartPole(mass=mass, length=length, gravity=gravity, force=force, wind=wind)
    env.reset(seed=0)
    env.set_state({**env.get_state(), "state": np.array(state)})
    env.step(action)
    m, l, g = 0.1 * mass, 0.5 * length, 9.8 * gravity
    f = 10.0 * force * (1 if action else -1) + wind
    _, x_dot, theta, theta_dot = state
    matrix = [[1.0 + m, m * l * np.cos(theta)], [m * l * np.cos(theta), 4 / 3 * m * l**2]]
    x_acc, theta_acc = np.linalg.solve(matrix, [f + m * l * theta_dot**2 * np.sin(theta), m * g * l * np.sin(theta)])
    truth = np.array(state) + 0.02 * np.array([x_dot, x_acc, theta_dot, theta_acc])
    assert env.get_state()["state"] == pytest.approx(truth, rel=1e-9, abs=1e-9)


def test_noise_on_the_observation_is_uniform_and_leaves_the_state_alone():
    noisy, clean = make_vector(num_envs=256, noise_low=-0.01, noise_high=0.05), make_vector(num_envs=256)
    noisy.reset(seed=0), clean.reset(seed=0)
    clean.set_state(noisy.get_state())
    errors = []
    for _ in range(30):
        action = balance(clean.state.T)
        seen, *_, infos = noisy.step(action)
        *_, expected = clean.step(action)
        assert np.array_equal(infos["cost"], expected["cost"])
        errors.append(seen - noisy.state.T)
        assert np.array_equal(noisy.state, clean.state)
    errors = np.concatenate(errors)  # (7680, 4)
    for column in errors.T:
        assert stats.kstest(column, stats.uniform(-0.01, 0.06).cdf).pvalue > 1e-3
    assert np.abs(np.corrcoef(errors.T) - np.eye(4)).max() < 0.05


def test_the_first_observation_is_noisy_too():
    vector = make_vector(num_envs=2000, noise_low=1.0, noise_high=2.0)
    seen, _ = vector.reset(seed=0)
    error = seen[:, 1] - vector.state[1]
    assert stats.kstest(error, stats.uniform(1, 1).cdf).pvalue > 1e-3


def test_noise_on_the_state_moves_the_cart():
    felt, clean = make_vector(num_envs=256, noise_target="state", noise_high=0.04), make_vector(num_envs=256)
    felt.reset(seed=0), clean.reset(seed=0)
    kicks = []
    for _ in range(4):
        action = balance(felt.state.T)
        clean.set_state(felt.get_state())
        seen, *_, infos = felt.step(action)
        clean.step(action)
        assert np.array_equal(seen, felt.state.T.astype(np.float32))
        assert np.array_equal(infos["cost"], np.abs(felt.state[0]))
        kicks.append(felt.state - clean.state)
    for row in np.concatenate(kicks, axis=1):
        assert stats.kstest(row, stats.uniform(0, 0.04).cdf).pvalue > 1e-3


@pytest.mark.parametrize("target", ["observation", "state"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_noise_is_clipped_to_the_bounds(target, sign):
    env = NoisyCartPole(noise_target=target, noise_low=10.0 * sign, noise_high=10.0 * sign)
    env.reset(seed=0)
    seen, _, terminated, _, info = env.step(1)
    bounds = [4.8, 24 * np.pi / 180]
    assert (sign * seen[[0, 2]]).tolist() == pytest.approx(bounds, rel=1e-6)
    assert env.observation_space.contains(seen)
    assert sign * seen[1] == pytest.approx(10, abs=0.5)
    assert terminated == (target == "state")
    assert info["cost"] == pytest.approx(4.8 if target == "state" else 0.0, abs=0.06)


def test_flips():
    always, clean = make_vector(num_envs=64, action_flip=1.0), make_vector(num_envs=64)
    always.reset(seed=0)
    clean.reset(seed=0)
    action = np.random.default_rng(0).integers(0, 2, 64)
    assert np.array_equal(always.step(action)[0], clean.step(1 - action)[0])
    often = make_vector(num_envs=20000, action_flip=0.3)
    often.reset(seed=0)
    before = often.state[1].copy()
    often.step(np.ones(20000, dtype=np.int64))
    assert (often.state[1] < before).mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 20000))


def test_same_seed_same_trajectory():
    def trajectory(seed):
        env = gym.make(PLAIN, **PERTURBATIONS["all, observed"])
        seen = [env.reset(seed=seed)[0]]
        return np.array(seen + [env.step(t % 2)[0] for t in range(15)])

    assert np.array_equal(trajectory(1), trajectory(1))
    assert not np.array_equal(trajectory(1), trajectory(2))


# The trade-off


@pytest.mark.parametrize(("x", "expected"), [(0, 1), (1, 1), (-0.4, 1 + 11 / 36), (-1.2, 1.75), (-2.4, 2), (-3, 2)])
def test_reward_for_being_left(x, expected):
    env = gym.make(TRADEOFF).unwrapped
    env.reset(seed=0)
    env.set_state({**env.get_state(), "state": np.array([x, 0.0, 0.0, 0.0])})
    _, reward, _, _, info = env.step(0)
    assert reward == pytest.approx(expected, abs=1e-12)
    assert info["cost"] == abs(x)


@given(st.lists(st.floats(-2.4, 2.4), min_size=1, max_size=50))
def test_the_budget_bounds_the_return(path):
    reward = gym.make(TRADEOFF).unwrapped
    rewards = reward._reward(reward, np.array(path))
    d = np.mean(np.abs(path)) / 2.4
    assert np.mean(rewards) <= 1 + d * (2 - d) + 1e-12


def episodes(target, **kwargs):
    """Mean return and cost of the hand-made controller over 128 episodes of 500 steps."""
    env = make_vector(TRADEOFF, 128, autoreset_mode="SameStep", **kwargs)
    seen, _ = env.reset(seed=0)
    returns, costs, alive = np.zeros(128), np.zeros(128), np.ones(128, dtype=bool)
    for _ in range(500):
        seen, reward, terminated, truncated, infos = env.step(balance(seen, target))
        cost = infos["cost"] + (infos["final_info"]["cost"] if "final_info" in infos else 0)
        returns += alive * reward
        costs += alive * cost
        alive &= ~(terminated | truncated)
    return returns.mean(), costs.mean()


def test_return_and_cost_pull_apart_and_perturbations_push_over_the_budget():
    centre, edge, far = episodes(0.0), episodes(-0.4), episodes(-1.5)
    assert centre[0] < edge[0] < far[0]
    assert centre[1] < edge[1] < 200 < far[1]
    assert edge[0] <= 652.8
    for kwargs in ({"noise_high": 0.04}, {"wind": 2.0}):
        assert episodes(-0.4, **kwargs)[1] > 200


# Saving and restoring


def through_json(state):
    """Arrays as lists and the generator as it is, to text and back."""
    plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in state.items()}
    return json.loads(json.dumps(plain))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kwargs", PERTURBATIONS.values(), ids=PERTURBATIONS)
def test_a_restored_vector_continues_exactly(kwargs, mode):
    env = make_vector(autoreset_mode=mode, max_episode_steps=30, **kwargs)
    other = make_vector(autoreset_mode=mode, max_episode_steps=30, **kwargs)
    env.reset(seed=0, options={"low": -0.02, "high": 0.1})
    other.reset(seed=99)
    actions = iter(np.random.default_rng(0).integers(0, 2, (200, 16)))
    for _ in range(77):
        env.step(next(actions))
    while mode is AutoresetMode.NEXT_STEP and not env.prev_done.any():
        env.step(next(actions))
    state = env.get_state()
    assert state["steps"].any()
    assert state["pending"].any() == (mode is AutoresetMode.NEXT_STEP)
    saved = through_json(state)
    remaining = list(actions)
    assert len(remaining) > 60
    first = [env.step(action) for action in remaining]
    assert data_equivalence(through_json(state), saved, exact=True)  # the snapshot is a copy
    other.set_state(saved)
    for action, expected in zip(remaining, first, strict=True):
        assert data_equivalence(other.step(action), expected, exact=True)
    assert data_equivalence(other.get_state(), env.get_state(), exact=True)


def test_a_restored_environment_continues_exactly():
    env, other = (gym.make(PLAIN, max_episode_steps=50, **PERTURBATIONS["observation"]) for _ in range(2))
    env.reset(seed=0)
    env.step(0)
    seen, _ = env.reset()
    other.reset(seed=1)
    for _ in range(20):
        seen, *_ = env.step(int(balance(seen)))
    saved = through_json(env.unwrapped.get_state())
    for _ in range(7):
        other.step(0)
    other.unwrapped.set_state(saved)
    other.set_wrapper_attr("_elapsed_steps", int(saved["steps"]))
    for t in range(30):
        expected, actual = env.step(int(balance(seen))), other.step(int(balance(seen)))
        assert data_equivalence(actual, expected, exact=True)
        seen = actual[0]
        assert actual[3] == (t == 29)
    assert np.array_equal(env.reset()[0], other.reset()[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"state": np.zeros((4, 3))}, r"state: shape \(4, 3\) given, \(4, 2\) expected"),
        ({"state": np.full((4, 2), np.nan)}, r"state: not finite at index \[0, 0\]"),
        ({"steps": "many"}, "steps: 'many' given"),
        ({"generator": {"bit_generator": "MT19937"}}, "generator: .* PCG64 expected"),
        ({"generator": None}, "generator: None given"),
    ],
)
def test_a_wrong_state_is_rejected(change, message):
    vector = make_vector(num_envs=2)
    vector.reset(seed=0)
    before = vector.get_state()
    with pytest.raises(InputError, match=message):
        vector.set_state(before | change)
    assert data_equivalence(vector.get_state(), before, exact=True)


def test_a_state_with_a_missing_field_is_rejected():
    vector = make_vector(num_envs=2)
    vector.reset(seed=0)
    with pytest.raises(InputError, match="pending: missing"):
        vector.set_state({k: v for k, v in vector.get_state().items() if k != "pending"})


@pytest.mark.parametrize("env", [NoisyCartPole(), NoisyCartPoleVector()])
def test_reset_comes_first(env):
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(1, dtype=np.int64))
    with pytest.raises(gym.error.ResetNeeded):
        env.get_state()


# Arguments


@pytest.mark.parametrize("build", [NoisyCartPole, NoisyCartPoleVector])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise_target", "pole"),
        ("noise_low", 0.1),
        ("noise_high", -0.1),
        ("noise_high", float("nan")),
        ("action_flip", 1.5),
        ("action_flip", -0.1),
        ("wind", float("inf")),
        ("wind", "strong"),
        ("mass", -1.0),
        ("length", 0.0),
        ("gravity", float("nan")),
        ("force", True),
        ("reward", "left"),
    ],
)
def test_a_wrong_argument_is_named(build, name, value):
    shown = "noise_low" if name == "noise_high" and value == -0.1 else name
    with pytest.raises(InputError, match=f"^{shown}: "):
        build(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("num_envs", 0), ("max_episode_steps", 2.5), ("autoreset_mode", AutoresetMode.DISABLED)]
)
def test_a_wrong_vector_argument_is_named(name, value):
    with pytest.raises(InputError, match=f"^{name}: "):
        NoisyCartPoleVector(**{name: value})


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.array([0, 1, 2]), r"action\[2\]: 2 given"),
        (np.array([0, -1, 1]), r"action\[1\]: -1 given"),
        (np.zeros(3), "float64"),
        (np.zeros(2, dtype=int), r"shape \(2,\)"),
    ],
)
def test_a_wrong_action_is_named(action, message):
    vector = make_vector(num_envs=3)
    vector.reset(seed=0)
    with pytest.raises(InputError, match=message):
        vector.step(action)
    single = NoisyCartPole()
    single.reset(seed=0)
    with pytest.raises(InputError, match="action: 2 given"):
        single.step(2)


def test_a_fixed_start_is_at_zero_for_one_copy_and_for_many():
    env = gym.make("rcac/NoisyCartPole-v0", start="fixed")
    envs = gym.make_vec("rcac/NoisyCartPole-v0", 3, "vector_entry_point", start="fixed")
    for _ in range(2):
        np.testing.assert_array_equal(env.reset()[0], 0)
        np.testing.assert_array_equal(envs.reset()[0], 0)
    for _ in range(30):  # all fall, and start again
        seen, *_, info = envs.step(np.ones(3, int))
        if not info["_cost"].any():
            np.testing.assert_array_equal(seen, 0)
            break
    else:
        raise AssertionError("no episode ended")
    with pytest.raises(InputError, match="start: 'left' given, one of 'random', 'fixed' expected"):
        gym.make("rcac/NoisyCartPole-v0", start="left")


def test_what_it_cannot_draw_is_refused_when_it_is_made():
    with pytest.raises(InputError, match="render_mode: 'ansi' given"):
        NoisyCartPole(render_mode="ansi")
