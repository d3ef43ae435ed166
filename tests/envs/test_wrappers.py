"""Perturbation and cost wrappers, on a scripted environment and on Gymnasium's own."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from scipy import stats

from rcac.envs.wrappers import ActionNoise, CostFromInfo, CostFunction, EnvironmentFault, Guard, ObservationNoise
from rcac.errors import InputError


class Scripted(gym.Env):
    """Counts steps in its observation, remembers the action, and returns what it is told at each step."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space: ClassVar[gym.Space] = gym.spaces.Discrete(4, start=2)

    def __init__(self, infos=(), rewards=(), observations=(), action_space=None):
        self.script = {"info": list(infos), "reward": list(rewards), "observation": list(observations)}
        self.buffer = np.zeros(3, dtype=np.float32)  # the same array for every observation
        self.action = None
        if action_space is not None:
            self.action_space = action_space

    def told(self, what, default):
        return self.script[what].pop(0) if self.script[what] else default

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.buffer[:] = 0
        return self.told("observation", self.buffer), {}

    def step(self, action):
        self.action = action
        self.buffer += 1
        info = self.told("info", {"cost": 0.5})
        if isinstance(info, Exception):
            raise info
        return self.told("observation", self.buffer), self.told("reward", 1.0), False, False, info


if "tests/Scripted-v0" not in gym.registry:
    gym.register("tests/Scripted-v0", Scripted)


def make(**kwargs):
    return gym.make("tests/Scripted-v0", disable_env_checker=True, **kwargs)


def observations(env, seed, steps=20):
    action = env.action_space.sample() if isinstance(env.action_space, gym.spaces.Box) else env.action_space.start
    return np.array([env.reset(seed=seed)[0]] + [env.step(action)[0].copy() for _ in range(steps)])


# Observation noise


def test_observation_noise_is_uniform_from_the_first_observation_on():
    errors = []
    env = ObservationNoise(make(), [-1.0, 0.0, 2.0], [1.0, 0.5, 2.0])
    for _ in range(400):
        errors.append(observations(env, None, 4) - np.arange(5)[:, None])
    errors = np.stack(errors)  # (400, 5, 3)
    for step in (0, 4):
        assert stats.kstest(errors[:, step, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
        assert stats.kstest(errors[:, step, 1], stats.uniform(0, 0.5).cdf).pvalue > 1e-3
    assert errors[..., 2] == pytest.approx(2.0)


def test_observation_noise_stays_in_the_space():
    env = ObservationNoise(make(), 100.0, 200.0)
    seen = observations(env, 0)
    assert seen.dtype == np.float32
    assert (seen == 10).all()


def test_no_observation_noise_is_the_environment_itself():
    assert np.array_equal(observations(ObservationNoise(make(), 0, 0), 0), observations(make(), 0))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: ObservationNoise(env, -0.1, 0.1),
        lambda env: ActionNoise(env, 0.3),
        lambda env: ActionNoise(ObservationNoise(env, -0.1, 0.1), 0.3),
    ],
)
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_same_seed_same_trajectory(wrap, env_id):
    def trajectory(seed):
        env = wrap(gym.make(env_id))
        env.action_space.seed(0)
        seen = [env.reset(seed=seed)[0]]
        for _ in range(8):
            seen.append(env.step(env.action_space.sample())[0])
        return np.array([*seen, env.reset()[0], env.step(env.action_space.sample())[0]])

    assert np.array_equal(trajectory(1), trajectory(1))
    assert not np.array_equal(trajectory(1), trajectory(2))


def test_noise_leaves_the_draws_of_the_environment_alone():
    noisy, clean = ObservationNoise(gym.make("CartPole-v1"), 0, 0.1), gym.make("CartPole-v1")
    noisy.reset(seed=3), clean.reset(seed=3)
    noisy.reset(), clean.reset()
    assert np.array_equal(noisy.unwrapped.state, clean.unwrapped.state)


def test_stacked_noises_are_independent():
    inner = ObservationNoise(make(), 0, 1)
    outer = ObservationNoise(inner, 0, 1)
    inner_noise, outer_noise = [], []
    inner_observe = inner._observe
    inner._observe = lambda o: inner_noise.append(inner_observe(o) - o) or inner_noise[-1] + o
    for seen in observations(outer, 0, 8):
        outer_noise.append(seen - len(outer_noise) - inner_noise[len(outer_noise)])
    assert not np.allclose(inner_noise, outer_noise, atol=1e-3)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 0.0, "^low: "),
        (float("nan"), 1.0, "^low: nan given, finite"),
        (0.0, float("inf"), "^high: inf given"),
        ([0, 0], 1.0, r"^low: \[0, 0\] given, .*\(3,\)"),
        ("a", 1.0, "^low: 'a' given"),
    ],
)
def test_wrong_observation_noise_is_named(low, high, message):
    with pytest.raises(InputError, match=message):
        ObservationNoise(make(), low, high)


def test_observation_noise_needs_numbers():
    with pytest.raises(InputError, match="FrozenLake-v1 observes Discrete"):
        ObservationNoise(gym.make("FrozenLake-v1"), 0, 1)


# Action noise


def test_flips_are_to_the_other_actions_evenly():
    env = ActionNoise(make(), 0.6)
    env.reset(seed=0)
    actions_taken = []
    for _ in range(6000):
        env.step(3)
        actions_taken.append(int(env.unwrapped.action))
    counts = [actions_taken.count(a) for a in (2, 3, 4, 5)]
    assert sum(counts) == 6000
    assert stats.chisquare(counts, [1200, 2400, 1200, 1200]).pvalue > 1e-3


def test_actions_that_are_always_flipped_are_valid_and_different():
    env = ActionNoise(make(), 1.0)
    env.reset(seed=0)
    for action in (2, 3, 4, 5) * 20:
        env.step(action)
        assert env.unwrapped.action != action
        assert env.action_space.contains(env.unwrapped.action)


def test_continuous_actions_get_gaussian_noise():
    space = gym.spaces.Box(np.float32([-1, -100]), np.float32([1, 100]), dtype=np.float32)
    env = ActionNoise(make(action_space=space), 0.5)
    env.reset(seed=0)
    actions_taken = []
    for _ in range(3000):
        env.step(np.array([0.9, 10.0], dtype=np.float32))
        actions_taken.append(env.unwrapped.action)
    first, second = np.array(actions_taken).T
    assert space.contains(actions_taken[0])
    assert stats.kstest(second, stats.norm(10, 0.5).cdf).pvalue > 1e-3
    assert (first == 1).mean() == pytest.approx(1 - stats.norm.cdf(0.2), abs=0.04)
    assert first.max() == 1


def test_no_action_noise_passes_actions_on():
    env = ActionNoise(make(), 0.0)
    env.reset(seed=0)
    action = np.int64(3)
    env.step(action)
    assert env.unwrapped.action is action


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), "x", None, [0.1]])
def test_wrong_flips_are_named(strength):
    with pytest.raises(InputError, match=r"^strength: "):
        ActionNoise(make(), strength)


def test_wrong_action_spaces_are_named():
    for space in (gym.spaces.MultiBinary(2), gym.spaces.Discrete(1)):
        with pytest.raises(InputError, match="tests/Scripted-v0 takes"):
            ActionNoise(make(action_space=space), 0.1)
    with pytest.raises(InputError, match="standard deviation"):
        ActionNoise(gym.make("Pendulum-v1"), float("inf"))
    with pytest.raises(InputError, match="strength: 'x' given, a number expected"):
        ActionNoise(gym.make("Pendulum-v1"), "x")


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_gymnasium_accepts_wrapped_environments(env_id):
    env = Guard(CostFunction(ActionNoise(ObservationNoise(gym.make(env_id), 0, 0.1), 0.1), lambda *_: 1.0))
    with pytest.warns(UserWarning, match="different from the unwrapped version"):
        check_env(env, skip_render_check=True)


# Costs


@pytest.mark.parametrize(
    ("key", "info", "costs"),
    [
        ("cost_sum", {"cost_sum": 3}, [3.0]),
        ("cost_sum", {"cost_sum": np.float32(0.5), "cost": 9.0}, [0.5]),
        (["metrics", "cost"], {"metrics": {"cost": 2.0}}, [2.0]),
        ("all", {"all": [1, 2, 3]}, [1.0, 2.0, 3.0]),
    ],
)
def test_cost_from_info(key, info, costs):
    env = CostFromInfo(make(infos=[info]), key)
    env.reset(seed=0)
    *_, result = env.step(2)
    assert result["cost"] == costs[0]
    assert type(result["cost"]) is float
    assert result["costs"].tolist() == costs
    assert result["costs"].dtype == np.float64
    assert {k: v for k, v in result.items() if k not in ("cost", "costs")} == {
        k: v for k, v in info.items() if k != "cost"
    }
    assert "costs" not in info  # the environment's own dictionary is left alone


@pytest.mark.parametrize(
    ("key", "info", "message"),
    [
        ("risk", {"a": 1, "b": 2}, "'risk' is missing from what has 'a', 'b'"),
        (["a", "risk"], {"a": {"b": 2}}, "'risk' is missing from what has 'b'"),
        (["a", "risk"], {"a": 7.0}, "'risk' is missing from what is 7.0"),
        ("a", {"a": "high"}, "the cost is 'high'"),
        ("a", {"a": []}, r"the costs have shape \(0,\)"),
        ("a", {"a": np.zeros((2, 2))}, r"the costs have shape \(2, 2\)"),
    ],
)
def test_a_missing_cost_names_environment_and_step(key, info, message):
    good = {"risk": 1.0, "a": {"risk": 1.0}} if key != "a" else {"a": 1.0}
    env = CostFromInfo(make(infos=[good, good, info]), key)
    env.reset(seed=0)
    env.step(2)
    env.reset()
    env.step(2)
    with pytest.raises(EnvironmentFault, match=f"tests/Scripted-v0, episode 2, step 2: .*{message}"):
        env.step(2)


def test_an_environment_without_id_is_named_by_its_class():
    env = CostFromInfo(Scripted(), "risk")
    env.reset()
    with pytest.raises(EnvironmentFault, match=r"^Scripted, episode 1, step 1: "):
        env.step(2)


@pytest.mark.parametrize("key", [[], 3.0, ["a", 1]])
def test_a_wrong_key_is_named(key):
    with pytest.raises(InputError, match=r"^key: "):
        CostFromInfo(make(), key)


def test_cost_function_sees_the_transition():
    calls = []

    def cost(observation, action, next_observation, reward, info):
        calls.append((observation.tolist(), action, next_observation.tolist(), reward, info["cost"]))
        return [10.0 * len(calls), 1]

    env = CostFunction(make(rewards=[7.0]), cost)
    env.reset(seed=0)
    results = [env.step(3)[-1], env.step(4)[-1]]
    assert calls == [([0, 0, 0], 3, [1, 1, 1], 7.0, 0.5), ([1, 1, 1], 4, [2, 2, 2], 1.0, 0.5)]
    assert [r["cost"] for r in results] == [10.0, 20.0]
    assert results[1]["costs"].tolist() == [20.0, 1.0]


def test_a_cost_function_must_be_a_function():
    with pytest.raises(InputError, match=r"^function: 'abs\(x\)' given"):
        CostFunction(make(), "abs(x)")


def test_costs_reach_vector_environments():
    wrap = lambda: Guard(CostFunction(gym.make("CartPole-v1"), lambda o, a, n, r, i: [abs(n[0]), a]))  # noqa: E731
    envs = gym.vector.SyncVectorEnv([wrap, wrap])
    envs.reset(seed=0)
    seen, *_, infos = envs.step(np.array([1, 0]))
    assert infos["cost"] == pytest.approx(np.abs(seen[:, 0]))
    assert infos["costs"][:, 1].tolist() == [1.0, 0.0]


# The guard

nan = float("nan")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"rewards": [1.0, nan]}, "the reward is not finite: nan"),
        ({"rewards": [1.0, np.float64("-inf")]}, "the reward is not finite"),
        ({"observations": [np.zeros(3), np.zeros(3), np.array([0, nan, 0])]}, "the observation is not finite"),
        ({"observations": [{}, {}, {"a": (np.zeros(2), [np.inf])}]}, "the observation is not finite"),
        ({"infos": [{"cost": 1.0}, {"cost": nan}]}, "the cost is not finite"),
        ({"infos": [{"costs": [1.0, 2.0]}, {"costs": [1.0, np.inf]}]}, "the cost is not finite"),
        ({"infos": [{"cost": 1.0}, {"coast": 1.0}]}, "no cost: info has 'coast'"),
        ({"infos": [{"cost": 1.0}, {}]}, "no cost: info has nothing"),
        ({"infos": [{"cost": 1.0}, {"costs": [1.0, 2.0]}]}, "2 costs, 1 before"),
        ({"infos": [{"cost": 1.0}, {"cost": None}]}, "the cost is (None|not finite)"),
        ({"infos": [{"cost": 1.0}, ZeroDivisionError("by zero")]}, r"step raised ZeroDivisionError\('by zero'\)"),
    ],
)
def test_the_guard_names_environment_and_step(script, message):
    env = Guard(make(**script))
    env.reset(seed=0)
    env.step(2)
    with pytest.raises(EnvironmentFault, match=f"^tests/Scripted-v0, episode 1, step 2: {message}"):
        env.step(2)


def test_the_guard_keeps_the_cause():
    env = Guard(make(infos=[ZeroDivisionError("by zero")]))
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault) as caught:
        env.step(2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_guard_looks_at_the_first_observation():
    with pytest.raises(EnvironmentFault, match="episode 1, step 0: the observation"):
        Guard(make(observations=[np.array([nan, 0, 0])])).reset(seed=0)


def test_a_fault_below_the_guard_passes_through_it():
    env = Guard(CostFromInfo(make(), "risk"))
    env.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="step 1: no cost under") as caught:
        env.step(2)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("info", [{"cost": np.float32(2)}, {"costs": (2, 5)}])
def test_the_guard_writes_costs_in_the_one_form(info):
    env = Guard(make(infos=[info]))
    env.reset(seed=0)
    *_, result = env.step(2)
    assert type(result["cost"]) is float
    assert result["cost"] == 2.0
    assert result["costs"].tolist() == [2.0, 5.0][: result["costs"].size]


def test_the_guard_changes_nothing_that_is_right():
    plain, guarded = gym.make("CartPole-v1"), Guard(CostFunction(gym.make("CartPole-v1"), lambda *_: 0.0))
    assert data_equivalence(guarded.reset(seed=0), plain.reset(seed=0), exact=True)
    for action in (0, 1, 1, 0):
        assert data_equivalence(guarded.step(action)[:4], plain.step(action)[:4], exact=True)


def test_wrapped_environments_can_be_made_again_from_their_spec():
    env = Guard(CostFromInfo(ActionNoise(ObservationNoise(gym.make("CartPole-v1"), 0, 0.1), 0.2), "cost"))
    again = gym.make(env.spec)
    assert str(again) == str(env)
    assert np.array_equal(again.reset(seed=4)[0], env.reset(seed=4)[0])
