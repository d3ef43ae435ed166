"""The estimate of what the present policy costs, on made-up episodes whose truth is known."""

import numpy as np
import pytest

from rcac.deep.calibration import Aim, Calibration, Profile


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


def test_the_noise_is_as_well_known_as_episodes_that_show_it():
    """Four episodes end together, but with every fourth update only: their mean square is the noise, the first no more than
    the others."""
    rng, calibration, squares = np.random.default_rng(0), Calibration(1), []
    for update in range(81):
        ended = 5.0 * rng.standard_normal((4 if update % 4 == 0 else 0, 1)) * (0.1 if update == 0 else 1.0)
        calibration.record(np.zeros(1), np.ones(1), ended, ended, 0.2)
        squares += [ended.var(ddof=1)] if len(ended) else []
    assert calibration.noise[0] == pytest.approx(np.mean(squares))


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


# What a rollout is worth


def lived(costs_at, updates, num_envs=4, length=100, rollout=25, seed=0):
    """Estimates (updates,) of episodes of `length` steps, all copies in step, with costs `costs_at(update, time)`."""
    rng, profile, calibration = np.random.default_rng(seed), Profile(1, length), Calibration(1)
    sums, found = np.zeros(num_envs), []
    for update in range(updates):
        times = (update * rollout + np.arange(rollout)) % length
        times = np.repeat(times[:, None], num_envs, axis=1)
        costs = rng.poisson(costs_at(update, times)).astype(float)
        sums += costs.sum(axis=0)
        steps = profile.record(costs.reshape(1, -1), times.ravel())
        ended, finished = (update + 1) * rollout % length == 0, np.zeros((0, 1))
        if ended:
            finished, sums = sums[:, None].copy(), np.zeros(num_envs)
        if calibration.count or ended:
            worth = profile.worth(steps, np.full(16, length))
            calibration.record(costs.sum(keepdims=True).ravel(), worth, finished, 0.2 * finished, 0.2)
        found.append(calibration.level[0])
    return np.array(found)


def test_steps_are_worth_what_usually_arises_at_their_times():
    """Costs of 1 in the first half of an episode and 3 in the second: steps of the first quarter are worth an eighth."""
    profile, times = Profile(2, 100), np.arange(100)
    profile.record(np.stack([np.where(times < 50, 1.0, -3.0), np.zeros(100)]), times)
    first = np.bincount(np.arange(25) // 5, minlength=20)
    assert profile.worth(first, np.array([100])) == pytest.approx(
        [0.125, 0.25]
    )  # where nothing costs, a step is a step
    assert profile.worth(first, np.array([50, 50])) == pytest.approx([0.5, 0.5])  # shorter episodes
    assert profile.worth(first, np.array([100, 50])) == pytest.approx([25 / 125, 25 / 75])


@pytest.mark.parametrize("late", [0.0, 1.0, 9.0])
def test_costs_that_come_late_in_an_episode_do_not_come_and_go(late):
    """All copies are at the same time of their episodes: what a rollout costs swings, what an episode costs does not."""
    found = lived(lambda update, times: 0.2 + late * (times >= 75), 400)
    truth = 20.0 + 25 * late
    assert found[100:].mean() == pytest.approx(truth, rel=0.05)
    assert found[100:].std() <= 0.15 * truth


def test_a_new_policy_shows_before_its_first_episode_has_ended():
    """Costs rise fivefold at once, in the middle of an episode that takes four rollouts."""
    found = lived(lambda update, times: np.full(times.shape, 0.2 if update < 41 else 1.0), 43)
    assert found[40] == pytest.approx(20.0, rel=0.2)
    assert found[42] >= 50.0  # those that have ended cost 20


def test_a_profile_goes_on_from_its_state():
    first, second, rng = Profile(1, 50), Profile(1, 50), np.random.default_rng(0)
    first.record(rng.random((1, 40)), np.arange(40))
    second.load(first.state())
    costs, steps = rng.random((1, 30)), np.ones(20)
    for profile in (first, second):
        profile.record(costs, np.arange(30))
    np.testing.assert_array_equal(first.worth(steps, np.array([40])), second.worth(steps, np.array([40])))
