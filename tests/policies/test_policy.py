"""A policy in use: loaded without Hydra, acting in a plain loop; damage is refused and nothing executed."""

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
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from gymnasium.vector import SyncVectorEnv
from safetensors.numpy import save

import rcac
from rcac import cli, registry
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.errors import InputError
from rcac.learner import State
from rcac.policies.policy import Policy
from rcac.runs.folder import RunFolder
from rcac.spaces import space_card, space_from_card

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
    sampled = np.stack([np.bincount(policy.batch(np.full(20_000, state)), minlength=3) for state in range(3)]) / 20_000
    # four standard deviations of a share of 20 000 draws
    np.testing.assert_allclose(sampled, TABLE, atol=4 * 0.5 / np.sqrt(20_000))
    assert sampled[0, 2] == 0.0
    assert (sampled[1] == [1, 0, 0]).all()


def test_seeds_and_generators(folder):
    first, same, other = (rcac.load_policy(folder.path, seed=seed) for seed in (1, 1, 2))
    draws = [[policy(2) for _ in range(50)] for policy in (first, same, other)]
    assert draws[0] == draws[1] != draws[2]
    assert all(type(action) is int for action in draws[0])
    samples = [
        [first.sample(2, rng) for _ in range(50)] for rng in (np.random.default_rng(5), np.random.default_rng(5))
    ]
    assert samples[0] == samples[1]


def test_deterministic_takes_the_mode(folder):
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
    policy, mode = (
        rcac.load_policy(deep_run),
        rcac.load_policy(deep_run / "policy.safetensors", deterministic=True),
    )
    env = gym.make("rcac/NoisyCartPole-v0")
    assert policy.spaces == (env.observation_space, env.action_space)
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    chances = policy.probabilities(observations)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_array_equal(mode.batch(observations), chances.argmax(axis=1))
    for row, chance in zip(observations, chances, strict=True):
        frequency = policy.batch(np.tile(row, (5000, 1))).mean()
        assert frequency == pytest.approx(chance[1], abs=4 * 0.5 / np.sqrt(5000))
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(policy(observation))


@pytest.fixture
def forget():
    """What a test registers, only that test knows."""
    with registry.temporary():
        yield


@pytest.mark.usefixtures("forget")
def test_continuous_actions(tmp_path):
    rcac.register_cost("speed")(lambda observation, action, following, reward, info: abs(following[2]))
    small = ("algo.total_steps=128", "algo.num_envs=2", "algo.rollout_length=16", "algo.actor_hidden=[8]")
    run = trained(tmp_path, "env=gym", "env.id=Pendulum-v1", "env.budgets=[100]", "env.cost=speed", *small)
    policy, env = rcac.load_policy(run), gym.make("Pendulum-v1")
    assert policy.spaces == (env.observation_space, env.action_space)
    observation, _ = env.reset(seed=0)
    action = policy(observation)
    assert env.action_space.contains(action)
    assert not np.array_equal(action, policy(observation))
    mode = rcac.load_policy(run, deterministic=True)
    np.testing.assert_array_equal(mode(observation), mode(observation))
    with pytest.raises(InputError, match="probabilities: the actions are Box"):
        policy.probabilities(observation[None])


def test_a_table_needs_neither_torch_nor_hydra(tabular_run):
    code = (
        f"import sys, rcac\nassert rcac.load_policy({str(tabular_run)!r})(3) in (0, 1)\n"
        "assert not {'torch', 'hydra', 'omegaconf', 'numba', 'matplotlib'} & {*sys.modules}, sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tabular_run)


def test_predict_has_the_signature_of_stable_baselines(deep_run):
    policy, env = rcac.load_policy(deep_run), gym.make("rcac/NoisyCartPole-v0")
    observation, _ = env.reset(seed=0)
    action, state = policy.predict(observation, deterministic=True)
    assert state is None
    assert env.action_space.contains(action)
    batch = np.stack([observation, -observation])
    actions, _ = policy.predict(batch, deterministic=True)
    np.testing.assert_array_equal(actions, policy.probabilities(batch).argmax(axis=1))
    sampled = {int(policy.predict(observation)[0]) for _ in range(100)}
    assert sampled == {0, 1}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_is_named(deep_run, bad):
    policy = rcac.load_policy(deep_run)
    with pytest.raises(InputError, match=rf"observation\[1\]\[2\]: {bad} given, a finite number expected"):
        policy.batch(np.array([[0, 0, 0, 0], [0, 0, bad, 0]], np.float32))
    with pytest.raises(InputError, match=r"observation: .* expected"):
        policy(np.zeros(3, np.float32))


# Policies of other networks and spaces


class Walk(gym.Env):
    """Sees a vector and a mode; acts by two choices, or a number."""

    observation_space = Dict({"x": Box(-1, 1, (2,)), "mode": Discrete(3, start=1)})

    def __init__(self, continuous=False):
        self.action_space = Box(-2, 1, (1,)) if continuous else MultiDiscrete([2, 3])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken = 0
        return self._seen(), {}

    def _seen(self):
        x = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"x": x, "mode": int(self.np_random.integers(1, 4))}

    def step(self, action):
        self.taken += 1
        return self._seen(), 1.0, False, self.taken >= 5, {"cost": 0.5}


class Gate(torch.nn.Module):
    def __init__(self, space):
        super().__init__()
        self.layer, self.out_features = torch.nn.Linear(5, 6), 6

    def forward(self, inputs):
        hidden = self.layer(torch.cat([inputs["x"], inputs["mode"]], dim=1))
        return hidden * torch.sigmoid(hidden)


def policy_of(continuous=False, **changes) -> State:
    actor = changes.pop("actor", None)
    small = {"num_envs": 2, "rollout_length": 6, "actor_hidden": [8], "critic_hidden": [8], "total_steps": 24}
    settings = DeepSettings(**{**small, "trials": 0, "window": 2, **changes})
    trainer = Trainer(SyncVectorEnv([lambda: Walk(continuous)] * 2), [9.0], settings, 0, 5, actor=actor)
    while not trainer.finished:
        trainer.step()
    tensors, card = trainer.policy()
    return State(tensors, json.loads(json.dumps(card)))


def observations(count, seed=0):
    env = Walk()
    seen = [env.reset(seed=seed + k)[0] for k in range(count)]
    return {key: np.stack([np.asarray(each[key]) for each in seen]) for key in ("x", "mode")}


def test_a_history_is_kept_for_each_stream():
    """Three streams together, and each alone: the same actions; a stream that begins anew forgets."""
    state = policy_of(history=3)
    together = Policy(state, deterministic=True)
    alone = [Policy(state, deterministic=True) for _ in range(3)]
    explicit, memory = Policy(state, deterministic=True), None
    rng = np.random.default_rng(0)
    for t in range(8):
        seen, starts = observations(3, seed=10 * t), rng.random(3) < 0.3
        actions = together.batch(seen, episode_start=starts)
        for k, policy in enumerate(alone):
            if starts[k]:
                policy.reset()
            np.testing.assert_array_equal(policy({key: x[k] for key, x in seen.items()}), actions[k])
        again, memory = explicit.predict(seen, memory, starts)
        np.testing.assert_array_equal(again, actions)
    with pytest.raises(InputError, match=r"observations: 2 given, 3 expected as before; reset\(\) begins anew"):
        together.batch(observations(2))
    rows = together._backend._rows(observations(3), together._memory, None)
    fresh = Policy(state)._backend._rows(observations(3), None, None)
    assert rows.shape == fresh.shape == (3, 3 * 5 + 2 * 5)
    assert not np.array_equal(rows, fresh)


def test_a_users_network_is_named_and_found():
    with registry.temporary():
        rcac.register_network("gate")(Gate)
        registered, given = policy_of(network="gate"), policy_of(actor=Gate)
        assert (registered.data["network"]["network"], given.data["network"]["network"]) == ("gate", "Gate")
        seen = observations(4)
        expected = Policy(registered, deterministic=True).batch(seen)
        np.testing.assert_array_equal(Policy(given, deterministic=True, network=Gate).batch(seen), expected)
    for state, name in ((registered, "gate"), (given, "Gate")):
        with pytest.raises(InputError, match=rf"network: '{name}' given, but none is registered; import the module"):
            Policy(state)


@pytest.mark.parametrize(("name", "value"), [("head.weight", np.nan), ("head.bias", np.inf), ("preprocess.std", 0.0)])
def test_weights_that_cannot_act_are_refused(name, value):
    state = policy_of()
    state.tensors[name].flat[0] = value
    with pytest.raises(InputError, match=name):
        Policy(state)


def test_weights_that_are_infinite_to_the_network_are_refused():
    state = policy_of()
    state.tensors["head.bias"] = np.full_like(state.tensors["head.bias"], 1e300, dtype=np.float64)
    with pytest.raises(InputError, match=r"head.bias: weights that are not finite"):
        Policy(state)


def test_weights_that_are_finite_but_huge_do_not_act():
    state = policy_of()
    for name in ("head.weight", "head.bias"):
        state.tensors[name][...] = 3e38
    with pytest.raises(InputError, match="policy: its network returned a number that is not finite"):
        Policy(state).batch(observations(4))


def test_arrays_of_another_shape_are_refused():
    state = policy_of()
    tensors = {**state.tensors, "head.bias": np.zeros(3, np.float32)}
    with pytest.raises(InputError, match=r"head.bias: shape \(3,\) given, \(5,\) expected by the network"):
        Policy(State(tensors, state.data))
    del tensors["head.bias"]
    with pytest.raises(InputError, match=r"head.bias: shape None given, \(5,\) expected by the network"):
        Policy(State(tensors, state.data))


def test_exported_policies_run_without_this_package_and_agree(tmp_path):
    """Each file is run by a process that has torch or onnxruntime only."""
    pytest.importorskip("onnxruntime")
    kinds = {"choices": {}, "number": {"continuous": True}, "squashed": {"continuous": True, "squash": True}}
    kinds |= {"gate": {"actor": Gate}, "history": {"history": 2}}
    expected, seen = {}, observations(7)
    for name, changes in kinds.items():
        state = policy_of(**changes)
        policy = Policy(state, deterministic=True, network=changes.get("actor"))
        files = [f"{name}.pt"] if name not in ("choices", "number") else [f"{name}.pt", f"{name}.onnx"]
        for file in files:
            policy.export(tmp_path / file)
        inputs = [seen["mode"], seen["x"]]  # Gymnasium sorts the keys of a Dict
        if name == "history":  # the first observation, repeated
            inputs = [*(np.stack([x, x], axis=1) for x in inputs), np.zeros((7, 1, 5), np.float32)]
        rows = policy._backend._rows(seen, None, None)
        outputs = policy._backend.outputs(rows)
        np.savez(tmp_path / f"{name}.npz", *inputs, actions=policy.batch(seen), outputs=outputs)
        expected |= {file: name for file in files}
    code = """
import sys, json, numpy as np
for file, name in json.loads(sys.argv[1]).items():
    data = np.load(f"{name}.npz")
    inputs = [data[k] for k in data.files if k.startswith("arr_")]
    if file.endswith(".pt"):
        import torch
        action, outputs = (x.numpy() for x in torch.jit.load(file)(*map(torch.from_numpy, inputs)))
    else:
        import onnxruntime
        session = onnxruntime.InferenceSession(file)
        names = [x.name for x in session.get_inputs()]
        action, outputs = session.run(["action", "outputs"], dict(zip(names, inputs, strict=True)))
    np.testing.assert_allclose(outputs, data["outputs"], atol=1e-5, err_msg=file)
    np.testing.assert_allclose(action, data["actions"], atol=1e-5, err_msg=file)
assert "rcac" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, json.dumps(expected)], check=True, cwd=tmp_path)


def test_what_cannot_be_exported(folder, tmp_path):
    with pytest.raises(InputError, match="export: a tabular policy given, a deep one expected"):
        rcac.load_policy(folder.path).export(tmp_path / "policy.onnx")
    with pytest.raises(InputError, match=r"a name that ends in .pt or .onnx expected"):
        Policy(policy_of()).export(tmp_path / "policy.h5")


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
        MultiDiscrete([2, 3], start=[1, -1]),
        MultiDiscrete([[2, 3], [4, 5]]),
        MultiBinary(3),
        MultiBinary([2, 3]),
        Dict({"a": Tuple([Discrete(2), Box(0, 1, (1,))]), "b": MultiBinary(1)}),
    ],
)
def test_spaces_come_back(space):
    assert space_from_card(json.loads(json.dumps(space_card(space), allow_nan=False))) == space


def test_no_memory_is_asked_for_what_cannot_be():
    box = {"type": "Box", "shape": [1 << 25], "dtype": "float32", "low": [0.0], "high": [1.0]}
    for card in (
        box | {"shape": [1000000, 1000000]},
        {"type": "Dict", "spaces": {"a": box, "b": box, "c": box}},
        {"type": "Tuple", "spaces": [{"type": "Tuple", "spaces": [box, box]}, box]},
        {"type": "Discrete", "n": True, "start": 0},
        {"type": "MultiDiscrete", "n": [1 << 25] * 3, "start": [0] * 3},
    ):
        with pytest.raises(InputError, match=r"^space: .* at most 67108864 numbers or values expected"):
            space_from_card(card)


def test_a_dtype_of_no_numbers_is_refused():
    card = {"type": "Box", "shape": [4], "dtype": "S1000000000", "low": [None], "high": [None]}
    with pytest.raises(InputError, match=r"^space: dtype 'S1000000000' given, one of numbers expected"):
        space_from_card(card)


def test_other_spaces_are_refused():
    with pytest.raises(InputError, match=r"space: Text.* given, Box, Discrete, .* or Tuple expected"):
        space_card(Text(3))
    with pytest.raises(InputError, match="space: 'Graph' given"):
        space_from_card({"type": "Graph"})


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


@pytest.mark.parametrize("number", [0.0, 1.5, -0.5, np.nan, np.inf])
def test_a_table_that_is_no_policy(number):
    table = TABLE.copy()
    table[0, 0] = number
    with pytest.raises(InputError, match="policy: rows that are no distributions given"):
        Policy(State({"policy": table}, CARD))


@pytest.mark.parametrize("shape", [(3,), (0, 2), (10**18, 0)])
def test_a_table_of_no_size(shape):
    with pytest.raises(InputError, match=r"policy: shape .* given, an array \(S, A\) expected"):
        Policy(State({"policy": np.zeros(shape)}, CARD))


@pytest.mark.parametrize("more", [(1, 0), (0, 1)])
def test_a_table_of_other_spaces(more):
    states, actions = np.add(TABLE.shape, more)
    with pytest.raises(InputError, match=r"policy: shape .* given, \(.*\) expected by its spaces"):
        Policy(State({"policy": np.full((states, actions), 1 / actions)}, CARD))


def test_arrays_without_a_policy(folder):
    content = save({"other": np.zeros(3)})
    (folder.path / "policy.safetensors").write_bytes(content)
    card = json.loads((folder.path / "policy.json").read_text())
    card["sha256"] = hashlib.sha256(content).hexdigest()
    (folder.path / "policy.json").write_text(json.dumps(card))
    with pytest.raises(InputError, match="not the card of a policy"):
        rcac.load_policy(folder.path)
