"""The soft surrogate: where its two sides meet, how they mix, and that no unit matters."""

import numpy as np
import pytest

from rcac.deep.settings import DeepSettings
from rcac.deep.switching import SoftSurrogate, make_switch
from rcac.switch import Complement, Surrogate


def switch(width=0.5, lam=50.0, reward=1.0, gamma=0.9):
    made = SoftSurrogate(lam, 0.0, width, gamma)
    made.begin_update(0.0, np.full(8, -reward))
    return made


def test_the_objective_comes_in_step_by_step_below_the_budget():
    """Reward 1 at each step, J_0 = −10 = −u_0: the sides meet at b(1 − 1/λ) = 19.6, and the width is half a budget, 10."""
    for cost, share in [(30.0, 1.0), (19.6, 1.0), (14.6, 0.5), (12.1, 0.25), (9.6, 0.0), (1.0, 0.0)]:
        weights = switch().weights(np.array([-10.0, cost]), np.array([20.0]))
        np.testing.assert_allclose(weights, [1 - share, share], atol=1e-12)


def test_a_narrow_one_is_the_papers_hard_switch():
    rng = np.random.default_rng(0)
    for _ in range(200):
        returns, budgets = np.array([-10.0, *rng.uniform(0, 40, 2)]), np.array([20.0, 20.0])
        hard = Surrogate(lam=50.0 * 10 / 20).weights(returns, budgets)  # the same λ in the paper's units
        np.testing.assert_array_equal(switch(width=1e-9).weights(returns, budgets) > 0, hard > 0)


def test_no_unit_matters():
    for returns in ([-7.0, 15.0, 3.0], [-7.0, 18.0, 9.5], [4.0, 25.0, 9.0]):
        plain = switch().weights(np.array(returns), np.array([20.0, 10.0]))
        scaled = switch(reward=300.0).weights(np.array(returns) * [300, 1e-3, 50], np.array([20e-3, 500.0]))
        np.testing.assert_allclose(scaled, plain, rtol=1e-9)
        assert plain.sum() == pytest.approx(1.0)


def test_several_constraints_share_by_how_near_they_are():
    """Nearness 0.5 and 0.25 (see above): the objective keeps half, and they divide the other half 2:1."""
    weights = switch().weights(np.array([-10.0, 14.6, 12.1]), np.array([20.0, 20.0]))
    np.testing.assert_allclose(weights, [0.5, 1 / 3, 1 / 6])


def test_a_budget_of_zero_and_rewards_of_zero():
    quiet = SoftSurrogate(50.0, 0.0, 0.5, 0.9)
    quiet.begin_update(0.0, np.zeros(4))
    assert quiet.weights(np.array([0.0, 2.0]), np.array([0.0])).tolist() == [0.0, 1.0]
    assert quiet.weights(np.zeros(1), np.zeros(0)).tolist() == [1.0]


def test_feasible_policies_are_ranked_by_their_return_and_the_state_goes_on():
    first, budgets = switch(), np.array([20.0])
    near, idle, over = (first.merit(np.array(x), budgets) for x in ([-9.0, 19.9], [-5.0, 0.0], [-30.0, 20.5]))
    assert near < idle < over
    first.weights(np.array([-10.0, 14.6]), budgets)
    second = SoftSurrogate(50.0, 0.0, 0.5, 0.9)
    second.load(first.state())
    for made in (first, second):
        made.begin_update(0.5, np.full(8, -3.0))
    returns = np.array([-10.0, 15.0])
    np.testing.assert_array_equal(first.weights(returns, budgets), second.weights(returns, budgets))


def test_complement_takes_the_largest_reward_seen_or_the_declared_one():
    """λ 10, steps 100: J_0 = −50 becomes 100·r_max − 50, so the sides meet at an excess of (100·r_max − 50)/10."""
    budgets = np.array([20.0])

    def chooses(switch, excess):
        return int(np.argmax(switch.weights(np.array([-50.0, 20.0 + excess]), budgets)))

    seen = make_switch(DeepSettings(switch="surrogate", lam=10.0, objective="complement"), steps=100.0)
    for rewards, meets in ((0.6, 1.0), (1.0, 5.0), (0.2, 5.0)):  # the largest stays
        seen.begin_update(0.0, np.array([0.0, -rewards]))
        assert [chooses(seen, meets + d) for d in (-0.1, 0.1)] == [0, 1]
    resumed = make_switch(DeepSettings(switch="surrogate", lam=10.0, objective="complement"), steps=100.0)
    resumed.load(seen.state())
    assert [chooses(resumed, excess) for excess in (4.9, 5.1)] == [0, 1]
    settings = DeepSettings(switch="surrogate", lam=10.0, objective="complement", reward_bound=2.0)
    known = make_switch(settings, steps=100.0)
    known.begin_update(0.0, np.array([-5.0]))
    assert [chooses(known, excess) for excess in (14.9, 15.1)] == [0, 1]
    assert isinstance(make_switch(DeepSettings(objective="complement"), 1.0), Complement)  # the soft surrogate
    crpo = make_switch(DeepSettings(switch="crpo", objective="complement"), 1.0)
    assert not isinstance(crpo, Complement)  # no constant matters to it
