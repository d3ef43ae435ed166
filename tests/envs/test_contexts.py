"""Contexts: taken at a reset, kept for the episode, and in a vector environment each its own."""

import json
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode

from rcac.envs import contexts, register_envs
from rcac.envs.contexts import Parameter
from rcac.envs.perturbed import Perturbed
from rcac.envs.rebuilt import Rebuilt
from rcac.errors import InputError

register_envs()
PLAIN, TRADEOFF = "rcac/NoisyCartPole-v0", "rcac/CartPoleTradeoff-v0"
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
NAMES = ["noise_low", "noise_high", "action_flip", "wind", "mass", "length", "gravity", "force"]


def as_saved(state):
    """A state after a trip through a file of plain data."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    return arrays | json.loads(json.dumps({name: value for name, value in state.items() if name not in arrays}))


def play(env, actions, seed=None):
    """Observations and rewards; a new episode where one ends."""
    rows = [env.reset(seed=seed)[0]]
    for action in actions:
        seen, reward, terminated, truncated, _ = env.step(action)
        rows += [seen, [reward]]
        if terminated or truncated:
            rows.append(env.reset()[0])
    return np.concatenate(rows)


# One cart-pole


def test_the_parameters_are_the_numbers_it_is_made_with():
    known = contexts.parameters(gym.make(PLAIN, noise_high=0.04, wind=3.0))
    assert list(known) == NAMES
    assert known["noise_high"] == Parameter(0.0, 0.1, 0.04, "linear")
    assert known["wind"] == Parameter(-2.0, 3.0, 3.0, "linear")  # the range includes it
    assert known["length"] == Parameter(0.5, 2.0, 1.0, "log")
    assert contexts.parameters(gym.make("CartPole-v1")) == {}


CONTEXTS = [
    {"wind": 1.5, "length": 0.7},
    {"noise_low": -0.02, "noise_high": 0.05, "action_flip": 0.3},
    {"mass": 2.0, "gravity": 1.2, "force": 0.8},
]


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_context_is_what_the_arguments_are(context):
    actions = np.random.default_rng(0).integers(0, 2, 120)
    env, made = gym.make(PLAIN, noise_target="state"), gym.make(PLAIN, noise_target="state", **context)
    nominal = play(env, actions, seed=0)
    contexts.set_context(env, context)
    changed = play(env, actions, seed=0)
    assert changed.tobytes() == play(made, actions, seed=0).tobytes()
    assert not np.array_equal(changed, nominal)
    contexts.set_context(env, {})  # what is not named is nominal
    assert play(env, actions, seed=0).tobytes() == nominal.tobytes()


def test_a_context_stays_for_the_episode():
    env = gym.make(PLAIN).unwrapped
    env.reset(seed=0)
    env.set_context({"length": 2.0})
    env.step(0)
    assert (env.context["length"], env.length) == (1.0, 0.5)
    env.reset()
    assert (env.context["length"], env.length, env.polemass_length) == (2.0, 1.0, 0.1 * 1.0)
    env.reset()
    assert env.context["length"] == 2.0


def test_a_state_has_its_contexts():
    env, other = gym.make(PLAIN).unwrapped, gym.make(PLAIN).unwrapped
    env.set_context({"length": 2.0, "noise_high": 0.1})
    env.reset(seed=0)
    env.set_context({"wind": 1.0})
    state = as_saved(env.get_state())
    other.reset(seed=3)
    other.set_state(state)
    actions = [0, 1, 1, 0]
    assert all(np.array_equal(env.step(a)[0], other.step(a)[0]) for a in actions)
    assert np.array_equal(env.reset()[0], other.reset()[0])
    assert env.context == other.context == env.next_context
    assert all(np.array_equal(env.step(a)[0], other.step(a)[0]) for a in actions)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"winds": 1.0}, "context: 'winds' given, one of noise_low, noise_high,"),
        ({"wind": float("inf")}, "wind: "),
        ({"wind": "strong"}, "wind: 'strong' given"),
        ({"length": 0.0}, "length: 0.0 given, a positive factor expected"),
        ({"action_flip": 1.5}, "action_flip: 1.5 given, a probability in [0, 1] expected"),
        ({"noise_low": 0.2}, "noise_low: 0.2 given, at most noise_high = 0.0 expected"),
    ],
)
def test_bad_contexts_are_named_and_change_nothing(context, words):
    env, envs = gym.make(PLAIN), gym.make_vec(PLAIN, 2, "vector_entry_point")
    for target, setting in ((env, contexts.set_context), (envs, contexts.set_contexts)):
        with pytest.raises(InputError) as caught:
            setting(target, context)
        assert str(caught.value).startswith(words.split("given")[0] if target is envs else words)
    assert env.unwrapped.next_context["wind"] == 0.0
    assert envs.next_contexts["length"].tolist() == [1.0, 1.0]


def test_numbers_of_contexts_are_checked():
    envs = gym.make_vec(PLAIN, 3, "vector_entry_point")
    with pytest.raises(InputError, match=r"wind: .* 3 numbers expected"):
        envs.set_contexts({"wind": [1.0, 2.0]})
    with pytest.raises(InputError, match=r"length: .*-1.* given, a positive factor"):
        envs.set_contexts({"length": [1.0, -1.0, 2.0]})


# Many cart-poles


class Columns:
    """Draws for n environments, each column from its own generator, in the order in which a single one would draw."""

    def __init__(self, env, seed):
        self.env = env
        self.generators = [np_random(seed + i)[0] for i in range(env.num_envs)]
        self.restarted = np.arange(env.num_envs)

    def own(self, name):
        return np.broadcast_to(getattr(self.env.perturbation, name), self.env.num_envs)

    def random(self, size):
        """For flips: no draw where there are none, nor of one that this step resets."""
        draws = (self.own("action_flip") > 0) & ~self.env.prev_done
        return np.array([g.random() if draw else 1.0 for g, draw in zip(self.generators, draws, strict=True)])

    def uniform(self, low, high, size):
        if np.ndim(low) == 0 and (low, high) == (self.env.low, self.env.high):
            self.restarted = self._ended(size[1])
            return np.stack([self.generators[i].uniform(low, high, 4) for i in self.restarted], axis=1)
        which = np.arange(self.env.num_envs) if size[1] == self.env.num_envs else self.restarted
        idle = self.env.prev_done if self.env.perturbation.noise_target == "state" else np.zeros(99, dtype=bool)
        lows, highs = np.broadcast_to(low, len(which)), np.broadcast_to(high, len(which))
        columns = [
            np.zeros(4) if idle[i] or (a, b) == (0, 0) else self.generators[i].uniform(a, b, 4)
            for i, a, b in zip(which, lows, highs, strict=True)
        ]
        return np.stack(columns, axis=1)

    def _ended(self, count):
        if self.env.state is None or count == self.env.num_envs:
            return np.arange(self.env.num_envs)
        if self.env.prev_done.any():
            return np.flatnonzero(self.env.prev_done)
        x, _, theta, _ = np.abs(self.env.state)
        steps = self.env.steps >= self.env.max_episode_steps
        return np.flatnonzero(steps | (x > 2.4) | (theta > self.env.theta_threshold_radians))


def mixed(rng, num_envs):
    """Contexts that differ in everything, some of them without noise or flips."""
    off = rng.random((3, num_envs)) < 0.4
    return {
        "noise_low": np.where(off[0], 0.0, rng.uniform(-0.03, 0.0, num_envs)),
        "noise_high": np.where(off[0], 0.0, rng.uniform(0.0, 0.04, num_envs)),
        "action_flip": np.where(off[1], 0.0, rng.uniform(0.0, 0.3, num_envs)),
        "wind": rng.uniform(-2, 2, num_envs),
        **{name: np.where(off[2], 1.0, rng.uniform(0.5, 2.0, num_envs)) for name in ("mass", "length", "gravity")},
        "force": rng.uniform(0.7, 1.3, num_envs),
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["observation", "state"])
@pytest.mark.parametrize("env_id", [PLAIN, TRADEOFF])
def test_the_vector_is_n_single_environments_in_contexts_of_their_own(env_id, target, mode):
    num_envs, limit, rng = 7, 25, np.random.default_rng(1)
    sync = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    single = gym.make_vec(env_id, num_envs, max_episode_steps=limit, noise_target=target, **sync)
    vector = gym.make_vec(
        env_id, num_envs, "vector_entry_point", max_episode_steps=limit, noise_target=target, autoreset_mode=mode
    )
    for envs in (single, vector):
        contexts.set_contexts(envs, mixed(np.random.default_rng(0), num_envs))
    expected, _ = single.reset(seed=11)
    vector.np_random = Columns(vector, 11)
    seen, _ = vector.reset()
    ended = np.zeros(num_envs)
    for t in range(160):
        assert np.array_equal(seen, expected), t
        if t % 50 == 40:
            chosen = mixed(rng, num_envs)
            contexts.set_contexts(single, chosen)
            contexts.set_contexts(vector, chosen)
        action = (seen[:, 2] + 0.3 * seen[:, 3] > 0).astype(np.int64)
        action[:2] = rng.integers(0, 2, 2)
        seen, *rest, infos = vector.step(action)
        expected, *truth, about = single.step(action)
        assert all(map(np.array_equal, rest, truth)), t
        assert all(data_equivalence(infos[key], about[key], exact=True) for key in about)
        ended += truth[1] | truth[2]
        ours, theirs = contexts.contexts_of(vector), contexts.contexts_of(single)
        assert ours.keys() == theirs.keys() == set(NAMES)
        assert all(np.array_equal(ours[name], theirs[name]) for name in NAMES)
    assert (ended >= 3).all()


def test_each_takes_its_context_at_its_own_reset():
    envs = gym.make_vec(PLAIN, 2, "vector_entry_point")
    envs.reset(seed=0)
    envs.set_contexts({"wind": [1.0, 2.0]})
    steps = 0
    while not envs.step(np.array([1, steps % 2]))[2][0]:  # the first falls
        steps += 1
        assert envs.contexts["wind"].tolist() == [0.0, 0.0]
    envs.step(np.array([0, 0]))
    assert envs.contexts["wind"].tolist() == [1.0, 0.0]
    envs.reset()
    assert envs.contexts["wind"].tolist() == [1.0, 2.0]


def test_a_vector_state_has_its_contexts():
    def made():
        envs = gym.make_vec(PLAIN, 5, "vector_entry_point", max_episode_steps=12)
        envs.reset(seed=4)
        return envs

    envs, other, rng = made(), made(), np.random.default_rng(0)
    envs.set_contexts(mixed(rng, 5))
    actions = rng.integers(0, 2, (60, 5))
    for action in actions[:20]:
        envs.step(action)
    envs.set_contexts(mixed(rng, 5))
    other.set_state(as_saved(envs.get_state()))
    for action in actions[20:]:
        assert np.array_equal(envs.step(action)[0], other.step(action)[0])
    assert all(np.array_equal(envs.contexts[name], other.contexts[name]) for name in NAMES)


# Through Gymnasium's vector environments


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_single_environments_are_reached_in_a_vector(mode):
    envs = gym.make_vec(PLAIN, 2, mode)
    try:
        assert contexts.parameters(envs) == contexts.parameters(gym.make(PLAIN))
        contexts.set_contexts(envs, {"wind": [1.0, -1.0], "length": 2.0})
        assert contexts.contexts_of(envs)["wind"].tolist() == [0.0, 0.0]
        envs.reset(seed=0)
        assert contexts.contexts_of(envs)["wind"].tolist() == [1.0, -1.0]
        assert contexts.contexts_of(envs)["length"].tolist() == [2.0, 2.0]
    finally:
        envs.close()


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_an_environment_without_contexts_says_so(mode):
    envs = gym.make_vec("CartPole-v1", 2, mode)
    try:
        assert contexts.parameters(envs) == {}
        assert contexts.contexts_of(envs) == {}
        with pytest.raises(InputError, match="has no parameters"):
            contexts.set_contexts(envs, {"wind": [1.0, -1.0]})
        with pytest.raises(InputError, match="has no parameters"):
            contexts.set_context(gym.make("CartPole-v1"), {"wind": 1.0})
    finally:
        envs.close()


# Any environment: noise and delay


class Echo(gym.Env):
    """It observes how many steps it took, earns what was done, and remembers it."""

    def __init__(self, discrete=False, gain=1, start=0.0):
        self.observation_space = gym.spaces.Box(-1e4, 1e4, (2,), np.float64)
        self.action_space = gym.spaces.Discrete(3, start=5) if discrete else gym.spaces.Box(-1, 1, (2,), np.float64)
        self.gain, self.start = gain, start
        self.done, self.steps = [], 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.done, self.steps = [], 0
        return np.full(2, self.start + 10 * self.np_random.random()), {}

    def step(self, action):
        self.done.append(action)
        self.steps += 1
        return np.full(2, float(self.steps)), self.gain * float(np.sum(action)), False, False, {"cost": 1.0}


def run(env, actions, seed=0):
    """What was seen, and what was done."""
    seen = [env.reset(seed=seed)[0], *(env.step(action)[0] for action in actions)]
    return np.array(seen), np.array(env.unwrapped.done)


CONTINUOUS = np.random.default_rng(0).uniform(-1, 1, (400, 2))
CHOICES = np.random.default_rng(0).integers(5, 8, 4000)


def test_without_perturbation_nothing_changes():
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        plain, wrapped = gym.make(env_id), Perturbed(gym.make(env_id))
        actions = [plain.action_space.sample() for _ in range(150)]
        assert play(plain, actions, seed=0).tobytes() == play(wrapped, actions, seed=0).tobytes()
        assert {p.nominal for name, p in wrapped.context_parameters.items() if name != "action_scale"} == {0.0}


def test_what_fits_depends_on_the_spaces():
    anywhere = {"sticky_action", "action_delay", "observation_delay"}
    assert set(Perturbed(Echo()).context_parameters) == anywhere | {"action_scale", "action_noise", "observation_noise"}
    assert set(Perturbed(Echo(discrete=True)).context_parameters) == anywhere | {"action_flip", "observation_noise"}
    assert set(Perturbed(gym.make("rcac/RiverSwim-v0")).context_parameters) == anywhere | {"action_flip"}


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_delays(delay):
    env = Perturbed(Echo())
    env.set_context({"action_delay": delay + 0.3})  # rounded to whole steps
    seen, done = run(env, CONTINUOUS[:20])
    assert np.array_equal(seen[1:, 0], np.arange(1, 21))
    assert np.array_equal(done[delay:], CONTINUOUS[: 20 - delay])
    assert (done[:delay] == CONTINUOUS[0]).all()
    env.set_context({"observation_delay": delay})
    seen, done = run(env, CONTINUOUS[:20])
    assert np.array_equal(done, CONTINUOUS[:20])
    assert np.array_equal(seen[delay + 1 :, 0], np.arange(1, 21 - delay))
    assert (seen[: delay + 1] == seen[0]).all()


def test_sticky_actions():
    env = Perturbed(Echo(discrete=True), sticky_action=0.25)
    _, done = run(env, CHOICES)
    repeated = np.mean(done[1:] != CHOICES[1:])  # a repeated action may be the one that was asked for: 2 of 3 are not
    assert repeated == pytest.approx(0.25 * 2 / 3, abs=4 * np.sqrt(0.14 / 4000))
    changed = np.flatnonzero(done[1:] != CHOICES[1:]) + 1
    assert np.array_equal(done[changed], done[changed - 1])


def test_flips_are_of_the_other_actions_equally():
    env = Perturbed(Echo(discrete=True))
    env.set_context({"action_flip": 0.4})
    _, done = run(env, CHOICES)
    counts = np.bincount((done - CHOICES) % 3, minlength=3) / len(done)
    assert counts == pytest.approx([0.6, 0.2, 0.2], abs=4 * np.sqrt(0.24 / 4000))
    assert set(done) == {5, 6, 7}


def test_scale_and_noise_on_an_action():
    env = Perturbed(Echo())
    env.set_context({"action_scale": 0.5})
    assert np.array_equal(run(env, CONTINUOUS)[1], 0.5 * CONTINUOUS)
    env.set_context({"action_scale": 3.0})
    assert np.array_equal(run(env, CONTINUOUS)[1], np.clip(3.0 * CONTINUOUS, -1, 1))
    env.set_context({"action_noise": 0.1})
    error = run(env, np.zeros((2000, 2)))[1]
    assert error.std() == pytest.approx(0.1, rel=0.1)
    assert np.abs(np.mean(error)) < 4 * 0.1 / np.sqrt(4000)
    assert np.abs(run(env, np.ones((50, 2)))[1]).max() <= 1.0


def test_two_wrappers_perturb_once():
    env = Perturbed(Perturbed(Echo()))
    env.set_context({"action_scale": 0.5, "action_delay": 1})
    _, done = run(env, CONTINUOUS[:20])
    assert np.array_equal(done[1:], 0.5 * CONTINUOUS[:19])


def test_noise_on_an_observation():
    env = Perturbed(Echo())
    env.set_context({"observation_noise": 0.3})
    seen, done = run(env, CONTINUOUS)
    clean, _ = run(Echo(), CONTINUOUS)
    error = seen - clean
    assert np.array_equal(done, CONTINUOUS)
    assert 0.29 < np.abs(error).max() < 0.3 + 1e-9
    assert error.std() == pytest.approx(0.3 / np.sqrt(3), rel=0.1)
    assert np.array_equal(run(env, CONTINUOUS)[0], seen)  # the same seed, the same noise
    assert not np.array_equal(run(env, CONTINUOUS, seed=1)[0] - run(Echo(), CONTINUOUS, seed=1)[0], error)


def test_perturbations_keep_reward_cost_and_ends():
    plain, wrapped = gym.make(PLAIN), Perturbed(gym.make(PLAIN))
    wrapped.set_context({"observation_noise": 0.1, "observation_delay": 2})
    plain.reset(seed=0), wrapped.reset(seed=0)
    for action in [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]:
        _, *truth, about = plain.step(action)
        _, *ours, info = wrapped.step(action)
        assert ours == truth
        assert info["cost"] == about["cost"]


def test_perturbations_pass_the_environments_own_parameters_on():
    env = Perturbed(gym.make(PLAIN), action_delay=1)
    assert set(NAMES) < set(env.context_parameters)
    assert env.context_parameters["action_delay"].nominal == 1.0
    contexts.set_context(env, {"wind": 1.0, "sticky_action": 0.1})
    env.reset(seed=0)
    assert env.unwrapped.context["wind"] == env.context["wind"] == 1.0
    assert (env.context["sticky_action"], env.context["action_delay"]) == (0.1, 1.0)
    with pytest.raises(InputError, match="length"):
        env.set_context({"length": -1.0, "sticky_action": 0.2})
    assert env.next_context["sticky_action"] == 0.1
    env.set_context({"action_flip": 0.5})  # the cart-pole has flips of its own
    env.reset()
    assert env.unwrapped.perturbation.action_flip == 0.5


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"action_delay": -1.0}, "action_delay: -1.0 given, a number ≥ 0"),
        ({"sticky_action": 1.5}, "sticky_action: 1.5 given, a probability"),
        ({"observation_noise": -1.0}, "observation_noise: -1.0 given, a number ≥ 0"),
        ({"action_flip": 0.1}, "context: 'action_flip' given, one of sticky_action"),
    ],
)
def test_bad_perturbations_are_named(context, words):
    with pytest.raises(InputError) as caught:
        Perturbed(Echo()).set_context(context)
    assert str(caught.value).startswith(words)


def test_bad_nominal_values_are_named():
    with pytest.raises(InputError, match=r"action_flip: 0\.1 given, one of"):
        Perturbed(Echo(), action_flip=0.1)
    with pytest.raises(InputError, match="wind: 1 given, give it to the environment"):
        Perturbed(gym.make(PLAIN), wind=1)


# Any environment: arguments of its constructor


def test_an_argument_is_a_parameter():
    env = Rebuilt(Echo, {"gain": Parameter(1, 3, 1), "start": Parameter(-1.0, 1.0, 0.5)})
    first, instance = env.reset(seed=0)[0], env.unwrapped
    contexts.set_context(env, {"gain": 2.8, "start": 0.5})  # rounded, since its nominal value is an int
    assert env.step(np.ones(2))[1] == 2.0  # the episode keeps its context
    second = env.reset()[0]
    assert env.unwrapped is not instance
    assert env.step(np.ones(2))[1] == 6.0
    assert isinstance(env.unwrapped.gain, int)
    instance = env.unwrapped
    env.reset()
    assert env.unwrapped is instance  # nothing changed
    generator = np_random(0)[0]  # one stream for all instances
    assert [first[0], second[0]] == [0.5 + 10 * generator.random() for _ in range(2)]


def test_an_argument_of_gymnasiums_own():
    make = partial(gym.make, "Pendulum-v1", max_episode_steps=30)
    env = Rebuilt(make, {"g": Parameter(5.0, 15.0, 10.0)})
    actions = [np.array([0.5], np.float32)] * 70
    for gravity in (10.0, 5.0, 15.0):
        contexts.set_context(env, {"g": gravity})
        assert play(env, actions, seed=0).tobytes() == play(make(g=gravity), actions, seed=0).tobytes()
    envs = gym.vector.SyncVectorEnv([lambda: Rebuilt(make, {"g": Parameter(5.0, 15.0, 10.0)})] * 2)
    contexts.set_contexts(envs, {"g": [5.0, 15.0]})
    envs.reset(seed=0)
    assert [env.unwrapped.g for env in envs.envs] == [5.0, 15.0]


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="weight"):
        Rebuilt(Echo, {"weight": Parameter(0.0, 1.0, 0.5)})
    env = Rebuilt(Echo, {"gain": Parameter(1, 3, 1), "discrete": Parameter(0.0, 1.0, 0.0)})
    env.set_context({"discrete": 1.0})
    with pytest.raises(InputError, match="changes the action_space"):
        env.reset()
