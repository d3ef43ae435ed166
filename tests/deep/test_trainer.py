"""The trainer: what the critics converge to, that it learns, that it is reproducible, and that it resumes exactly."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from rcac.deep.episodes import Episodes
from rcac.deep.rollout import Trajectory
from rcac.deep.selection import Candidate, best, notes, worst_returns
from rcac.deep.settings import DeepSettings
from rcac.deep.steps.base import Flat
from rcac.deep.trainer import Trainer
from rcac.envs import register_envs
from rcac.envs.failure import StepsLost
from rcac.errors import InputError
from rcac.learner import State
from rcac.policies.policy import Policy
from rcac.seeds import environment_seed

register_envs()
ALGORITHMS = ["rcac", "rcac_npg", "cac", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp"]
ALGORITHMS += ["ppo_lagrangian", "trpo_lagrangian", "cpo"]
FOLDER = Path(__file__).parents[2] / "conf" / "algo"
TINY = {"num_envs": 4, "rollout_length": 16, "actor_hidden": [8], "critic_hidden": [8], "window": 3, "actor_batch": 32}
TINY |= {"critic_batch": 32, "actor_epochs": 2, "critic_epochs": 1, "trials": 0}


def row(name, **changes):
    """Settings of an algorithm's row, with changes."""
    return DeepSettings(**{**yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), **changes})


def flat(module):
    return Flat(module).get().numpy()


def cartpole(num_envs=4, mode=AutoresetMode.NEXT_STEP, **options):
    name = "rcac/NoisyCartPole-v0"
    how = {"num_envs": num_envs, "vectorization_mode": "vector_entry_point", "autoreset_mode": mode}
    return gym.make_vec(name, **how, noise_high=0.04, **options)


def tiny(name, seed=0, updates=8, budget=200.0, **changes):
    settings = row(name, **{**TINY, "total_steps": 64 * updates, **changes})
    return Trainer(cartpole(settings.num_envs), [budget], settings, seed, 500)


def run(trainer, updates=None):
    steps = []
    while not trainer.finished and (updates is None or len(steps) < updates):
        steps.append(trainer.step())
    return steps


class Constant(VectorEnv):
    """Cost 1 and reward 1 at every step, whatever is done; truncated after `length` steps."""

    def __init__(self, num_envs=4, length=7, mode=AutoresetMode.NEXT_STEP):
        self.num_envs, self.length = num_envs, length
        self.metadata = {"autoreset_mode": mode}
        self.same = mode == AutoresetMode.SAME_STEP
        self.single_observation_space = Box(-1, 1, (2,), np.float32)
        self.single_action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = np.arange(self.num_envs) % self.length
        self.over = np.zeros(self.num_envs, dtype=bool)
        return self._see(), {}

    def _see(self):
        return self.np_random.uniform(-1, 1, (self.num_envs, 2)).astype(np.float32)

    def step(self, actions):
        self.clock += 1
        self.clock[self.over] = 0
        reward = np.where(self.over, 0.0, 1.0)
        truncated = (self.clock >= self.length) & ~self.over
        infos = {"cost": np.ones(self.num_envs)}
        if self.same:
            infos["final_obs"] = self._see()
            self.clock[truncated] = 0
        else:
            self.over = truncated
        return self._see(), reward, np.zeros(self.num_envs, dtype=bool), truncated, infos


class Line(gym.Env):
    """A point on a line, pushed by a continuous action; reward for being at 1, two costs."""

    observation_space = Box(-np.inf, np.inf, (1,), np.float32)
    action_space = Box(-0.5, 0.5, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.taken = 0.0, 0
        return np.array([self.x], dtype=np.float32), {}

    def step(self, action):
        self.x += float(action[0])
        self.taken += 1
        info = {"cost": abs(self.x), "costs": np.array([abs(self.x), float(action[0]) ** 2])}
        return np.array([self.x], dtype=np.float32), -abs(self.x - 1), False, self.taken >= 20, info


class Corridor(gym.Env):
    """Five cells, right is better; Discrete observations starting at 3."""

    observation_space = Discrete(5, start=3)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.taken = 0, 0
        return 3, {}

    def step(self, action):
        self.cell = int(np.clip(self.cell + (1 if action == 1 else -1), 0, 4))
        self.taken += 1
        return 3 + self.cell, float(self.cell), False, self.taken >= 15, {"cost": float(self.cell == 0)}


# What the critics converge to


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_constant_cost_has_the_value_of_an_endless_sum(mode):
    """1/(1−γ), through truncations every 7 steps: cutting there, or counting the reset step, would lower it."""
    gamma = 0.9
    changes = {"gamma": gamma, "radius": 0.0, "critic_lr": 3e-3, "critic_epochs": 4, "rollout_length": 32}
    settings = row("rcac_npg", **{**TINY, **changes, "total_steps": 128 * 60, "calibrate": False})
    trainer = Trainer(Constant(mode=mode), [1e9], settings, 0, 7)
    steps = run(trainer)
    metrics = steps[-1].metrics
    assert metrics["cost/1/estimate"] == pytest.approx(1 / (1 - gamma), rel=0.02)
    assert metrics["return/estimate"] == pytest.approx(1 / (1 - gamma), rel=0.02)
    assert metrics["cost/1/episode"] == pytest.approx(7.0)
    assert metrics["policy/skipped"] == 0


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_estimates_end_where_the_budget_does(mode):
    """A budget of 7 on episodes of cost 7 is met just so, although the critics look beyond the cut."""
    gamma = 0.9
    changes = {"gamma": gamma, "radius": 0.0, "critic_lr": 3e-3, "critic_epochs": 4, "rollout_length": 32}
    trainer = Trainer(Constant(mode=mode), [7.0], row("rcac_npg", **{**TINY, **changes, "total_steps": 128 * 60}), 0, 7)
    metrics = run(trainer)[-1].metrics
    within = (1 - gamma**7) / (1 - gamma)
    assert metrics["budget/1/discounted"] == pytest.approx(within)
    assert metrics["cost/1/estimate"] == pytest.approx(within, rel=0.02)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episodes_remember_where_they_were_cut_off(mode):
    """Environment 0 is cut off after two steps, environment 1 comes to its end after three."""
    seen = np.arange(10, dtype=np.float32).reshape(5, 2, 1)  # (T+1, n, d)
    terminated, truncated = np.zeros((2, 4, 2), dtype=bool)
    truncated[1, 0], terminated[2, 1] = True, True
    same = mode == AutoresetMode.SAME_STEP
    at, final = (
        (np.array([[1, 0]]), np.array([[77.0]], np.float32)) if same else (np.empty((0, 2), int), np.empty((0, 1)))
    )
    valid = np.ones((4, 2), dtype=bool)
    if not same:
        valid[2, 0] = valid[3, 1] = False
    episodes = Episodes(1, 2, 0.5, 8)
    actions = np.zeros((4, 2), dtype=np.int64)
    episodes.record(
        Trajectory(
            seen, actions, np.where(valid, 1.0, 0.0)[None], terminated, truncated, valid, at, final, seen[0], ~valid
        )
    )
    left, last = episodes.cut_off()
    assert left.tolist() == [0.25, 0.0]
    assert last.tolist() == [[77.0 if same else seen[2, 0, 0]], [seen[3, 1, 0]]]
    again = Episodes(1, 2, 0.5, 8)
    again.load(episodes.state())
    np.testing.assert_array_equal(again.cut_off()[1], last)
    again.load(Episodes(1, 2, 0.5, 8).state())  # none yet
    assert not again.finished


class Late(Corridor):
    """Nothing costs anything in the first episodes; units of reward and cost can be chosen."""

    def __init__(self, unit=1.0, free=0):
        self.unit, self.free, self.begun = unit, free, 0

    def reset(self, *, seed=None, options=None):
        self.begun += 1
        return super().reset(seed=seed, options=options)

    def step(self, action):
        seen, reward, *over, info = super().step(action)
        cost = 0.0 if self.begun <= self.free else info["cost"]
        return seen, self.unit * reward, *over, {"cost": self.unit * cost}


@pytest.mark.parametrize("name", ["rcac_sqp", "robust_crpo_deep"])
@pytest.mark.parametrize("free", [0, 3])
def test_nothing_depends_on_the_unit_of_costs(name, free):
    """Values scale with the unit, and the same policy comes of it, whether a cost shows at once or late."""
    found = []
    for unit in (1.0, 2.0**-14):
        settings = row(name, **{**TINY, "total_steps": 64 * 12, "switch": "crpo", "critic_lr": 1e-2})
        trainer = Trainer(SyncVectorEnv([lambda unit=unit: Late(unit, free)] * 4), [4.0 * unit], settings, 0, 15)
        assert not trainer.critics.values(trainer.initial).any()  # before anything was seen
        run(trainer)
        assert float(trainer.critics.scales.min()) > 0
        found.append((flat(trainer.actor), trainer.critics.values(trainer.initial) / unit))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-2, atol=2e-3)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-2, atol=1e-2)


def test_a_truncated_step_bootstraps_from_its_final_observation():
    """One-step targets c + γV(s'), where s' of a truncated step is not the next row."""
    settings = row("rcac", **{**TINY, "gae_lambda": 0.0, "critic_lambda": 0.0, "gamma": 0.9, "num_envs": 1})
    trainer = Trainer(SyncVectorEnv([Line], autoreset_mode=AutoresetMode.SAME_STEP), [1.0, 1.0], settings, 0, 20)
    states = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32).reshape(4, 1, 1)
    costs = np.arange(9.0).reshape(3, 3, 1)
    terminated = np.array([[False], [False], [True]])
    truncated = np.array([[False], [True], [False]])
    at, final = np.array([[1, 0]]), np.array([[9.0]], dtype=np.float32)
    actions = np.zeros((3, 1, 1), dtype=np.float32)
    trajectory = Trajectory(
        states, actions, costs, terminated, truncated, ~terminated | True, at, final, states[0], terminated
    )
    batch, _ = trainer._batch(trajectory, np.zeros(3), None, costs)
    following = trainer.critics.values(np.array([[0.2], [9.0]], dtype=np.float32))  # (K, 2)
    expected = costs[:, :, 0] + 0.9 * np.concatenate([following, np.zeros((3, 1))], axis=1)
    np.testing.assert_allclose(batch.targets.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("calibrate", [True, False])
def test_critics_learn_survival_instead_of_steps_lost(calibrate):
    """The sums are the same but for the constant L: −1 for each step of an episode of l steps, against L − l at its end."""
    settings = row("rcac_sqp", **{**TINY, "calibrate": calibrate, "gamma": 0.9, "rollout_length": 200})
    trainer = Trainer(StepsLost(cartpole(), 500), [200.0, 10.0], settings, 0, 500)
    trajectory = trainer._collect(trainer.actor, 200)
    costs = trainer._by_step(trajectory)
    finished = trainer.episodes.record(trajectory, None, costs)
    assert len(finished) > 4
    assert all(episode.length < 500 for episode in finished)
    for episode in finished:
        assert episode.plain[2] == 500 - episode.length
        steps = 0.9 ** np.arange(episode.length)
        expected = -steps.sum() if calibrate else (500 - episode.length) * steps[-1]
        assert episode.discounted[2] == pytest.approx(expected)
        shown = trainer.constants[2] + expected  # what a person is shown: every lost step at its own time
        assert shown == pytest.approx((0.9 ** np.arange(episode.length, 500)).sum() if calibrate else expected)
    np.testing.assert_array_equal(costs[:2], trajectory.costs[:2])


def test_the_radius_raises_what_the_critics_say_of_a_cost_and_lowers_the_return():
    values = {}
    for radius in (0.0, 0.05):
        steps = run(tiny("rcac", updates=60, radius=radius, critic_lr=1e-2, critic_epochs=4, seed=3))
        values[radius] = np.mean([[s.metrics["return/estimate"], s.metrics["cost/1/estimate"]] for s in steps[-20:]], 0)
    assert values[0.05][0] < values[0.0][0]
    assert values[0.05][1] > values[0.0][1]


# Learning


def return_reached(settings, enough=400):
    """The largest mean return of recent episodes on the noisy cart-pole, or the first that is enough."""
    trainer, best = Trainer(cartpole(settings.num_envs), [200.0], settings, 1, 500), 0.0
    while not trainer.finished and best < enough:
        best = max(best, trainer.step().metrics.get("return/episode", 0.0))
    return best


@pytest.mark.parametrize("name", ["rcac", "rcac_npg", "rcac_sqp"])
def test_cartpole_is_learnt(name):
    assert return_reached(row(name, total_steps=250_000, anneal=0.0)) >= 400


def test_continuous_actions_and_two_constraints():
    for scale in ("independent", "dependent"):
        changes = {"num_envs": 8, "rollout_length": 40, "gaussian_scale": scale, "window": 16, "gamma": 0.9}
        changes |= {"critic_lr": 1e-2, "critic_epochs": 4, "kl_radius": 0.03, "total_steps": 320 * 60, "trials": 4}
        settings = row("rcac_sqp", **{**TINY, **changes})
        envs = SyncVectorEnv([Line] * 8, autoreset_mode=AutoresetMode.SAME_STEP)
        trainer = Trainer(envs, [12.0, 50.0], settings, 0, 20)
        steps = run(trainer)
        first, last = steps[1].terms, trainer.summary()
        assert last["feasible"]
        assert last["return"] > first[0].value + 2
        assert [term.label for term in first] == ["return", "cost 1", "cost 2"]
        policy = Policy(trainer.policy())
        action = policy(np.array([0.0], dtype=np.float32))
        assert Line.action_space.contains(action)


def test_discrete_observations():
    changes = {"num_envs": 8, "rollout_length": 30, "window": 20, "gamma": 0.9, "total_steps": 240 * 30}
    trainer = Trainer(SyncVectorEnv([Corridor] * 8), [15.0], row("rcac_npg", **{**TINY, **changes}), 0, 15)
    run(trainer)
    policy = Policy(trainer.policy(), deterministic=True)
    assert [policy(cell) for cell in (3, 4, 5, 6)] == [1, 1, 1, 1]


def test_a_violated_constraint_is_descended_by_every_switch():
    for name in ("rcac", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp"):
        trainer = tiny(name, budget=-1e6, updates=3)
        steps = run(trainer)
        assert {step.descending for step in steps} == {"cost"}
        assert not steps[-1].terms[1].met
        trainer = tiny(name, budget=1e6, updates=2)
        assert {step.descending for step in run(trainer)} == {"return"}


def test_the_level_is_bisected_between_phases():
    steps = run(tiny("epirc_pgs_deep", updates=8, epigraph_phases=4, epigraph_low=-100.0, epigraph_high=0.0))
    levels = [step.metrics["switch/level"] for step in steps]
    assert levels[0] == levels[1] == -50.0
    assert len(set(levels)) == 4
    widths = np.abs(np.diff(sorted(set(levels), key=levels.index)))
    np.testing.assert_allclose(widths, [25.0, 12.5, 6.25])


WAYS = [{"advantage": "q_regression"}, {"critics": "selected"}, {"scope": "all"}]


@pytest.mark.parametrize(  # advantages go into every step; the rest is between the critics and their targets
    ("name", "changes"),
    [*((name, WAYS[0]) for name in ("rcac", "rcac_npg", "rcac_sqp")), ("rcac", WAYS[1]), ("rcac_npg", WAYS[2])],
)
def test_the_papers_own_ways_learn(name, changes):
    changes = {"num_envs": 8, "rollout_length": 30, "window": 20, "gamma": 0.9, "total_steps": 240 * 30, **changes}
    trainer = Trainer(SyncVectorEnv([Corridor] * 8), [15.0], row(name, **{**TINY, **changes}), 0, 15)
    steps = run(trainer)
    assert all(np.isfinite(list(step.metrics.values())).all() for step in steps)
    policy = Policy(trainer.policy(), deterministic=True)
    assert [policy(cell) for cell in (3, 4, 5, 6)] == [1, 1, 1, 1]


@pytest.mark.slow
@pytest.mark.parametrize("changes", WAYS, ids=lambda changes: next(iter(changes.values())))
def test_cartpole_is_learnt_in_the_papers_own_ways(changes):
    assert return_reached(row("rcac_npg", total_steps=250_000, anneal=0.0, **changes)) >= 400


# The same again


def weights(trainer):
    state = trainer.state()
    return {name: array for name, array in state.tensors.items() if not name.startswith("rollout/environment")}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_seed_same_weights(name):
    one, other, third = tiny(name), tiny(name), tiny(name, seed=1)
    for trainer in (one, other, third):
        run(trainer)
    assert_same(weights(one), weights(other))
    assert not np.array_equal(flat(one.actor), flat(third.actor))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_interrupted_or_not_the_weights_are_the_same(name):
    whole, first, second = tiny(name), tiny(name), tiny(name)
    run(whole)
    run(first, updates=3)
    state = first.state()
    assert state.data["rollout"]["exact"]
    copied = State({k: v.copy() for k, v in state.tensors.items()}, json.loads(json.dumps(state.data)))
    run(first, updates=2)  # what has been saved does not move with the trainer
    second.load(copied)
    assert second.position == 3 * 64
    run(second)
    assert_same(weights(whole), weights(second))
    assert whole.summary() == second.summary()
    assert json.dumps(whole.state().data) == json.dumps(second.state().data)


def test_numbers_that_are_not_finite_are_neither_saved_nor_loaded():
    trainer = tiny("rcac")
    trainer.step()
    state = trainer.state()
    for name in ("actor/head.bias", "critics/scales", "calibration/level"):
        spoiled = State({**state.tensors, name: np.full_like(state.tensors[name], np.nan)}, state.data)
        with pytest.raises(InputError, match=f"state: {name} is not finite"):
            tiny("rcac").load(spoiled)
    with torch.no_grad():
        trainer.actor.head.bias[0] = torch.inf
    with pytest.raises(FloatingPointError, match=r"actor/head\.bias is not finite"):
        trainer.state()


def test_candidates_of_a_state_are_policies_of_this_actor():
    trainer = tiny("rcac")
    while not any(trainer.selection.candidates):
        trainer.step()
    state, names = trainer.state(), ("selection/0.preprocess.std", "selection/0.head.bias")
    spoiled = State({**state.tensors, names[0]: np.zeros_like(state.tensors[names[0]])}, state.data)
    with pytest.raises(InputError, match=r"preprocess\.std: 0 or less given"):
        tiny("rcac").load(spoiled)
    spoiled = State({**state.tensors, names[1]: np.zeros(7, np.float32)}, state.data)
    with pytest.raises(InputError, match=r"head\.bias: shape \(7,\) given"):
        tiny("rcac").load(spoiled)


def test_interrupted_just_before_a_reset_step():
    changes = {"rollout_length": 5, "updates": 30, "total_steps": 20 * 30}
    whole, first, second = (tiny("rcac", **changes) for _ in range(3))
    while not first.rollout.resetting.any():
        first.step()
    second.load(first.state())
    run(whole)
    run(second)
    assert_same(weights(whole), weights(second))


def test_environments_that_cannot_be_saved_begin_anew():
    def made():
        envs = SyncVectorEnv([Line] * 4)
        return Trainer(envs, [12.0, 50.0], row("rcac", **{**TINY, "total_steps": 64 * 6}), 0, 20)

    first, second = made(), made()
    run(first, updates=3)
    state = first.state()
    assert state.data["rollout"]["exact"] is False
    second.load(state)
    assert (
        second.inexact
        == second.state().data["inexact"]
        == "its environment cannot be saved in the middle of an episode"
    )
    assert (second.rollout.observations == 0).all()
    assert (second.episodes.length == 0).all()
    run(second)
    assert second.finished


def test_seeds_of_neighbouring_runs_stay_apart():
    starts = sorted(environment_seed(seed) for seed in range(500))
    assert min(np.diff(np.array(starts, dtype=object))) > 1_000_000
    assert max(starts) < 2**31


# The policy


def test_the_policy_acts_as_the_trainer_does():
    trainer = tiny("rcac_npg", updates=20)
    run(trainer)
    state = trainer.policy()
    card = json.loads(json.dumps(state.data))
    policy = Policy(State(state.tensors, card), deterministic=True)
    observation, _ = trainer.rollout.envs.reset(seed=5)
    with torch.no_grad():
        outputs = trainer._frozen(state.tensors)(torch.from_numpy(observation)).numpy()
    assert policy.batch(observation).tolist() == np.argmax(outputs, axis=1).tolist()
    assert policy(observation[0]) == int(np.argmax(outputs[0]))
    sampled = Policy(state, seed=3)
    frequency = np.mean([sampled(observation[0]) for _ in range(4000)])
    expected = np.exp(outputs[0, 1]) / np.exp(outputs[0]).sum()
    assert frequency == pytest.approx(expected, abs=0.03)


def test_the_best_measured_policy_is_handed_out_not_the_last():
    trainer = tiny("rcac_npg", updates=30)
    while trainer.selection.candidates == [None]:
        trainer.step()
    trainer.selection.candidates[0].measured = [-1e9, 0.0]  # nothing later can be better
    best_weight = trainer.policy().tensors["head.weight"].copy()
    run(trainer)
    np.testing.assert_array_equal(trainer.policy().tensors["head.weight"], best_weight)
    assert not np.array_equal(trainer.actor.head.weight.detach().numpy(), best_weight)


def corridor_with_trials(**more):
    changes = {
        "num_envs": 8,
        "rollout_length": 30,
        "window": 20,
        "gamma": 0.9,
        "total_steps": 240 * 50,
        "trials": 3,
        **more,
    }
    return Trainer(SyncVectorEnv([Corridor] * 8), [15.0], row("rcac_npg", **{**TINY, **changes}), 0, 15)


def test_candidates_act_alone_in_the_end_and_the_best_of_them_is_handed_out():
    trainer = corridor_with_trials()
    steps = run(trainer)
    assert trainer.trials == 3
    # three rounds of 15 steps make at least the window's 20 episodes, with a reset step between two; at last one round
    # of the mode, which is not deployed
    assert trainer.total == trainer.learning + 3 * 8 * (3 * 15 + 2) + 8 * 15 <= 240 * 50
    assert [step.descending for step in steps[-5:]] == ["return", *["nothing"] * 4]
    trials = [step.metrics["trial/return"] for step in steps[-4:-1]]
    assert all(candidate.tried and candidate.episodes == 24 for candidate in trainer.selection.candidates)
    assert trainer.summary()["return"] == max(trials)
    # Nothing but the measured returns of whole episodes: 15 steps each, on the corridor's own scale.
    best = trainer.policy()
    sums = []
    for seed in range(40):
        policy, env = Policy(best, seed=seed), Corridor()
        observation, total = env.reset()[0], 0.0
        for _ in range(15):
            observation, reward, _, _, _ = env.step(policy(observation))
            total += reward
        sums.append(total)
    assert max(trials) == pytest.approx(np.mean(sums), abs=4 * np.std(sums) / np.sqrt(24) + 1e-9)


def played(state, deterministic=None):
    policy, env = Policy(state, deterministic), Corridor()
    observation, total = env.reset()[0], 0.0
    for _ in range(15):
        observation, reward, _, _, _ = env.step(policy(observation))
        total += reward
    return total


def test_what_is_deployed_is_ranked_and_the_other_way_is_reported_beside_it():
    """The corridor is deterministic, and so is the mode: one episode of it says what every trial measured."""
    trainer = corridor_with_trials(deploy="deterministic")
    run(trainer)
    summary, best = trainer.summary(), trainer.policy()
    assert summary["deploy"] == "deterministic"
    assert summary["return"] == played(best) == played(best, True)  # a policy acts as it is deployed
    assert summary["return"] > summary["stochastic"]["return"]
    assert len(summary["stochastic"]["costs"]) == 1
    sampled = corridor_with_trials()
    run(sampled)
    assert sampled.summary()["deterministic"]["return"] == played(sampled.policy(), True)


def test_trials_resume():
    whole, first, second = corridor_with_trials(), corridor_with_trials(), corridor_with_trials()
    run(first)
    run(whole, updates=12)
    while whole.position <= whole.learning:
        whole.step()
    state = whole.state()
    second.load(State(state.tensors, json.loads(json.dumps(state.data))))
    run(whole)
    run(second)
    assert whole.summary() == second.summary() == first.summary()


def test_ranking_adds_the_worst_case_to_what_was_measured():
    kappa, margins = (1 - 0.9**500) / (0.1 * 500), np.array([0.1, 0.2])
    candidate = Candidate({}, [-500.0, 188.0], 500.0, 64, 0, [9.0, 2.0])
    expected = kappa * np.array([-500.0, 190.0]) + 0.9 * margins / 0.1
    returns = worst_returns(candidate, margins, kappa, 0.9)
    np.testing.assert_allclose(returns, expected)
    for name, merit in (
        ("rcac", (0.9 * 0.2 / 0.1 - 10 * kappa, expected[0])),
        ("robust_crpo_deep", (0.9 * 0.2 / 0.1 - 10 * kappa, expected[0])),
        ("epirc_pgs_deep", (0.9 * 0.2 / 0.1 - 10 * kappa, expected[0])),
    ):
        assert tiny(name).switch.merit(returns, np.array([200 * kappa])) == pytest.approx(merit)


def test_what_was_tried_beats_what_was_not_and_being_later_is_no_merit():
    def chosen(*candidates):
        return best(candidates, lambda returns: (float(returns[0]),), np.zeros(1), 1.0, 0.9)

    good, bad, later = (
        Candidate({}, [1.0], 5.0, 8, 10, [0.0]),
        Candidate({}, [2.0], 5.0, 8, 10, [0.0], True),
        Candidate({}, [1.0], 5.0, 8, 20, [0.0]),
    )
    assert chosen(good, bad, None) is bad
    assert chosen(good, later) is good
    assert chosen(later, good) is later
    assert chosen(None) is None


def test_trials_count_the_first_episodes_of_each_environment():
    done = np.array([[0, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    costs = np.arange(8.0).reshape(1, 4, 2)
    nothing, empty = np.zeros_like(done), np.zeros(0)
    seen = np.zeros((5, 2, 1), np.float32)
    trajectory = Trajectory(seen, empty, costs, done, nothing, ~nothing, np.zeros((0, 2), int), empty, empty, done)
    episodes = Episodes(1, 2, 0.5, None)
    episodes.record(trajectory)
    one = episodes.first_of_each(1)
    assert one.plain.tolist() == [(0 + 2 + 1) / 2]
    assert (one.length, one.episodes) == (1.5, 2)
    np.testing.assert_allclose(one.errors, [0.5])  # of 2 and 1
    assert one.discounted.tolist() == [(0 + 0.5 * 2 + 1) / 2]
    two = episodes.first_of_each(2)  # and what environment 0 began but did not end
    assert two.plain.tolist() == [(0 + 2 + 1 + 4 + 6 + 3 + 5) / 4]
    assert (two.length, two.episodes) == (7 / 4, 4)


def test_a_result_that_means_little_says_so():
    def candidate(value, episodes=64, tried=True):
        return Candidate({}, [value, 0.0], 5.0, episodes, 0, [0.0, 0.0], tried)

    good, other, few = candidate(-3.0), candidate(-2.0), candidate(-3.0, 16)
    assert notes([good, other], good, 64, 64) == []
    assert notes([candidate(0.0), candidate(0.0)], candidate(0.0), 64, 64) == ["return 0.0 at every candidate"]
    assert notes([candidate(0.0)], candidate(0.0), 64, 64) == ["return 0.0 at every candidate"]
    assert notes([candidate(-500.0), candidate(-500.0)], candidate(-500.0), 64, 64) == []
    assert notes([few, other], few, 64, 64) == ["16 episodes, 64 wanted"]
    assert "no trial" in notes([candidate(-1.0, tried=False)], candidate(-1.0, tried=False), 64, 64)[0]
    assert tiny("rcac", updates=2).summary()["note"] == "no episode has ended"


def test_a_window_that_was_not_filled_says_so_and_what_was_measured():
    trainer = Trainer(Constant(), [4.0], row("rcac", **{**TINY, "total_steps": 1, "window": 1000}), 0, 7)
    trainer.step()
    found = trainer.summary()
    ended = found["measured_episodes"]
    assert 0 < ended == found["episodes"] < 1000
    assert f"the window of 1000 episodes was not filled, {ended} ended" in found["note"]
    assert "total_steps 1, but one rollout takes 64" in found["note"]
    assert found["feasible"] is None
    assert (found["return"], found["costs"]) == (-trainer.episodes.mean()[0], trainer.episodes.mean()[1:].tolist())
    assert found["violation"] == max(0.0, found["costs"][0] - 4.0)


def test_budgets_on_discounted_sums():
    """Without calibration, what is measured is compared with the budgets as a discounted sum."""
    changes = {"gamma": 0.9, "calibrate": False, "total_steps": 64 * 10, "window": 4}
    trainer = Trainer(Constant(), [4.0], row("rcac_npg", **{**TINY, **changes}), 0, 7)
    step = run(trainer)[-1]
    discounted = (1 - 0.9**7) / 0.1
    assert trainer.kappa == pytest.approx(discounted / 7)
    assert step.terms[1].value == pytest.approx(discounted / trainer.kappa)
    assert step.metrics["cost/1/episode"] == pytest.approx(7.0)
    assert trainer.summary()["costs"] == pytest.approx([7.0])


def test_faults_and_wrong_inputs_are_named():
    with pytest.raises(InputError, match=r"budgets\[1\]"):
        Trainer(cartpole(), [1.0, np.nan], row("rcac", **TINY), 0, 500)
    with pytest.raises(InputError, match="device"):
        Trainer(cartpole(), [1.0], row("rcac", **{**TINY, "device": "abacus"}), 0, 500)
    with pytest.raises(InputError, match="seed"):
        Trainer(cartpole(), [1.0], row("rcac", **TINY), -1, 500)
    plain = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    trainer = Trainer(plain, [200.0], row("rcac", **TINY), 0, 500)
    with pytest.raises(InputError, match="CartPole-v1, environment 0, step 0"):
        trainer.step()
    assert trainer.position == 0


def test_a_final_observation_that_is_not_finite_is_named():
    class Blank(Constant):
        def step(self, actions):
            *seen, infos = super().step(actions)
            return *seen, infos | {"final_obs": np.full((4, 2), np.nan)}

    trainer = Trainer(Blank(mode=AutoresetMode.SAME_STEP), [1.0], row("rcac", **TINY), 0, 7)
    with pytest.raises(InputError, match=r"Blank, environment 3, step 3: final_obs \[nan, nan\], finite expected"):
        run(trainer)


def test_no_constraint_at_all():
    plain = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    for name in ALGORITHMS:
        trainer = Trainer(plain, [], row(name, **{**TINY, "total_steps": 192}), 0, 500)
        assert {step.descending for step in run(trainer)} == {"return"}


def test_total_is_a_whole_number_of_updates_within_the_steps_asked_for():
    assert tiny("rcac", total_steps=1000).total == 960
    assert tiny("rcac", total_steps=10).total == 64
