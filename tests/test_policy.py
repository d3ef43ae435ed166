"""A policy in use: loaded without Hydra or torch, acting in a plain loop; damage is refused and nothing executed."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary
from safetensors.numpy import save

import rcac
from rcac import registry
from rcac.errors import InputError
from rcac.experiment import cli
from rcac.experiment.policy import Policy, space_card, space_from_card
from rcac.experiment.runfolder import RunFolder
from rcac.learner import State

TABLE = np.array([[0.2, 0.8, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5]])
SPACES = {"observation": space_card(Discrete(3)), "action": space_card(Discrete(3))}
CARD = {"kind": "tabular", "states": 3, "actions": 3, "spaces": SPACES}


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    with RunFolder.create(tmp_path, "toy", "none", 0) as made:
        made.write_policy(State({"policy": TABLE, "values": np.zeros((1, 3))}, CARD), {})
    return made


def trained(root: Path, *overrides: str) -> Path:
    with pytest.raises(SystemExit) as ending:
        cli.train([*overrides, "progress=false", f"runs={root}"])
    assert ending.value.code == 0
    [path] = (path.parent for path in root.glob("*/*/*/policy.json"))
    return path


@pytest.fixture(scope="module")
def tabular_run(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("tabular"), "env=river_swim", "algo=rsqp")


@pytest.fixture(scope="module")
def deep_run(tmp_path_factory) -> Path:
    small = ("algo.total_steps=256", "algo.num_envs=4", "algo.rollout_length=16", "algo.actor_hidden=[8]")
    return trained(tmp_path_factory.mktemp("deep"), "env=cartpole", "algo=rcac_npg", *small)


# Acting


def test_frequencies_are_the_tables(folder):
    policy = rcac.load_policy(folder.path)
    drawn = np.stack([np.bincount(policy.batch(np.full(20_000, state)), minlength=3) for state in range(3)]) / 20_000
    # four standard deviations of a share of 20 000 draws
    np.testing.assert_allclose(drawn, TABLE, atol=4 * 0.5 / np.sqrt(20_000))
    assert drawn[0, 2] == 0.0
    assert (drawn[1] == [1, 0, 0]).all()


def test_seeds_and_generators(folder):
    first, same, other = (rcac.load_policy(folder.path, seed=seed) for seed in (1, 1, 2))
    draws = [[policy(2) for _ in range(50)] for policy in (first, same, other)]
    assert draws[0] == draws[1] != draws[2]
    assert all(type(action) is int for action in draws[0])
    samples = [
        [first.sample(2, rng) for _ in range(50)] for rng in (np.random.default_rng(5), np.random.default_rng(5))
    ]
    assert samples[0] == samples[1]


def test_deterministic_takes_the_likeliest(folder):
    policy = rcac.load_policy(folder.path, deterministic=True)
    assert [policy(state) for state in (0, 1, 2)] == [1, 0, 2]
    assert {policy.sample(2, np.random.default_rng(k)) for k in range(20)} == {0, 1, 2}


def test_one_hot_observations_are_states(folder):
    policy = rcac.load_policy(folder.path, deterministic=True)
    assert [policy(row) for row in np.eye(3)] == [1, 0, 2]
    np.testing.assert_array_equal(policy.probabilities(np.eye(3)), TABLE)


@pytest.mark.parametrize("observation", [3, -1, 0.5, [1, 0], "x", None])
def test_an_observation_that_is_none(folder, observation):
    with pytest.raises(InputError, match=r"observation: .* given, states 0 to 2 or one-hot expected"):
        rcac.load_policy(folder.path)(observation)


def test_a_loop_with_plain_gymnasium_reaches_the_value_it_was_given(tabular_run):
    """The mean discounted return of episodes is within 4 standard errors of the policy's exact one."""
    policy = rcac.load_policy(tabular_run)
    env = gym.make("rcac/RiverSwim-v0")
    assert policy.spaces == (env.observation_space, env.action_space)
    problem = env.unwrapped.rcmdp
    exact = -rcac.evaluate(problem, policy.probabilities(np.arange(6))).returns[0]
    returns = []
    for episode in range(30):
        observation, _ = env.reset(seed=episode)
        total, factor, over = 0.0, 1.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, factor, over = total + factor * reward, factor * problem.discount, terminated or truncated
        returns.append(total)
    assert abs(np.mean(returns) - exact) < 4 * np.std(returns, ddof=1) / np.sqrt(30)


def test_a_deep_policy(deep_run):
    policy, likeliest = (
        rcac.load_policy(deep_run),
        rcac.load_policy(deep_run / "policy.safetensors", deterministic=True),
    )
    env = gym.make("rcac/NoisyCartPole-v0")
    assert policy.spaces == (env.observation_space, env.action_space)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    chances = policy.probabilities(observations)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_array_equal(likeliest.batch(observations), chances.argmax(axis=1))
    for row, chance in zip(observations, chances, strict=True):
        share = policy.batch(np.tile(row, (5000, 1))).mean()
        assert share == pytest.approx(chance[1], abs=4 * 0.5 / np.sqrt(5000))
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(policy(observation))


def test_continuous_actions(tmp_path, monkeypatch):
    monkeypatch.setattr(registry._costs, "_registered", {})
    rcac.register_cost("speed")(lambda observation, action, following, reward, info: abs(following[2]))
    small = ("algo.total_steps=128", "algo.num_envs=2", "algo.rollout_length=16", "algo.actor_hidden=[8]")
    run = trained(tmp_path, "env=gym", "env.id=Pendulum-v1", "env.budgets=[100]", "env.cost=speed", *small)
    policy, env = rcac.load_policy(run), gym.make("Pendulum-v1")
    assert policy.spaces == (env.observation_space, env.action_space)
    observation, _ = env.reset(seed=0)
    action = policy(observation)
    assert env.action_space.contains(action)
    assert not np.array_equal(action, policy(observation))
    likeliest = rcac.load_policy(run, deterministic=True)
    np.testing.assert_array_equal(likeliest(observation), likeliest(observation))
    with pytest.raises(InputError, match="probabilities: the actions are Box"):
        policy.probabilities(observation[None])


def test_neither_torch_nor_hydra(tabular_run, deep_run):
    code = (
        "import sys, rcac, numpy as np\n"
        f"tabular, deep = rcac.load_policy({str(tabular_run)!r}), rcac.load_policy({str(deep_run)!r})\n"
        "assert tabular(3) in (0, 1) and deep(np.zeros(4, np.float32)) in (0, 1)\n"
        "assert not {'torch', 'hydra', 'omegaconf', 'numba', 'matplotlib'} & {*sys.modules}, sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tabular_run)


# Spaces


@pytest.mark.parametrize(
    "space",
    [
        Discrete(5),
        Discrete(3, start=-1),
        Box(-1, 1, (2, 3)),
        Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
        Box(0, 255, (4, 4, 3), np.uint8),
        Box(-np.inf, np.inf, (1,), np.float64),
        Box(np.array([0.1, 0.2], np.float32), np.array([0.3, 7.7], np.float32)),
        Box(-5, 5, (), np.float32),
    ],
)
def test_spaces_come_back(space):
    assert space_from_card(json.loads(json.dumps(space_card(space), allow_nan=False))) == space


def test_other_spaces_are_refused():
    with pytest.raises(InputError, match=r"space: MultiBinary\(2\) given, a Discrete or a Box space expected"):
        space_card(MultiBinary(2))
    with pytest.raises(InputError, match="space: 'Tuple' given"):
        space_from_card({"type": "Tuple"})


# Damage


def test_missing_files(tmp_path, folder):
    with pytest.raises(InputError, match=r"nowhere' given, the folder of a run or its policy.safetensors expected"):
        rcac.load_policy(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"policy.json: No such file"):
        rcac.load_policy(tmp_path)
    (folder.path / "policy.safetensors").unlink()
    with pytest.raises(InputError, match=r"policy.safetensors: No such file"):
        rcac.load_policy(folder.path)


def test_two_files_are_enough(tmp_path, folder):
    copy = tmp_path / "elsewhere"
    copy.mkdir()
    for name in ("policy.safetensors", "policy.json"):
        (copy / name).write_bytes((folder.path / name).read_bytes())
    assert rcac.load_policy(copy / "policy.safetensors")(1) == 0


def test_no_flipped_bit_of_the_arrays_is_accepted(folder):
    path = folder.path / "policy.safetensors"
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        spoiled = bytearray(content)
        spoiled[rng.integers(len(content))] ^= 1 << rng.integers(8)
        path.write_bytes(spoiled)
        with pytest.raises(InputError, match="SHA-256 differs"):
            rcac.load_policy(folder.path)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("owned",)


def test_nothing_is_executed(tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("policy.safetensors", "policy.json"):
        (folder.path / name).write_bytes(pickle.dumps(Trap()))
        with pytest.raises(InputError):
            rcac.load_policy(folder.path)
    assert not (tmp_path / "owned").exists()


def change_card(folder: RunFolder, change) -> None:
    card = json.loads((folder.path / "policy.json").read_text())
    change(card["card"])
    (folder.path / "policy.json").write_text(json.dumps(card))


@pytest.mark.parametrize(
    "change",
    [
        lambda card: card.clear(),
        lambda card: card.update(kind="magic"),
        lambda card: card.update(kind=["tabular"]),
        lambda card: card.update(kind="deep"),
        lambda card: card.update(spaces=3),
        lambda card: card["spaces"].pop("action"),
        lambda card: card["spaces"].update(action={"type": "Discrete", "n": -1, "start": 0}),
        lambda card: card["spaces"].update(action={"type": "Box", "shape": [2], "dtype": "O", "low": [0], "high": [1]}),
    ],
)
def test_a_foreign_card(folder, change):
    change_card(folder, change)
    with pytest.raises(InputError, match=r"policy.json: not the card of a policy"):
        rcac.load_policy(folder.path)


@pytest.mark.parametrize("table", [np.zeros((2, 2)), np.ones(3), np.array([[np.nan, 1.0]]), np.array([[1.5, -0.5]])])
def test_a_table_that_is_no_policy(table):
    with pytest.raises(InputError, match=r"policy: shape .* given, an array \(S, A\) of distributions expected"):
        Policy(State({"policy": table}, CARD))


def test_arrays_without_a_policy(folder):
    content = save({"other": np.zeros(3)})
    (folder.path / "policy.safetensors").write_bytes(content)
    card = json.loads((folder.path / "policy.json").read_text())
    card["sha256"] = hashlib.sha256(content).hexdigest()
    (folder.path / "policy.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="not the card of a policy"):
        rcac.load_policy(folder.path)
