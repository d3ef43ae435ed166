"""Problems from logged transitions: counts by hand, convergence, and the promised coverage."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import every_set, random_policy, random_problem
from scipy import stats
from scipy.special import rel_entr

from rcac import RCMDP, InputError, evaluate, robust_value_iteration, uncertainty
from rcac.estimation import _largest_deviation, chernoff_interval
from rcac.uncertainty import ChiSquare, KLBall, TotalVariation, Uncertainty


def log(rng, problem, per_pair):
    """The same number of transitions from every (s, a)."""
    states, actions = problem.num_states, problem.num_actions
    s, a = (x.ravel().repeat(per_pair) for x in np.indices((states, actions)))
    cumulative = problem.kernel[s, a].cumsum(axis=1)
    following = (rng.random(len(s))[:, None] > cumulative).sum(axis=1).clip(max=states - 1)
    return s, a, problem.costs[:, s, a].T, following


def estimate(rng, problem, per_pair, **options):
    return RCMDP.from_transitions(
        *log(rng, problem, per_pair),
        num_states=problem.num_states,
        num_actions=problem.num_actions,
        budgets=problem.budgets,
        discount=problem.discount,
        initial=problem.initial,
        **options,
    )


def test_counts_and_means_by_hand():
    found = RCMDP.from_transitions(
        [0, 0, 0, 1],
        [0, 0, 0, 0],
        [[1.0], [2.0], [3.0], [5.0]],
        [1, 1, 0, 1],
        num_states=2,
        num_actions=2,
        budgets=[],
        discount=0.9,
    )
    np.testing.assert_array_equal(found.counts, [[3, 0], [1, 0]])
    np.testing.assert_allclose(found.problem.kernel[0], [[1 / 3, 2 / 3], [0.5, 0.5]])
    np.testing.assert_allclose(found.problem.costs[0], [[2.0, 2.75], [5.0, 2.75]])  # unseen pairs: the mean of all
    np.testing.assert_array_equal(found.total_variation_radius()[:, 1], 1)  # nothing is known there


def test_smoothing_by_hand():
    found = RCMDP.from_transitions(
        [0, 0], [0, 0], [[0.0], [0.0]], [1, 1], num_states=2, num_actions=1, budgets=[], discount=0.5, smoothing=0.5
    )
    np.testing.assert_allclose(found.problem.kernel[0, 0], [0.5 / 3, 2.5 / 3])


def test_the_observed_prior_by_hand():
    """0 is followed by 1 and 2, 1 by itself; 2 is never left."""
    log = [0, 0, 0, 1], [0, 0, 1, 0], [[1.0], [2.0], [3.0], [6.0]], [1, 1, 2, 1]
    sizes = dict(num_states=3, num_actions=2, budgets=[], discount=0.9, prior="observed")
    plain, smooth = (RCMDP.from_transitions(*log, **sizes, smoothing=k) for k in (0.0, 0.5))
    assert plain.problem.sparse
    stays = [[0, 0, 1], [0, 0, 1]]
    np.testing.assert_allclose(dense(plain.problem), [[[0, 1, 0], [0, 0, 1]], [[0, 1, 0], [0, 1, 0]], stays])
    np.testing.assert_allclose(
        dense(smooth.problem), [[[0, 2.5 / 3, 0.5 / 3], [0, 0.25, 0.75]], [[0, 1, 0], [0, 1, 0]], stays]
    )
    np.testing.assert_allclose(plain.problem.costs[0], [[1.5, 3.0], [6.0, 3.0], [3.0, 3.0]])
    np.testing.assert_array_equal(smooth.prior, [1.0, 0.5, 0.5])  # κ|R(s)|
    unknown = RCMDP.from_transitions(
        [0, 0], [0, 0], [[0.0], [0.0]], [0, 1], num_states=2, num_actions=2, budgets=[], discount=0.9, prior="observed"
    )
    np.testing.assert_allclose(dense(unknown.problem)[0], [[0.5, 0.5], [0.5, 0.5]])  # action 1 was never tried


@pytest.mark.parametrize("prior", ["all", "observed"])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_kernels_are_what_counting_one_by_one_gives(rng, prior, smoothing):
    S, A, T = 7, 3, 40
    s, a, t = rng.integers(S - 1, size=T), rng.integers(A, size=T), rng.integers(S, size=T)
    found = RCMDP.from_transitions(
        s,
        a,
        np.zeros((T, 1)),
        t,
        num_states=S,
        num_actions=A,
        budgets=[],
        discount=0.9,
        smoothing=smoothing,
        prior=prior,
    )
    expected = np.zeros((S, A, S))
    for i in range(S):
        may_follow = set(range(S)) if prior == "all" else {int(x) for x in t[s == i]} or {i}
        for j in range(A):
            here = t[(s == i) & (a == j)]
            for k in may_follow:
                expected[i, j, k] = 1 / len(may_follow)
                if len(here):
                    expected[i, j, k] = (np.sum(here == k) + smoothing) / (len(here) + smoothing * len(may_follow))
    assert (found.counts == 0).any()
    np.testing.assert_allclose(dense(found.problem), expected, atol=1e-14)


def large_log(rng, states, actions, successors, count):
    follows = rng.integers(states, size=(states * actions, successors))
    s, a = rng.integers(states, size=count), rng.integers(actions, size=count)
    return s, a, rng.random((count, 2)), follows[s * actions + a, rng.integers(successors, size=count)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_large_estimates_stay_sparse(rng, smoothing):
    S, A, T = 20_000, 10, 400_000
    log, sizes = large_log(rng, S, A, 3, T), dict(num_states=S, num_actions=A, budgets=[1.0], discount=0.9)
    found = RCMDP.from_transitions(*log, **sizes, smoothing=smoothing, prior="observed")
    unseen = int((found.counts == 0).sum())
    assert unseen > 10_000
    assert found.problem.kernel.nnz <= A * T  # 4e6, where a dense kernel has 4e9
    assert (found.total_variation_radius(0.95, successors=3)[found.counts == 0] == 1).all()
    with pytest.raises(InputError, match=rf"prior: 'all' given, 'observed' expected for 20000 .* \({unseen} here\)"):
        RCMDP.from_transitions(*log, **sizes, smoothing=smoothing)


def test_estimates_converge(rng):
    problem = random_problem(rng)
    errors = [
        np.abs(np.asarray(dense(estimate(rng, problem, n).problem)) - problem.kernel).max() for n in (100, 10_000)
    ]
    assert errors[1] < errors[0] / 3


def dense(problem):
    return problem.kernel.toarray().reshape((*problem.costs.shape[1:], -1)) if problem.sparse else problem.kernel


RADII = {
    "weissman": lambda found, *rest: found.total_variation_radius(*rest),
    "bernstein": lambda found, *rest: found.total_variation_radius(*rest, bernstein=True),
    "chi_square": lambda found, *rest: found.chi_square_radius(*rest),
    "kl": lambda found, *rest: found.kl_radius(*rest),
}


def distances(true, model):
    """(S, A) of each kind."""
    variation = np.abs(true - model).sum(axis=-1) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.where((true == 0) & (model == 0), 0, (true - model) ** 2 / model).sum(axis=-1)
    divergence = rel_entr(true, model).sum(axis=-1)
    return {"weissman": variation, "bernstein": variation, "chi_square": squares, "kl": divergence}


def skewed(problem):
    """Rows with most of their mass on one state."""
    kernel = 0.03 * problem.kernel
    kernel[:, :, 0] += 0.97
    return replace(problem, kernel=kernel)


@pytest.mark.parametrize("kind", RADII)
def test_every_radius_keeps_its_promise_of_95_percent(kind):
    """Smoothed over all states, so that the support is no question; few and many draws, plain and skewed rows, with zeros."""
    rng, covered, runs = np.random.default_rng(2), 0, 240
    for i in range(runs):
        problem = random_problem(rng, states=3, actions=2, sparse_share=0.5)
        problem = skewed(problem) if i % 2 else problem
        found = estimate(rng, problem, [5, 30, 200, 2000][i % 4], smoothing=[0.1, 1.0][i // 4 % 2])
        distance = distances(problem.kernel, dense(found.problem))[kind]
        covered += bool(np.all(distance <= RADII[kind](found, 0.95)))
    assert covered / runs >= 0.95


@pytest.mark.parametrize("kind", RADII)
def test_every_radius_covers_trajectories_of_a_policy_that_learns(kind):
    rng, covered = np.random.default_rng(3), 0
    for i in range(40):
        problem = random_problem(rng, states=3, actions=2, sparse_share=0.0)
        s, a, t = walks(rng, problem, bool(i % 2))
        found = RCMDP.from_transitions(
            s, a, np.zeros((len(s), 1)), t, num_states=3, num_actions=2, budgets=[], discount=0.9, smoothing=0.5
        )
        covered += bool(
            np.all(distances(problem.kernel, dense(found.problem))[kind] <= RADII[kind](found, 0.8) + 1e-12)
        )
    assert covered / 40 >= 0.8


def test_radii_that_follow_the_variance_are_never_larger_and_far_smaller_where_it_is_small(rng):
    for states, share in ((3, 0.0), (8, 0.8)):
        for n in (1, 5, 50, 2000):
            problem = random_problem(rng, states=states, sparse_share=share)
            for each in (problem, skewed(problem)):
                found = estimate(rng, each, n)
                plain, following = (found.total_variation_radius(0.95, bernstein=b) for b in (False, True))
                assert np.all(following <= plain + 1e-12)
        assert np.median(following / plain) < 0.5  # 2000 draws of skewed rows
        certain = estimate(rng, replace(problem, kernel=np.tile(np.eye(states)[:, None], (1, 3, 1))), 500)
        assert np.all(certain.total_variation_radius(bernstein=True) < 0.35 * certain.total_variation_radius())


def test_the_largest_deviation_against_all_sets_of_successors(rng):
    """max over the 2^m − 2 sets of u(P̃(B)) − P̃(B), with u by root finding on a fine grid; the radius is at least that."""
    for i in range(40):
        p, level = rng.dirichlet(np.full(4, [0.1, 0.4][i % 2])), 10 ** rng.uniform(-3, -1 + i % 2)
        sums = [sum(p[j] for j in range(4) if mask >> j & 1) for mask in range(1, 15)]
        grid = np.linspace(0, 1, 20_001)
        inside = [grid[rel_entr(x, grid) + rel_entr(1 - x, 1 - grid) <= level].max() - x for x in sums]
        bound = _largest_deviation(np.array([level]), np.array([p.max()]))[0]
        assert max(inside) <= bound + 1e-12
        assert bound <= np.sqrt(level / 2) + 1e-12  # Pinsker
        if p.max() > 0.9:
            assert bound <= max(inside) + 1e-4
    one = _largest_deviation(np.array([0.1]), np.array([0.9]))[0]  # with two states, p₁ says all
    ends = chernoff_interval(np.array([0.9, 0.1]), np.ones(2), np.full(2, 0.1))
    assert one == pytest.approx(max(ends[1][1] - 0.1, ends[1][0] - 0.9), abs=1e-12)


def test_intervals_of_entries():
    """Exact coverage from binomial probabilities; the ends solve their equation; none is longer than empirical Bernstein's."""
    n, level = 40, 3.0
    counts = np.arange(n + 1)
    low, high = chernoff_interval(counts.astype(float), np.full(n + 1, n), np.full(n + 1, level))
    for p in np.linspace(0.001, 0.999, 97):
        outside = stats.binom.pmf(counts, n, p)[(low > p) | (high < p)].sum()
        assert outside <= 2 * np.exp(-level)
    share = counts / n
    inner = slice(1, n)
    for end in (low, high):
        divergence = rel_entr(share, end) + rel_entr(1 - share, 1 - end)
        np.testing.assert_allclose(n * divergence[inner], level, rtol=1e-9)
    variance = share * (1 - share) * n / (n - 1)
    bernstein = np.sqrt(2 * variance * level / n) + 7 * level / (3 * (n - 1))  # Maurer and Pontil, at the same level
    assert np.all(np.maximum(high - share, share - low) <= bernstein)


def test_worst_cases_at_every_radius_are_above_the_true_values(rng):
    for i in range(12):
        problem = random_problem(rng, sparse_share=0.0)
        problem = skewed(problem) if i % 2 else problem
        found, policy = estimate(rng, problem, 200, smoothing=0.5), rng.dirichlet(np.ones(3), size=5)
        true = evaluate(problem, policy).returns
        for made in (
            TotalVariation(found.total_variation_radius(0.99, bernstein=True)),
            ChiSquare(found.chi_square_radius(0.99)),
            KLBall(found.kl_radius(0.99)),
        ):
            assert np.all(true <= evaluate(found.problem, policy, made).returns)


def test_where_nothing_is_known_the_balls_are_all_of_the_support(rng):
    found = RCMDP.from_transitions(
        [0, 0], [0, 0], [[0.0], [1.0]], [1, 2], num_states=3, num_actions=2, budgets=[], discount=0.9, smoothing=1.0
    )
    values = rng.normal(size=(1, 3))
    for made in (KLBall(found.kl_radius() * (1 + 1e-12)), ChiSquare(found.chi_square_radius() * (1 + 1e-12))):
        worst = made.sweep(values, found.problem.rows).value.reshape(3, 2)
        np.testing.assert_allclose(worst[found.counts == 0], values.max())
    certain = RCMDP.from_transitions(
        [0, 1], [0, 0], np.zeros((2, 1)), [1, 0], num_states=2, num_actions=1, budgets=[], discount=0.9
    )
    for radius in (certain.kl_radius, certain.chi_square_radius):
        np.testing.assert_array_equal(radius(0.9, successors=1), [[0], [0]])


@pytest.mark.parametrize("prior", ["all", "observed"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_true_kernel_is_covered_as_often_as_promised(smoothing, prior):
    rng, confidence, covered = np.random.default_rng(0), 0.9, 0
    for _ in range(300):
        problem = random_problem(rng, states=3, actions=2, sparse_share=0.0)
        found = estimate(rng, problem, int(rng.choice([5, 30, 200])), smoothing=smoothing, prior=prior)
        distance = np.abs(dense(found.problem) - problem.kernel).sum(axis=-1) / 2
        covered += bool(np.all(distance <= found.total_variation_radius(confidence)))
    assert covered / 300 >= confidence


def test_few_successors_are_covered_by_smaller_radii():
    """20 states of which each pair reaches 2: a radius that knows it still covers, and is not far from the least that does."""
    rng, confidence, covered, needed = np.random.default_rng(1), 0.8, 0, []
    for _ in range(200):
        kernel = np.zeros((20, 1, 20))
        for s in range(20):
            kernel[s, 0, rng.choice(20, 2, replace=False)] = 0.5
        problem = RCMDP(kernel, np.zeros((1, 20, 1)), [], np.full(20, 0.05), 0.9)
        found = estimate(rng, problem, 100, prior="observed")
        distance = np.abs(dense(found.problem) - kernel).sum(axis=-1) / 2
        radius = found.total_variation_radius(confidence, successors=2)
        covered += bool(np.all(distance <= radius))
        needed.append(distance.max())
    assert covered / 200 >= confidence
    # r² = (ln(2^m − 2) + ln(SA/δ) + ln n(n+1))/(2n): the last term is the price of counts that are not fixed beforehand
    price = np.log(100 * 101) / (2 * 100)
    few, many = (np.sqrt(r**2 - price) for r in (radius.max(), found.total_variation_radius(confidence).min()))
    assert few < 1.5 * np.quantile(needed, confidence)
    assert few < 0.6 * many


def test_radii_by_hand():
    log = [0, 0, 0, 0], [0, 0, 0, 0], np.zeros((4, 1)), [1, 1, 2, 2]
    found = RCMDP.from_transitions(*log, num_states=10, num_actions=1, budgets=[], discount=0.9)
    assert found.total_variation_radius(0.5, 2)[0, 0] == pytest.approx(0.5 * np.sqrt(2 * np.log(2 * 10 * 20 / 0.5) / 4))
    assert found.total_variation_radius(0.5, 3)[0, 0] == pytest.approx(0.5 * np.sqrt(2 * np.log(6 * 10 * 20 / 0.5) / 4))
    certain = RCMDP.from_transitions(
        [0, 1], [0, 0], np.zeros((2, 1)), [1, 0], num_states=3, num_actions=1, budgets=[], discount=0.9
    )
    np.testing.assert_array_equal(certain.total_variation_radius(0.9, successors=1), [[0], [0], [1]])
    for wrong in (1, 11):
        with pytest.raises(InputError, match=rf"successors: {wrong} given, 2 \(as many were seen\) to 10 expected"):
            found.total_variation_radius(0.5, wrong)


def test_the_true_value_is_below_the_worst_case(rng):
    """What coverage is for: the robust evaluation of the estimate bounds the real costs."""
    for _ in range(20):
        problem = random_problem(rng, sparse_share=0.0)
        found = estimate(rng, problem, 50)
        policy = rng.dirichlet(np.ones(3), size=5)
        worst = evaluate(found.problem, policy, TotalVariation(found.total_variation_radius(0.99))).returns
        assert np.all(evaluate(problem, policy).returns <= worst)


def test_radii_shrink_like_the_root_of_the_count(rng):
    """But for the logarithm that any count costs."""
    problem = random_problem(rng)
    few, many = (
        np.sqrt(estimate(rng, problem, n).total_variation_radius() ** 2 - np.log(n) / (2 * n) - np.log(n + 1) / (2 * n))
        for n in (10_000, 40_000)
    )
    np.testing.assert_allclose(few, 2 * many)


def walks(rng, problem, greedy):
    """A log of episodes of random lengths. The policy goes back to the pair that has led to state 0 most often, or to
    the one that has been tried least; episodes end at once in the last state."""
    states, actions = problem.num_states, problem.num_actions
    counts, hits = np.zeros((states, actions)), np.zeros((states, actions))
    steps = []
    for _ in range(rng.geometric(0.1)):
        s = int(rng.integers(states))
        for _ in range(rng.geometric(0.05)):
            scores = hits[s] / np.maximum(counts[s], 1) if greedy else -counts[s]
            a = int(np.argmax(scores)) if rng.random() < 0.9 else int(rng.integers(actions))
            t = int(rng.choice(states, p=problem.kernel[s, a]))
            steps.append((s, a, t))
            counts[s, a] += 1
            hits[s, a] += t == 0
            s = t
            if s == states - 1:
                break
    return np.array(steps).T


@pytest.mark.parametrize("greedy", [True, False])
def test_trajectories_of_a_policy_that_learns_are_covered(greedy):
    rng, confidence, covered = np.random.default_rng(3), 0.8, 0
    for _ in range(100):
        problem = random_problem(rng, states=3, actions=2, sparse_share=0.0)
        s, a, t = walks(rng, problem, greedy)
        found = RCMDP.from_transitions(
            s, a, np.zeros((len(s), 1)), t, num_states=3, num_actions=2, budgets=[], discount=0.9, prior="observed"
        )
        distance = np.abs(dense(found.problem) - problem.kernel).sum(axis=-1) / 2
        covered += bool(np.all(distance <= found.total_variation_radius(confidence)))
    assert covered / 100 >= confidence


def test_a_log_that_ends_when_it_looks_worst_is_covered():
    """A coin that is thrown until the share of heads is further from ½ than the bound for a fixed count allows: by the law
    of the iterated logarithm that happens in every long enough log, so radii for fixed counts cover less than promised."""
    rng, confidence, fixed, covered = np.random.default_rng(0), 0.8, 0, 0
    for _ in range(100):
        coin = rng.integers(2, size=300_000)
        n = np.arange(1, len(coin) + 1)
        bound = 0.5 * np.sqrt(2 * (np.log(2) + np.log(2 / (1 - confidence))) / n)
        outside = np.flatnonzero((np.abs(np.cumsum(coin) / n - 0.5) > bound) & (n >= 5))
        end = outside[0] + 1 if len(outside) else len(coin)
        zeros = np.zeros(end, int)
        found = RCMDP.from_transitions(
            zeros, zeros, zeros[:, None], coin[:end], num_states=2, num_actions=1, budgets=[], discount=0.9
        )
        distance = abs(dense(found.problem)[0, 0, 0] - 0.5)
        fixed += distance <= bound[end - 1]
        covered += distance <= found.total_variation_radius(confidence)[0, 0]
    assert fixed / 100 < confidence <= covered / 100


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(states=[0, 7]), r"states\[1\]: 7 given, 0 to 1 expected"),
        (dict(actions=[0, -1]), r"actions\[1\]: -1 given"),
        (dict(states=[0.5, 1.0]), "states: float64"),
        (dict(states=[[0], [1, 2]]), "states: rows of different lengths given"),
        (dict(costs=[[1.0], [np.nan]]), r"costs\[1, 0\]: nan given, a finite number expected"),
        (dict(costs=[["a"], ["b"]]), r"costs: not an array of numbers, \(2, N\+1\), objective first, expected"),
        (dict(costs=[[1.0], [2.0, 3.0]]), "costs: not an array of numbers"),
        (dict(costs=np.zeros((2, 0))), r"costs: shape \(2, 0\) given, \(2, N\+1\), objective first, expected"),
        (dict(costs=[1.0, 2.0]), r"costs: shape \(2,\) given"),
        (dict(num_states=2.0), r"num_states: 2\.0 given, a whole number ≥ 1 expected"),
        (dict(num_states="2"), "num_states: '2' given, a whole number"),
        (dict(num_states=0), "num_states: 0 given, a whole number ≥ 1"),
        (dict(num_actions=1.0), r"num_actions: 1\.0 given, a whole number"),
        (dict(num_actions=True), "num_actions: True given, a whole number"),
        (dict(smoothing=None), "smoothing: None given, a number expected"),
        (dict(smoothing="x"), "smoothing: 'x' given, a number expected"),
        (dict(next_states=[0]), "equal lengths"),
        (dict(smoothing=-1.0), r"smoothing: -1\.0 given"),
        (dict(prior="none"), "prior: 'none' given, 'all' or 'observed' expected"),
    ],
)
def test_bad_logs_are_refused(change, message):
    good = dict(states=[0, 1], actions=[0, 0], costs=[[1.0], [2.0]], next_states=[1, 0], num_states=2, num_actions=1)
    with pytest.raises(InputError, match=message):
        RCMDP.from_transitions(**(good | change), budgets=[], discount=0.9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(confidence=1), "confidence: 1 given"),
        (dict(confidence="a"), "confidence: 'a' given, a number expected"),
        (dict(confidence=None), "confidence: None given, a number expected"),
        (dict(successors=2.5), r"successors: 2\.5 given, a whole number ≥ 1 expected"),
        (dict(successors="a"), "successors: 'a' given, a whole number"),
    ],
)
def test_bad_levels_are_refused(options, message):
    found = RCMDP.from_transitions(
        [0, 1], [0, 0], [[1.0], [2.0]], [1, 0], num_states=3, num_actions=1, budgets=[], discount=0.9
    )
    with pytest.raises(InputError, match=message):
        found.total_variation_radius(**options)


def with_radius():
    return [name for name, each in every_set(6).items() if hasattr(each, "radius")]


@pytest.mark.filterwarnings("ignore:LinearIPM")  # where its closed form is a bound, it still is row by row
@pytest.mark.parametrize("name", with_radius())
@pytest.mark.parametrize("sparse", [False, True])
def test_a_radius_for_each_pair_is_each_rows_own(rng, name, sparse):
    problem = random_problem(rng, states=6, actions=3)
    if sparse:
        problem = RCMDP(
            sp.csr_array(problem.kernel.reshape(-1, 6)),
            problem.costs,
            problem.budgets,
            problem.initial,
            problem.discount,
        )
    one = every_set(6)[name]
    radius = one.radius * rng.uniform(0.1, 3.0, size=(6, 3))
    radius[rng.random((6, 3)) < 0.2] = 0.0
    many, values = replace(one, radius=radius), rng.normal(size=(2, 6))
    together = many.sweep(values, problem.rows)
    for m in range(18):
        alone = replace(one, radius=float(radius.flat[m])).sweep(values, problem.rows)
        np.testing.assert_allclose(together.value[:, m], alone.value[:, m], rtol=1e-12)
        for k in range(2):
            np.testing.assert_allclose(together.dense(k, 6)[m], alone.dense(k, 6)[m], atol=1e-12)
    # a part of the rows, in any order, keeps its radii
    part = rng.permutation(18)[:7]
    np.testing.assert_allclose(many.sweep(values, problem.rows.take(part)).value, together.value[:, part], rtol=1e-9)
    # and a constant array is the number, through the whole chain
    same, policy = replace(one, radius=np.full((6, 3), one.radius)), random_policy(rng, problem)
    np.testing.assert_allclose(
        evaluate(problem, policy, same).returns, evaluate(problem, policy, one).returns, rtol=1e-9
    )
    assert robust_value_iteration(problem, same).value == pytest.approx(robust_value_iteration(problem, one).value)
    # evaluation is the fixed point under those radii
    found = evaluate(problem, policy, many)
    worst = many.sweep(found.values, problem.rows).value.reshape(2, 6, 3)
    np.testing.assert_allclose(found.values, np.einsum("sa,ksa->ks", policy, problem.costs + 0.9 * worst), atol=1e-7)
    with pytest.raises(InputError, match=r"radius: shape \(3, 6\) given, a number or \(6, 3\) expected"):
        evaluate(problem, policy, replace(one, radius=radius.T))


def test_every_set_with_a_radius_is_tested():
    """A set that is added must come into the test above."""
    named = [getattr(uncertainty, name) for name in uncertainty.__all__]
    public = [each for each in named if isinstance(each, type) and issubclass(each, Uncertainty)]
    assert {each for each in public if "radius" in each.__annotations__} == {
        type(every_set(6)[name]) for name in with_radius()
    }
