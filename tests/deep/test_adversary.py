"""Adversaries over contexts: what they are by hand, and a training against them."""

import gymnasium as gym
import numpy as np
import pytest
from deep.test_trainer import TINY, cartpole, flat, row, run
from gymnasium.vector import AutoresetMode

import rcac
from rcac.contexts import Parameters
from rcac.deep.adversary import EPISODES, LAW, Adversaries
from rcac.deep.episodes import Episode
from rcac.deep.trainer import Trainer
from rcac.envs.contexts import contexts_of
from rcac.envs.failure import StepsLost
from rcac.errors import InputError

BOX = {"wind": (-2, 2), "length": (0.5, 2, "log")}
LABELS = ["return", "cost"]


def made(risk=None, envs=8, box=BOX):
    return Adversaries(Parameters(box, risk), LABELS, envs, 100, np.random.default_rng(0))


def measure(adversaries, cost, rounds, rng, noise=0.0, progress=1.0):
    """Episodes in every context, of return 1 and cost(point), with noise."""
    for _ in range(rounds):
        for k, point in enumerate(adversaries.points):
            sums = np.array([-1.0, cost(point) + noise * rng.standard_normal()])
            adversaries.record([Episode(sums, sums, 50, 0.0, np.zeros(1), 0, k)])
        adversaries.update(progress)


def test_the_worst_of_what_was_measured(rng):
    adversaries = made()
    measure(adversaries, lambda u: 100 * u[0] + 20 * u[1], 40, rng, noise=5.0)
    q, alike = adversaries.sharp[1], np.sqrt(2) * adversaries.errors()[1]
    assert adversaries.errors()[1] == pytest.approx(5 * np.sqrt(0.3 / 1.7), rel=0.2)  # of an exponential average
    assert q[100 * adversaries.points[:, 0] + 20 * adversaries.points[:, 1] < 120 - 8 * alike].sum() < 0.05
    assert adversaries.sums()[1] == pytest.approx(120, abs=3 * alike)
    np.testing.assert_array_equal(adversaries.adversary[0], adversaries.law)  # the return by its mean
    assert adversaries.sums()[0] == pytest.approx(-1.0)


def test_contexts_that_cannot_be_told_apart_share_the_mass(rng):
    adversaries = made()
    measure(adversaries, lambda u: 100.0, 60, rng, noise=5.0)
    assert (adversaries.adversary[1] ** 2).sum() < 0.2


def test_they_come_in_gradually(rng):
    adversaries = made()
    measure(adversaries, lambda u: 100 * u[0], 3, rng, progress=0.0)
    np.testing.assert_allclose(adversaries.sharp, np.tile(adversaries.law, (2, 1)))
    adversaries.update(0.25)
    half = adversaries.sharp[1].copy()
    adversaries.update(0.5)
    np.testing.assert_allclose(half, (adversaries.law + adversaries.sharp[1]) / 2)


def test_search_points_move_to_a_peak_inside():
    rng, adversaries = np.random.default_rng(1), made()
    peak = np.array([0.3, 0.7])
    adversaries.present[:] = adversaries.following[:] = 0  # no copy holds a search point in its place
    measure(adversaries, lambda u: 100 - 100 * ((u - peak) ** 2).sum(), 1200, rng, progress=0.9)
    worst = adversaries.points[np.argmax(adversaries.mean[1])]
    first = made().points
    nearest = np.sqrt(((first - peak) ** 2).sum(axis=1)).min()
    assert np.sqrt(((worst - peak) ** 2).sum()) < min(0.05, nearest)


@pytest.mark.parametrize(
    ("risk", "expected"), [("mean", 2.0), ("worst", 5.0), ({"cvar": 1 / 3}, 3.0), ({"kl": 50.0}, 3.0)]
)
def test_what_a_trial_comes_to(risk, expected):
    """Law points cost 1, 2 and 3, twice each; a corner costs 5."""
    adversaries = made(risk, envs=7)
    contexts = np.array([0, 0, 1, 1, 2, 2, LAW])
    sums = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 5.0])
    assert adversaries.judged(contexts, np.stack([-sums, sums], axis=1))[1] == pytest.approx(expected)


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0, 10.0])
def test_the_worst_is_not_overrated_for_its_bad_luck(spread):
    """65 contexts whose means are known but for a standard error of 1: the largest of the measured ones lies far above the
    largest true one, what a trial makes of them hardly, and not below."""
    rng, adversaries, episodes = np.random.default_rng(2), made("worst"), 8
    count = len(adversaries.points)
    contexts, most, judged = np.repeat(np.arange(count), episodes), [], []
    for _ in range(200):
        true = -spread * np.abs(rng.standard_normal(count))
        true -= true.max()
        sums = true[contexts] + np.sqrt(episodes) * rng.standard_normal(len(contexts))
        most.append(np.bincount(contexts, sums).max() / episodes)
        judged.append(adversaries.judged(contexts, np.stack([-sums, sums], axis=1))[1])
    assert 0.0 < np.mean(judged) < 2 / 3 * np.mean(most)


def test_weights_turn_a_batch_into_the_adversary(rng):
    """Σ w A is the mean under q of what an episode adds up there, by hand; contexts that are not there are left out."""
    adversaries = made()
    measure(adversaries, lambda u: 100 * u[0] + 30 * u[1], 20, rng, noise=20.0)
    adversaries.length = rng.uniform(20, 100, len(adversaries.points))
    contexts = rng.choice(len(adversaries.points) - 5, 5000)
    value = rng.standard_normal(len(adversaries.points))
    found = (adversaries.weights(contexts) * value[contexts]).mean(axis=1)
    mass = adversaries.adversary * adversaries.length * np.isin(np.arange(len(value)), contexts)
    wanted = (mass @ value) / mass.sum(axis=1)
    assert found[0] == pytest.approx(wanted[0], abs=1e-9)
    unbounded = adversaries.weights(contexts).max(axis=1) < 8
    np.testing.assert_allclose(found[unbounded], wanted[unbounded], atol=1e-9)
    assert adversaries.weights(contexts).mean(axis=1) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_every_row_knows_its_context(mode):
    envs = cartpole(6, mode, max_episode_steps=9)
    trainer = Trainer(envs, [200.0], row("rcac_sqp", **{**TINY, "num_envs": 6}), 0, 9, box=Parameters(BOX))
    for _ in range(3):
        trainer.adversaries.draw(envs)
        winds = []

        def act(rows, t, winds=winds):
            winds.append(contexts_of(envs)["wind"].copy())
            return np.ones(len(rows), dtype=np.int64)

        trajectory = trainer.rollout.collect(act, 16)
        rows = trainer.adversaries.follow(trajectory)
        expected = trainer.adversaries.box.contexts(trainer.adversaries.points[rows[:-1].ravel()])["wind"]
        seen = np.array(winds).ravel()
        valid = trajectory.valid.ravel()
        np.testing.assert_allclose(seen[valid], expected[valid])


def robust(name="rcac_sqp", seed=0, **changes):
    settings = row(name, **{**TINY, "total_steps": 64 * 30, **changes})
    envs = StepsLost(cartpole(settings.num_envs, max_episode_steps=20), 20)
    return Trainer(envs, [200.0, 10.0], settings, seed, 20, labels=["cost", "steps lost"], box=Parameters(BOX))


ALGORITHMS = ["rcac", "rcac_npg", "robust_crpo_deep", "epirc_pgs_deep", "rcac_sqp", "ppo_lagrangian", "cpo"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_takes_them(name):
    trainer = robust(name, trials=1)
    steps = run(trainer)
    assert trainer.finished
    known = [step.metrics for step in steps if "switch/index" in step.metrics][-1]  # of the last update
    assert {"cost/1/worst_context", "cost/2/worst_context", "adversary/2/concentration"} <= known.keys()
    assert -2 <= known["adversary/1/worst/wind"] <= 2
    assert trainer.summary()["measured_episodes"] >= min(4, EPISODES)


@pytest.mark.parametrize("trials", [0, 2])
def test_a_training_resumes_exactly(trials):
    whole, first, second = (robust(trials=trials) for _ in range(3))
    run(whole)
    run(first, 12)
    second.load(first.state())
    run(second)
    np.testing.assert_array_equal(flat(whole.actor), flat(second.actor))
    np.testing.assert_array_equal(flat(whole.critics), flat(second.critics))
    assert whole.summary() == second.summary()


def test_critics_see_the_context(rng):
    trainer = robust()
    run(trainer, 2)
    rows = np.repeat(trainer.initial[:1], 2, axis=0)
    one, other = trainer.critics.values(rows, np.array([[-1, -1], [1, 1]], dtype=np.float32)).T
    assert (one != other).all()


@pytest.mark.parametrize(
    ("changes", "box", "message"),
    [
        ({"advantage": "q_regression"}, BOX, "advantage: q_regression given"),
        ({"calibrate": False}, BOX, "calibrate: false given"),
        ({}, {"storm": (0, 1)}, "storm"),
    ],
)
def test_what_is_refused(changes, box, message):
    with pytest.raises(InputError, match=message):
        Trainer(cartpole(4), [200.0], row("rcac", **TINY, **changes), 0, 500, box=Parameters(box))


def test_environments_without_parameters_are_refused():
    with pytest.raises(InputError, match="has none to vary"):
        Trainer(gym.make_vec("CartPole-v1", 4), [], row("rcac", **TINY), 0, 500, box=Parameters(BOX))


@pytest.mark.parametrize(
    "uncertainty",
    ["parameters", {"wind": (-1, 1)}, rcac.Parameters({"wind": (-1, 1)}, risk="worst"), "nominal", "ipm"],
)
def test_from_python(uncertainty):
    short = {**TINY, "total_steps": 640}
    done = rcac.train("rcac/CartPoleTradeoff-v0", algo="rcac_sqp", uncertainty=uncertainty, progress=False, **short)
    assert done.summary["labels"] == ["return", "cost", "steps lost"]
    assert ("adversary/1/concentration" in done.history) == (uncertainty not in ("nominal", "ipm"))


def test_sets_of_kernels_are_refused():
    with pytest.raises(InputError, match="uncertainty: kl_ball given with rcac"):
        rcac.train("rcac/NoisyCartPole-v0", algo="rcac", uncertainty="kl_ball", progress=False)


def test_a_run_draws_its_costs_over_contexts_and_shows_its_worst_one(tmp_path, monkeypatch):
    drawn, terms = [], []
    monkeypatch.setattr("rcac.runs.plots.contexts", lambda *given: drawn.append(given))
    result = rcac.train(
        "rcac/CartPoleTradeoff-v0", algo="rcac_sqp", uncertainty=BOX, folder=tmp_path / "run", progress=False,
        total_steps=2048, num_envs=8, rollout_length=64, loggers=["csv"], max_episode_steps=30,
        callback=lambda update: terms.append((update.terms, update.metrics)),
    )  # fmt: skip
    [(box, costs, title, folder)] = drawn
    assert (box.names, title, folder) == (tuple(BOX), "cartpole_tradeoff, rcac_sqp, seed 0", tmp_path / "run" / "plots")
    assert [(cost.label, cost.budget) for cost in costs] == [("cost", 200.0), ("steps lost", 10.0)]
    assert all(cost.points.shape == (len(cost.means), 2) for cost in costs)
    learning = [(shown, metrics) for shown, metrics in terms if "cost/1/worst_context" in metrics]
    assert learning
    for shown, metrics in learning:
        assert [term.worst for term in shown] == [None, *(metrics[f"cost/{n}/worst_context"] for n in (1, 2))]
    assert costs[0].means.max() == learning[-1][1]["cost/1/worst_context"]
    assert result.summary["labels"] == ["return", "cost", "steps lost"]
