"""`rcac.train` and `rcac.evaluate_policy`: any environment, any setting, and nothing on the disk unless asked."""

import os
import signal
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from state_hash import state_hash

import rcac
from rcac import cli, registry
from rcac.deep.settings import DeepSettings
from rcac.errors import InputError
from rcac.runs.config import checked
from rcac.runs.folder import RunFolder
from rcac.runs.loggers.csv import read_metrics

NET = {"actor_hidden": [8], "critic_hidden": [8], "actor_batch": 32, "critic_batch": 32}
TINY = {"total_steps": 600, "num_envs": 4, "rollout_length": 16, "window": 4, **NET}
CARTPOLE = "rcac/NoisyCartPole-v0"


class Tank(gym.Env):
    """Action 1 earns a reward of 1 and burns a unit of fuel; an episode never ends by itself."""

    observation_space, action_space = Box(0, 1, (2,)), Discrete(2)

    def __init__(self, report: str = "info", price: float = 1.0) -> None:
        self.report, self.price = report, price

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, dtype=np.float32), {}

    def step(self, action):
        costs = {"noise": 0.5, "fuel": self.price * float(action)}
        info = {"info": costs, "costs": {"costs": costs}, "nothing": {}}[self.report]
        return np.ones(2, dtype=np.float32), float(action), False, False, info


ONE = Tank()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def forget():
    """A cost that is given as a function, and a logger, are known to that test only."""
    with registry.temporary():
        yield


def test_an_id(place):
    result = rcac.train(CARTPOLE, budgets=[150.0], algo="rcac_npg", seed=3, max_episode_steps=20, **TINY)
    assert result.finished
    assert result.folder is None
    assert os.listdir(place) == []  # nothing is written
    assert result.policy(np.zeros(4, dtype=np.float32)) in (0, 1)
    assert result.policy.batch(np.zeros((5, 4), dtype=np.float32)).shape == (5,)
    assert result.summary["budgets"] == [150.0]
    assert result.summary["labels"] == ["return", "cost"]
    lengths = {len(column) for column in result.history.values()}
    assert lengths == {len(result.history["position"])}
    assert result.history["position"][-1] == result.summary["run"]["position"] <= 600
    assert "feasible" in repr(result)


def test_the_same_seed_gives_the_same_policy_in_memory_in_a_folder_and_from_the_command_line(place):
    options = {"seed": 5, "max_episode_steps": 20, **TINY}
    memory, written = rcac.train(CARTPOLE, **options), rcac.train(CARTPOLE, folder="mine", **options)
    other = rcac.train(CARTPOLE, **{**options, "seed": 6})
    words = ["env=cartpole", "seed=5", "env.max_episode_steps=20", "progress=false"]
    with pytest.raises(SystemExit) as ended:
        cli.train([*words, *(f"algo.{key}={value}" for key, value in TINY.items())])
    assert ended.value.code == 0
    [commanded] = Path("runs/cartpole/rcac_npg").iterdir()
    states = [RunFolder(folder).read_policy() for folder in (written.folder, commanded)]
    assert state_hash(states[0]) == state_hash(states[1])
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    probabilities = [r.policy.probabilities(observations) for r in (memory, written, other)]
    np.testing.assert_array_equal(probabilities[0], probabilities[1])
    assert not np.array_equal(probabilities[0], probabilities[2])
    np.testing.assert_array_equal(memory.history["return/estimate"], written.history["return/estimate"])


@pytest.mark.parametrize("report", ["info", "costs"])
def test_a_function_and_named_costs(report):
    """The costs are where the names say: fuel is what is earned, noise is half a unit a step."""
    budgets = {"fuel": 5.0, "noise": 8.0}
    result = rcac.train(lambda: Tank(report), budgets=budgets, max_episode_steps=10, **TINY)
    assert result.summary["labels"] == ["return", "fuel", "noise"]
    episodes = np.isfinite(result.history["cost/1/episode"])
    np.testing.assert_allclose(result.history["cost/1/episode"][episodes], result.history["return/episode"][episodes])
    np.testing.assert_allclose(result.history["cost/2/episode"][episodes], 5.0)
    scores = rcac.evaluate_policy(result.policy, lambda: Tank(report), episodes=7, seed=1, max_episode_steps=10)
    np.testing.assert_array_equal(scores.costs, np.column_stack([scores.returns, np.full(7, 5.0)]))
    np.testing.assert_array_equal(scores.lengths, np.full(7, 10))


def test_a_vector_environment_stays_open_and_gives_the_number_of_copies():
    envs = gym.make_vec(CARTPOLE, 3, max_episode_steps=20)
    options = {**TINY, "max_episode_steps": 20}
    del options["num_envs"]
    result = rcac.train(envs, budgets=[150.0], **options)
    assert result.history["position"][0] == 3 * 16
    envs.reset(seed=0)
    envs.step(np.zeros(3, dtype=int))  # not closed
    with pytest.raises(InputError, match="num_envs: 4 given, 3 expected"):
        rcac.train(envs, budgets=[150.0], **{**options, "num_envs": 4})
    plain = gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Tank("costs"), 10)] * 2)
    found = rcac.train(plain, budgets={"fuel": 8.0, "noise": 5.0}, **{**options, "max_episode_steps": 10})
    np.testing.assert_allclose(np.nanmin(found.history["cost/2/episode"]), 5.0)
    np.testing.assert_array_equal(found.history["cost/1/episode"], found.history["return/episode"])


class Legs(gym.Env):
    """Observes a Dict; an episode has as many steps as its copy says, each with a cost of 2."""

    observation_space = Dict({"place": Box(0, 9, (1,)), "pair": Tuple([Discrete(3), MultiBinary(2)])})
    action_space = MultiDiscrete([2, 3])

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def _seen(self):
        return {"place": np.array([self.taken], np.float32), "pair": (np.int64(1), np.zeros(2, np.int8))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self._seen(), {}

    def step(self, action):
        self.taken += 1
        return self._seen(), 1.0, self.taken == self.steps, False, {"fuel": 2.0}


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_both_ways_of_resetting_lose_no_cost(mode):
    """Copies whose episodes end at different times; the costs stand under their name."""
    envs = SyncVectorEnv([lambda: Legs(3), lambda: Legs(5)], autoreset_mode=mode)
    options = {**TINY, "num_envs": 2, "max_episode_steps": 5}
    result = rcac.train(envs, budgets={"fuel": 8.0}, **options)
    episodes = np.isfinite(result.history["episode/length"])
    np.testing.assert_allclose(
        result.history["cost/1/episode"][episodes], 2 * result.history["episode/length"][episodes]
    )

    def choose(observation):
        assert Legs.observation_space.contains(observation)
        return np.array([1, 2])

    found = rcac.evaluate_policy(result.policy, envs, episodes=6)
    np.testing.assert_array_equal(found.costs[:, 0], 2 * found.lengths)
    for scores in (found, rcac.evaluate_policy(choose, envs, episodes=6)):
        assert sorted(scores.lengths) == [3, 3, 3, 5, 5, 5]
        np.testing.assert_array_equal(scores.returns, scores.lengths)


def test_what_a_vector_environment_is_not_asked():
    envs = gym.make_vec(CARTPOLE, 2)
    with pytest.raises(InputError, match="cost: 'energy' given with a VectorEnv, which is made already"):
        rcac.train(envs, budgets=[1.0], cost="energy")
    with pytest.raises(InputError, match=r"env_kwargs: {'wind': 1.0} given with a VectorEnv"):
        rcac.evaluate_policy(lambda _: 0, envs, wind=1.0)
    with pytest.raises(InputError, match="vectorization: 'async' given with a VectorEnv"):
        rcac.train(envs, budgets=[1.0], vectorization="async")


def test_a_policy_for_other_spaces():
    result = rcac.train(lambda: Legs(4), budgets={"fuel": 8.0}, max_episode_steps=5, **TINY)

    class Wider(Legs):
        action_space = MultiDiscrete([2, 4])

    class Renamed(Legs):
        observation_space = Dict({"place": Box(0, 9, (1,)), "pairs": Legs.observation_space["pair"]})

    for other, what in ((Wider, "actions"), (Renamed, "observations")):
        with pytest.raises(InputError, match=f"env: its {what} are .* expected by the policy"):
            rcac.evaluate_policy(result.policy, lambda other=other: other(4), max_episode_steps=5)


def test_a_cost_function():
    def energy(observation, action, following, reward, info):
        return 2.0 * action

    options = {"budgets": [3.0], "cost": energy, "max_episode_steps": 10}
    result = rcac.train(lambda: Tank("nothing"), **options, **TINY)
    episodes = np.isfinite(result.history["cost/1/episode"])
    np.testing.assert_allclose(
        result.history["cost/1/episode"][episodes], 2 * result.history["return/episode"][episodes]
    )
    scores = rcac.evaluate_policy(lambda _: 1, lambda: Tank("nothing"), 3, cost=energy, max_episode_steps=10)
    np.testing.assert_array_equal(scores.costs, np.full((3, 1), 20.0))


def test_a_limit_that_the_function_sets():
    """Of a TimeLimit wrapper, or of what gym.make made."""
    result = rcac.train(lambda: gym.wrappers.TimeLimit(Tank(), 7), budgets={"fuel": 5.0}, **TINY)
    assert set(result.history["episode/length"][np.isfinite(result.history["episode/length"])]) == {7.0}
    made = rcac.train(lambda: gym.make(CARTPOLE, max_episode_steps=9), budgets=[1.0], **TINY)
    assert np.nanmax(made.history["episode/length"]) <= 9


def test_callbacks_see_write_and_stop():
    seen = []

    def watch(update):
        seen.append((update.position, update.terms[0].label, update.policy(np.zeros(4, dtype=np.float32))))
        update.metrics["mine/double"] = 2.0 * update.position
        return update.position < 128

    result = rcac.train(CARTPOLE, callback=[watch, lambda update: None], max_episode_steps=20, **TINY)
    assert result.reason == "callback"
    assert not result.finished
    assert [position for position, _, _ in seen] == [64, 128]
    assert {(label, action in (0, 1)) for _, label, action in seen} == {("return", True)}
    np.testing.assert_array_equal(result.history["mine/double"], [128.0, 256.0])


def test_what_callbacks_may_say():
    short = {"max_episode_steps": 20, **TINY}
    assert rcac.train(CARTPOLE, callback=lambda update: np.bool_(False), **short).reason == "callback"
    with pytest.raises(InputError, match=r"metrics\['mine'\]: 'many' given by a callback, a number expected"):
        rcac.train(CARTPOLE, callback=lambda update: update.metrics.update(mine="many"), **short)
    for wrong in (3, [3]):
        with pytest.raises(InputError, match="callback: 3 given, a function of an Update expected"):
            rcac.train(CARTPOLE, callback=wrong, **short)


def test_a_folder_is_an_ordinary_run_that_can_be_resumed(place):
    """Stopped and resumed, it ends as if it had never been stopped."""
    options = {"max_episode_steps": 20, **TINY}
    whole = rcac.train(CARTPOLE, folder="whole", **options)
    stopped = rcac.train(CARTPOLE, folder="mine", callback=lambda update: update.position < 200, **options)
    assert stopped.folder == place / "mine"
    resumed = rcac.train(resume="mine")
    assert resumed.finished
    assert state_hash(RunFolder(whole.folder).read_policy()) == state_hash(RunFolder(resumed.folder).read_policy())
    np.testing.assert_array_equal(whole.history["return/estimate"], resumed.history["return/estimate"])
    np.testing.assert_array_equal(read_metrics("mine/metrics.csv")["position"], whole.history["position"])
    policy = rcac.load_policy("mine")
    np.testing.assert_array_equal(policy.probabilities(np.eye(4)), resumed.policy.probabilities(np.eye(4)))
    with pytest.raises(InputError, match=r"folder: 'mine' given, one that is new or empty expected"):
        rcac.train(CARTPOLE, folder="mine", **options)


def test_what_was_a_function_is_given_again_on_resuming():
    def fuel(observation, action, following, reward, info):
        return float(action)

    def make():
        return Tank("nothing")

    options = {"budgets": {"fuel": 5.0}, "cost": fuel, "max_episode_steps": 10, **TINY}
    rcac.train(make, folder="mine", callback=lambda update: False, **options)
    assert rcac.train(make, resume="mine", cost=fuel).finished
    with pytest.raises(InputError, match="algo: 'rcac' given with resume"):
        rcac.train(resume="mine", algo="rcac")
    for name, value in {
        "lam": 3,
        "seed": 1,
        "max_episode_steps": 20,
        "cost": "energy",
        "vectorization": "sync",
    }.items():
        with pytest.raises(InputError, match=f"{name}: {value!r} given with resume"):
            rcac.train(resume="mine", **{name: value})


class Body(torch.nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layer, self.out_features = torch.nn.Linear(space.shape[0], 8), 8

    def forward(self, x):
        return torch.relu(self.layer(x))


@pytest.mark.parametrize("body", [Body, Body(Box(-1, 1, (4,)))])
def test_a_body_that_is_not_registered(body):
    """Known to callbacks and to the result; given again on resuming and loading."""
    acted = []

    def watch(update):
        acted.append(update.policy(np.zeros(4, dtype=np.float32)))
        return update.position < 128

    options = {"actor": body, "max_episode_steps": 20, **TINY}
    whole = rcac.train(CARTPOLE, **options)
    rcac.train(CARTPOLE, folder="mine", callback=watch, **options)
    assert set(acted) <= {0, 1}
    with pytest.raises(InputError, match=r"belongs to another run; actor: 'Body' in the checkpoint, None now"):
        rcac.train(resume="mine")
    resumed = rcac.train(resume="mine", actor=body)
    expected = whole.policy.probabilities(np.eye(4))
    np.testing.assert_array_equal(resumed.policy.probabilities(np.eye(4)), expected)
    np.testing.assert_array_equal(rcac.load_policy("mine", network=body).probabilities(np.eye(4)), expected)
    with pytest.raises(InputError, match=r"network: 'Body' given, .* or load_policy\(…, network=…\) with its class"):
        rcac.load_policy("mine")


def test_ctrl_c_returns_the_result_so_far(capfd):
    def interrupt(update):
        if update.position >= 128:
            os.kill(os.getpid(), signal.SIGINT)

    result = rcac.train(CARTPOLE, callback=interrupt, max_episode_steps=20, **TINY)
    assert (result.reason, list(result.history["position"])) == ("SIGINT", [64, 128])
    assert result.policy(np.zeros(4, dtype=np.float32)) in (0, 1)
    assert capfd.readouterr() == ("", "")  # and no bar, off a terminal


def test_progress_when_asked_for(capfd):
    rcac.train(CARTPOLE, progress=True, max_episode_steps=20, **TINY)
    out, err = capfd.readouterr()
    assert out == ""
    assert "steps " in err


def test_a_tabular_method(rng):
    """The solution of `rcac.solve`, with the set's defaults of the command line or with others."""
    from rcac.uncertainty import KLBall

    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    for given, radius in ((None, 0.01), ({"name": "kl_ball", "radius": 0.05}, 0.05)):
        result = rcac.train("rcac/RiverSwim-v0", uncertainty=given)
        solution = rcac.solve(problem, "rsqp", KLBall(radius))
        np.testing.assert_allclose(result.summary["returns"], problem.signs * solution.returns, rtol=1e-9)
    assert rcac.train("rcac/RiverSwim-v0", algo="rnpg", iterations=3, budgets=[50.0]).summary["budgets"] == [50.0]
    penalty = rcac.train("rcac/RiverSwim-v0", uncertainty="kl_penalty", iterations=2)
    assert penalty.summary["evaluations"] == 2


def test_loggers_of_ones_own(place):
    seen = []

    @rcac.register_logger("list_of_test_api")
    class Seen:
        def __init__(self, run):
            seen.append(run.labels)

        def scalars(self, position, metrics):
            seen.append(position)

        def images(self, position, images):
            seen.append(sorted(images))

        def finish(self, summary):
            seen.append(summary["feasible"])

        def close(self):
            seen.append("closed")

    options = {"loggers": ["csv", "list_of_test_api"], "max_episode_steps": 20, **TINY}
    result = rcac.train(CARTPOLE, folder="mine", **options)
    assert seen[0] == ["return", "cost"]
    assert [entry for entry in seen if isinstance(entry, int) and not isinstance(entry, bool)] == list(
        result.history["position"]
    )
    assert seen[-2:] == [result.summary["feasible"], "closed"]
    assert not list((place / "mine").glob("events*"))
    with pytest.raises(InputError, match=r"loggers\[0\]: 'cvs' given, one of csv, .* expected"):
        rcac.train(CARTPOLE, **{**options, "loggers": ["cvs"]})


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"env": None}, "env: not given"),
        ({"env": 3}, "env: 3 given, an id"),
        ({"env": lambda: 3}, "env: .* made 3, an Env of Gymnasium's expected"),
        ({"env": lambda: 1 / 0}, r"env: .* raised ZeroDivisionError\('division by zero'\)"),
        ({"env": "Nowhere-v0"}, "env.id: Nowhere-v0 given: "),
        ({"budgets": ["x"]}, r"budgets: \['x'\] given, a number for each cost expected"),
        ({"budgets": [np.inf]}, r"env.budgets\[0\]: inf given, a finite number expected"),
        ({"budgets": [1.0, 2.0]}, r"env.budgets: \[1.0, 2.0\] given, 1 expected"),
        ({"budgets": {"return": 3.0}}, "budgets: 'return' given, the name of a cost expected"),
        ({"algo": "rcacnpg"}, "algo: 'rcacnpg' given, one of "),
        ({"total_step": 5}, "total_step: no such key, did you mean total_steps?"),
        ({"num_envs": 0}, "num_envs: 0 given, a whole number ≥ 1 expected"),
        ({"num_envs": "many"}, "num_envs: 'many' given, int expected"),
        ({"seed": -1}, "seed: -1 given"),
        ({"env_kwargs": {"windy": 1}}, "env.kwargs: .*windy"),
        ({"uncertainty": "kl_ball"}, "uncertainty: kl_ball given with rcac_npg"),
        ({"max_episode_steps": 0}, "env.max_episode_steps: 0 given"),
        ({"env": lambda: ONE, "budgets": {"fuel": 5.0}}, "env: the same Env given for two copies, a new one each time"),
    ],
)
def test_bad_input_names_field_value_and_expectation(place, options, line):
    given = {"env": CARTPOLE, "folder": "mine", "max_episode_steps": 20, **TINY, **options}
    with pytest.raises(InputError, match=line):
        rcac.train(given.pop("env"), **given)
    assert os.listdir(place) == []


def test_numbers_of_numpy_are_numbers():
    given = {"lam": np.float32(3.0), "num_envs": np.int64(2), "actor_hidden": np.array([8, 4])}
    found = checked(DeepSettings, given)
    assert [found[name] for name in given] == [3.0, 2, [8, 4]]


def test_an_environment_without_a_limit_or_a_cost():
    with pytest.raises(InputError, match="max_episode_steps: not given and not registered"):
        rcac.train(lambda: Tank(), budgets={"fuel": 5.0}, **TINY)
    with pytest.raises(InputError, match="no cost: info has nothing"):
        rcac.train(lambda: Tank("nothing"), budgets=[5.0], max_episode_steps=10, **TINY)
    with pytest.raises(InputError, match="info\\['costs'\\] has noise, fuel, oil expected"):
        rcac.train(lambda: Tank("costs"), budgets={"oil": 5.0}, max_episode_steps=10, **TINY)


# Testing a policy


def test_episodes_against_a_plain_loop():
    """Return, cost and length of every episode of one copy, played by hand from the same seeds."""
    from rcac.seeds import evaluation_seed

    def choose(observation):
        return int(observation[2] > 0)

    scores = rcac.evaluate_policy(choose, CARTPOLE, episodes=4, seed=1, num_envs=1, wind=1.0)
    env = gym.make(CARTPOLE, **{**rcac.registry.rows("env")["cartpole"]["kwargs"], "wind": 1.0})
    observation, _ = env.reset(seed=evaluation_seed(1, 4))
    for index in range(4):
        total, cost, length, ended = 0.0, 0.0, 0, False
        while not ended:
            observation, reward, terminated, truncated, info = env.step(choose(observation))
            total, cost, length, ended = total + reward, cost + info["cost"], length + 1, terminated or truncated
        assert (scores.returns[index], scores.lengths[index]) == (total, length)
        np.testing.assert_allclose(scores.costs[index], [cost])
        observation, _ = env.reset()
    assert "4 episodes" in repr(scores)


def test_an_environment_without_costs_can_be_played_too():
    scores = rcac.evaluate_policy(lambda _: 0, "CartPole-v1", episodes=5)
    assert scores.costs.shape == (5, 0)
    np.testing.assert_array_equal(scores.returns, scores.lengths)
    with pytest.raises(InputError, match="episodes: 0 given"):
        rcac.evaluate_policy(lambda _: 0, "CartPole-v1", episodes=0)


def test_examples_in_docstrings(monkeypatch):
    import doctest

    from rcac import api

    monkeypatch.setattr(api, "_shown", lambda progress: False)
    assert doctest.testmod(api).failed == 0


def test_torch_is_left_as_it_was():
    generator = torch.get_rng_state()
    rcac.train(CARTPOLE, max_episode_steps=20, **TINY)
    assert torch.equal(generator, torch.get_rng_state())
