"""The estimate of what the present policy costs, on made-up episodes whose truth is known."""

import numpy as np
import pytest

from rcac.deep.calibration import Aim, Calibration


def followed(truth, noise, episodes, critic, kappa=0.2, seed=0):
    """Estimates (T,) of κ·truth (T,), from `episodes` sums with that noise at each update, and a critic's V(s_0) (T,)."""
    rng, calibration, estimates = np.random.default_rng(seed), Calibration(1), []
    for level, value in zip(truth, critic, strict=True):
        sums = level + noise * rng.standard_normal((episodes, 1))
        calibration.record(sums.sum(axis=0), np.array([episodes]), sums, kappa * sums, kappa)
        estimates.append(calibration.estimate(np.array([value]), np.zeros(1), kappa)[0])
    return np.array(estimates), calibration


def random_walk(steps, drift, seed=1):
    return 100 + np.cumsum(drift * np.random.default_rng(seed).standard_normal(steps))


@pytest.mark.parametrize(("drift", "noise"), [(1.0, 10.0), (5.0, 5.0), (0.3, 20.0), (3.0, 30.0)])
def test_the_filter_knows_by_itself_how_far_back_to_look(drift, noise):
    """Four episodes an update, of a random walk. In closed form: the last four alone err by r = σ²/4, the mean of the last 64
    by r/16 + 16q/3 (it lags), and the filter that is told q and r by Pr/(P + r), P = (q + √(q² + 4qr))/2."""
    squares = []
    for seed in range(4):
        truth = random_walk(4000, drift, seed + 1)
        estimates, calibration = followed(truth, noise, 4, np.zeros(4000), seed=seed)
        squares.append(np.mean((estimates[500:] / 0.2 - truth[500:]) ** 2))
        assert calibration.noise[0] == pytest.approx(noise**2, rel=0.25)
    q, r = drift**2, noise**2 / 4
    before = (q + np.sqrt(q * q + 4 * q * r)) / 2
    assert np.mean(squares) <= 1.1 * min(r, r / 16 + 16 * q / 3)
    assert np.mean(squares) <= (1.1 if drift == noise else 2.5) * before * r / (before + r)


def test_a_critic_that_lags_is_not_listened_to():
    """It says what held 40 updates ago: following it would be wrong by the drift of 40 updates."""
    truth = random_walk(2000, 3.0)
    late = np.concatenate([np.full(40, 100.0), truth[:-40]])
    estimates, calibration = followed(truth, 5.0, 8, 0.2 * late)
    assert calibration.weight[0] <= 0.1
    assert np.corrcoef(estimates[100:], truth[100:])[0, 1] >= 0.99


def test_a_critic_that_knows_what_comes_is_listened_to():
    """Few and noisy episodes, a right critic: the estimate is closer to it than the episodes alone could be."""
    truth = random_walk(2000, 5.0)
    ahead = 0.2 * truth
    listening, calibration = followed(truth, 50.0, 1, ahead)
    alone, _ = followed(truth, 50.0, 1, np.zeros(2000))
    errors = [np.mean((x[500:] / 0.2 - truth[500:]) ** 2) for x in (listening, alone)]
    assert calibration.weight[0] >= 0.5
    assert errors[0] <= 0.6 * errors[1]


def test_a_jump_is_followed_within_some_updates():
    truth = np.concatenate([np.full(300, 10.0), np.full(40, 200.0)])
    estimates, _ = followed(truth, 3.0, 4, np.zeros(340))
    assert estimates[-1] / 0.2 == pytest.approx(200.0, abs=10.0)


def test_the_adversarys_margin_is_added_whole():
    calibration = Calibration(2)
    sums = np.array([[-10.0, 5.0], [-20.0, 7.0]])
    calibration.record(sums.sum(axis=0), np.array([2.0, 2.0]), sums, np.array([[-2.0, 1.0], [-4.0, 1.4]]), 0.2)
    found = calibration.estimate(np.array([-3.0, 1.2]), np.array([0.5, 0.3]), 0.2)
    np.testing.assert_allclose(found, [0.2 * -15 + 0.5, 0.2 * 6 + 0.3])


def test_it_goes_on_from_its_state():
    _, first = followed(random_walk(50, 1.0), 3.0, 2, np.zeros(50))
    second = Calibration(1)
    second.load(first.state())
    for calibration in (first, second):
        calibration.record(np.array([2.0]), np.array([0.5]), np.zeros((0, 1)), np.zeros((0, 1)), 0.2)
        calibration.record(np.array([3.0]), np.array([1.0]), np.array([[3.0]]), np.array([[1.0]]), 0.2)
    np.testing.assert_array_equal(first.level, second.level)
    np.testing.assert_array_equal(first.weight, second.weight)


@pytest.mark.parametrize(("rate", "rests_at"), [(0.0, 35.0), (0.05, 25.0)])
def test_a_policy_that_is_held_at_its_budget_ends_there(rate, rests_at):
    """Every update brings back a tenth of the excess of six updates ago and adds 1: at a budget of 25 it rests at 35."""
    aim, costs = Aim(1, rate), [0.0] * 7
    for _ in range(2000):
        target = aim.follow(np.array([costs[-7]]), np.array([25.0]))
        costs.append(costs[-1] + 1.0 - 0.1 * max(0.0, costs[-7] - target[0]))
    assert np.mean(costs[-500:]) == pytest.approx(rests_at, abs=0.1)


def test_the_aim_has_limits_and_goes_on_from_its_state():
    aim, budgets = Aim(3, 0.5), np.array([10.0, -4.0, 10.0])
    assert aim.follow(np.array([12.0, -3.0, 3.0]), budgets) == pytest.approx([9.0, -4.5, 10.0])  # excesses 2, 1 and −7
    for _ in range(9):
        last = aim.follow(np.array([90.0, 90.0, 2.0]), budgets)
    assert last == pytest.approx([5.0, -6.0, 10.0])  # half a budget at most
    again = Aim(3, 0.5)
    again.load(aim.state())
    assert again.follow(np.zeros(3), budgets) == pytest.approx(aim.follow(np.zeros(3), budgets))
