"""What all transitions of a run say of a policy, against hand computation and the model itself."""

import json

import gymnasium as gym
import numpy as np
import pytest

import rcac
from rcac.deep.empirical import EmpiricalModel
from rcac.deep.rollout import Trajectory
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.learner import State
from rcac.policies.policy import Policy
from rcac.problem import RCMDP


def trajectory(states, actions, costs, terminated=None, valid=None, final=()):
    """One environment among four states; `final` are (t, true next state). A second cost is 1 at every step."""
    eye, length = np.eye(4, dtype=np.float32), len(actions)
    flags = [
        np.array(v if v is not None else d, bool)[:, None]
        for v, d in ((terminated, [0] * length), (valid, [1] * length))
    ]
    return Trajectory(
        observations=eye[states][:, None],
        actions=np.array(actions)[:, None],
        costs=np.array([costs, np.ones(length)])[:, :, None] * flags[1],
        terminated=flags[0],
        truncated=np.zeros((length, 1), dtype=bool),
        valid=flags[1],
        final_at=np.array([(t, 0) for t, _ in final], dtype=int).reshape(-1, 2),
        final=eye[[s for _, s in final]].reshape(-1, 4),
        initial=eye[:0],
        begun=~flags[1],
    )


def counted(*rollouts, actions=1):
    model = EmpiricalModel(4, actions, 2)
    for rollout in rollouts:
        model.add(rollout)
    return model


def test_values_by_hand():
    # 0 → 1 → 2 → end, costs 1, 2, 4; then a reset row that is no transition, and once more as far as 2; never 3
    model = counted(
        trajectory([0, 1, 2, 2, 0, 1, 2], [0] * 6, [1, 2, 4, 0, 1, 2], [0, 0, 1, 0, 0, 0], [1, 1, 1, 0, 1, 1], [(2, 3)])
    )
    policy = np.ones((4, 1))
    values = np.array([model.returns(policy, np.array([s]), 0.5) for s in range(4)])
    np.testing.assert_allclose(values[:3, 0], [1 + 0.5 * 2 + 0.25 * 4, 2 + 0.5 * 4, 4])
    np.testing.assert_allclose(values[:3, 1], [1.75, 1.5, 1])
    np.testing.assert_allclose(values[3], values[:3].mean(axis=0))
    np.testing.assert_allclose(model.returns(policy, np.array([0, 2]), 0.5)[0], (3 + 4) / 2)


def test_a_truncated_step_goes_on_to_its_final_observation():
    model = counted(trajectory([0, 3, 1, 1], [0, 0, 0], [1, 0, 2], valid=[1, 0, 1], final=[(0, 1)]))
    # 0 → 1 (seen as 3, the next episode's first), 1 → 1 at cost 2 for ever
    np.testing.assert_allclose(model.returns(np.ones((4, 1)), np.array([0]), 0.5)[0], 1 + 0.5 * 2 / (1 - 0.5))


def test_actions_never_tried_are_left_out_of_a_policy():
    model = counted(trajectory([0, 0, 1, 1], [0, 1, 0], [1, 5, 2]), actions=2)
    half = np.full((4, 2), 0.5)
    both = model.returns(half, np.array([0]), 0.5)[0]  # V(0) = ½(1 + ½V(0)) + ½(5 + ½V(1)),  V(1) = 2/(1 − ½)
    np.testing.assert_allclose(both, (0.5 * 1 + 0.5 * (5 + 0.5 * 4)) / (1 - 0.25))
    np.testing.assert_allclose(model.returns(half, np.array([1]), 0.5)[0], 4)


def test_nothing_seen_is_worth_nothing():
    np.testing.assert_array_equal(
        EmpiricalModel(4, 2, 3).returns(np.full((4, 2), 0.5), np.array([1]), 0.9), np.zeros(3)
    )


def test_transitions_of_one_policy_tell_of_another():
    rng = np.random.default_rng(0)
    kernel, costs = rng.dirichlet(np.ones(4), size=(4, 2)), rng.random((4, 2))
    states, actions = [0], rng.integers(2, size=40_000)
    draws = rng.random(len(actions))
    for action, draw in zip(actions, draws, strict=True):
        states.append(int(np.searchsorted(np.cumsum(kernel[states[-1], action]), draw)))
    cost = costs[states[:-1], actions]
    half = len(actions) // 2
    model = counted(
        trajectory(states[: half + 1], actions[:half], cost[:half]),
        trajectory(states[half:], actions[half:], cost[half:]),
        actions=2,
    )
    other = rng.dirichlet(np.ones(2), size=4)
    problem = RCMDP(kernel, np.stack([costs, np.ones((4, 2))]), [100.0], np.eye(4)[2], 0.9)
    expected = rcac.evaluate(problem, other).returns
    np.testing.assert_allclose(model.returns(other, np.array([2]), 0.9), expected, rtol=0.01)


def river_swim(updates, **changes):
    envs = gym.make_vec("rcac/RiverSwim-v0", num_envs=8, vectorization_mode="vector_entry_point")
    small = {"num_envs": 8, "rollout_length": 64, "actor_hidden": [8], "critic_hidden": [8], "critic_batch": 128}
    settings = DeepSettings(**small, gamma=0.99, calibrate=False, total_steps=512 * updates, **changes)
    return Trainer(envs, [42.0], settings, 3, 1000, 1.0)


def finish(trainer, updates=None):
    while not trainer.finished and updates != 0:
        trainer.step()
        updates = None if updates is None else updates - 1
    return trainer


def test_where_everything_can_be_counted_no_steps_go_into_trials_and_scores_come_near_the_truth():
    trainer = finish(river_swim(60))
    assert trainer.trials == 0
    assert trainer.total == 512 * 60
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    policy, summary = trainer.policy(), trainer.summary()
    exact = rcac.evaluate(problem, Policy(policy).probabilities(np.arange(6))).returns
    np.testing.assert_allclose([-summary["return"], *summary["costs"]], exact, rtol=0.1)


def test_counts_survive_interruption():
    whole, first = finish(river_swim(12)), finish(river_swim(12), 5)
    state = first.state()
    second = river_swim(12)
    second.load(State(state.tensors, json.loads(json.dumps(state.data))))
    assert finish(second).summary() == whole.summary()
    np.testing.assert_array_equal(second.policy().tensors["head.weight"], whole.policy().tensors["head.weight"])
    assert second.model is not None
    assert second.model.visits.sum() == pytest.approx(512 * 12)
