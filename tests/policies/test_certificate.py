"""Certificates, by simulation on problems whose truth is known."""

import numpy as np
import pytest
from scipy.stats import binom

from rcac.contexts import Parameters
from rcac.errors import InputError
from rcac.policies.certificate import certify_measured, mean_bound, share_bound
from rcac.policies.worst_context import Process, worst_contexts

TRIALS = 2000
BOX = Parameters({"wind": (-2, 2), "length": (0.5, 2.0, "log")})


@pytest.mark.parametrize("share", [0.0, 0.01, 0.05, 0.4])
def test_a_share_is_covered(share):
    """Exactly: over every count that can be seen, with its probability."""
    counts = np.arange(101)
    covered = np.array([share_bound(int(k), 100, 0.95) >= share for k in counts])
    assert binom.pmf(counts, 100, share) @ covered >= 0.95
    rng = np.random.default_rng(0)
    seen = [share_bound(int(k), 100, 0.95) >= share for k in rng.binomial(100, share, TRIALS)]
    assert np.mean(seen) >= 0.94


def test_the_textbooks_rule_of_three():
    assert share_bound(0, 300, 0.95) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert share_bound(5, 5, 0.95) == 1.0


@pytest.mark.parametrize(
    "sample",
    [
        lambda rng, n: rng.random(n) < 0.01,  # rare and dear
        lambda rng, n: rng.beta(0.2, 0.5, n),
        lambda rng, n: np.full(n, 0.3),
    ],
)
def test_a_mean_is_covered(sample):
    rng = np.random.default_rng(1)
    truth = float(np.mean(sample(rng, 2_000_000)))
    bounds = np.array([mean_bound(np.asarray(sample(rng, 200), dtype=float), 0.0, 1.0, 0.95) for _ in range(TRIALS)])
    assert np.mean(bounds >= truth - 1e-9) >= 0.94
    assert bounds.mean() <= truth + 0.2


class Plant:
    """Episodes whose mean cost is `height` at (wind, length) = (1.1, .7) and falls with the distance; in [0, 2·height]."""

    def __init__(self, height: float) -> None:
        self.height, self.worst = height, BOX.unit({"wind": 1.1, "length": 0.7})

    def mean(self, points):
        return self.height * np.exp(-4 * np.sum((points - self.worst) ** 2, axis=1))

    def __call__(self, points, episodes, seed):
        rng = np.random.default_rng(seed)
        means = self.mean(points)[:, None]
        return (2 * means * rng.random((len(points), episodes)))[:, :, None]


def test_the_search_finds_the_worst_context():
    """The largest mean is 100, an episode's standard deviation 58."""
    plant = Plant(100.0)
    found = [plant.mean(worst_contexts(plant, BOX, 1, 4096, seed).worst)[0] for seed in range(20)]
    assert np.median(found) >= 99.0
    assert np.mean(np.array(found) >= 97.0) >= 0.95


@pytest.mark.parametrize("episodes", [1, 2, 7, 64, 300, 1000])
@pytest.mark.parametrize("costs", [1, 7])
@pytest.mark.parametrize("dimension", [1, 11])
def test_the_search_plays_as_many_episodes_as_it_may(episodes, costs, dimension):
    played = []

    def measure(points, each, seed):
        played.append(len(points) * each)
        return np.random.default_rng(seed).random((len(points), each, costs))

    box = Parameters({f"p{j}": (0, 1) for j in range(dimension)})
    found = worst_contexts(measure, box, costs, episodes, 0)
    assert sum(played) == found.episodes <= episodes
    assert found.episodes >= episodes / 4
    assert found.worst.shape == (costs, dimension)


def test_the_process_is_the_textbooks():
    """Mean and standard deviation by the conditional normal distribution, with explicit matrices."""
    rng = np.random.default_rng(2)
    points, episodes = rng.random((9, 2)), 4
    costs = 50 + 10 * points[:, :1] ** 2 + rng.normal(size=(9, episodes))
    process, at = Process([(points, costs[:, :, None])], 0), rng.random((5, 2))
    means = costs.mean(axis=1)
    scale, noise = means.std(), costs.var(axis=1, ddof=1).mean() / episodes

    def covariance(a, b):
        return scale**2 * np.exp(-np.sum((a[:, None] - b[None]) ** 2, axis=2) / (2 * process.length**2))

    inverse = np.linalg.inv(covariance(points, points) + (noise + 1e-6 * scale**2) * np.eye(9))
    mean, std = process(at)
    assert mean == pytest.approx(means.mean() + covariance(at, points) @ inverse @ (means - means.mean()))
    variance = scale**2 - np.diag(covariance(at, points) @ inverse @ covariance(points, at))
    assert std == pytest.approx(np.sqrt(variance))


def test_a_search_begins_with_what_is_known():
    """A peak so narrow that the search would hardly find it, but where an episode was played before."""
    peak = np.array([[0.123, 0.871]])

    def measure(points, each, seed):
        near = np.exp(-np.sum((points - peak) ** 2, axis=1) / (2 * 0.02**2))
        return np.repeat(100 * near[:, None, None], each, axis=1)

    known = [(peak, measure(peak, 4, 0))]
    assert measure(worst_contexts(measure, BOX, 1, 1024, 0).worst, 1, 0)[0, 0, 0] < 90
    assert measure(worst_contexts(measure, BOX, 1, 1024, 0, known).worst, 1, 0)[0, 0, 0] > 90


def flat(height):
    """The same mean everywhere."""
    return lambda points, episodes, seed: 2 * height * np.random.default_rng(seed).random((len(points), episodes, 1))


QUICK = {"search_episodes": 16, "contexts": 10, "episodes": 1, "final_episodes": 400}


def test_a_policy_within_its_budget_is_certified_and_one_just_outside_is_not():
    inside = [certify_measured(flat(80.0), BOX, [100.0], [(0, 160.0)], seed=s, **QUICK).certified for s in range(40)]
    assert np.mean(inside) >= 0.95
    outside = [certify_measured(flat(100.1), BOX, [100.0], [(0, 200.2)], seed=s, **QUICK) for s in range(300)]
    assert np.mean([made.certified for made in outside]) <= 0.05
    assert np.mean([made.costs[0].worst_bound >= 100.1 for made in outside]) >= 0.95


def test_the_bound_covers_the_cost_at_the_context_found():
    plant = Plant(100.0)
    found = [certify_measured(plant, BOX, [100.0], [(0, 200.0)], seed=s, **QUICK).costs[0] for s in range(200)]
    truths = [plant.mean(BOX.unit(cost.worst_context)[None])[0] for cost in found]
    assert np.mean([c.worst_bound >= truth for c, truth in zip(found, truths, strict=True)]) >= 0.95


def test_shares_over_the_box_are_covered():
    plant, rng = Plant(120.0), np.random.default_rng(5)
    points = BOX.sample(rng, 400_000)
    truth = float(np.mean(plant(points, 1, 3)[:, 0, 0] > 100))
    found = [
        certify_measured(
            plant, BOX, [100.0], [(0, 240.0)], contexts=40, episodes=1, search_episodes=16, final_episodes=2, seed=seed
        ).costs[0]
        for seed in range(300)
    ]
    assert np.mean([c.episodes_over_share >= truth for c in found]) >= 0.94


def test_words_say_what_is_claimed():
    made = certify_measured(Plant(80.0), BOX, [100.0], [(0, 200.0)], seed=0)
    first, *rest, last = made.statements()
    assert "95 %" in first
    assert "wind in [-2, 2]" in first
    assert "within the budget of 100" in rest[0]
    assert "outside the box" in last
    assert "there may be worse ones" in last
    assert "length log-uniform" in rest[-1]
    assert "an episode can cost 0 to 200" in rest[0]
    assert made.as_dict()["certified"] is True
    assert made.costs[0].worst_context.keys() == {"wind", "length"}


def test_a_range_that_is_too_small_is_refused():
    with pytest.raises(InputError, match=r"cost_ranges\[0\]: \[0, 10\] given, but an episode cost between"):
        certify_measured(Plant(80.0), BOX, [100.0], [(0, 10.0)], contexts=2, episodes=1, search_episodes=64)
    with pytest.raises(InputError, match="confidence: 1 given"):
        certify_measured(Plant(80.0), BOX, [100.0], [(0, 200.0)], confidence=1)
