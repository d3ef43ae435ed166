"""What the trainer hands to a step, and what the SQP step makes of it: small things that no long training would show."""

import numpy as np
import pytest
import torch
from deep.small_actors import KINDS, small, some_actions

from rcac.deep.settings import DeepSettings
from rcac.deep.steps import sqp
from rcac.deep.steps.base import ActorStepInputs, ActorUpdate, Batch
from rcac.deep.steps.trust_region import RegionStep
from rcac.deep.switching import BisectedEpigraph
from rcac.deep.trainer import Trainer
from rcac.envs.control.cartpole_vector import NoisyCartPoleVector
from rcac.switch import CRPO, Bisection

TINY = dict(num_envs=2, rollout_length=8, actor_hidden=[4], critic_hidden=[4], window=3, trials=0, total_steps=64)


def seen(**changes) -> list[ActorStepInputs]:
    """The inputs of every step of a training whose actor stays as it is."""
    found: list[ActorStepInputs] = []
    trainer = Trainer(NoisyCartPoleVector(2), [3.0], DeepSettings(**{**TINY, **changes}), 0, 500)
    trainer.actor_step = lambda inputs: found.append(inputs) or ActorUpdate(True, 0.0, 0.0)
    while not trainer.finished:
        trainer.step()
    assert trainer.skipped == len(found)  # they said that they took no step
    again = Trainer(NoisyCartPoleVector(2), [3.0], DeepSettings(**{**TINY, **changes}), 0, 500)
    again.load(trainer.state())
    assert again.skipped == len(found)
    return found


def test_the_slack_is_part_of_the_excess_and_the_rate_falls():
    plain, tighter, late = seen(anneal=0.0), seen(slack=0.25, anneal=1.0), seen(anneal=0.5)
    np.testing.assert_allclose(tighter[0].excess - plain[0].excess, 0.25, rtol=1e-9)
    assert [inputs.rate for inputs in plain] == [1.0] * 4
    assert [inputs.rate for inputs in tighter] == [1.0, 0.75, 0.5, 0.25]
    assert [inputs.rate for inputs in late] == [1.0, 1.0, 1.0, 0.5]


def _advantages() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=(2, 64)))


@pytest.fixture
def inputs():
    """(steps, excess) → inputs of an SQP step with an objective and a constraint."""
    actor, law, rows = small(KINDS[0], 64)
    batch = Batch(rows, some_actions(law, 64), _advantages(), _advantages())
    optimizer = torch.optim.Adam(actor.parameters())

    def make(steps: float, excess: float) -> ActorStepInputs:
        rest = (DeepSettings(step="sqp"), 1.0, np.random.default_rng(0))
        return ActorStepInputs(actor, law, optimizer, batch, np.ones(2), np.array([excess]), steps, None, *rest)

    return make


def test_sqp_counts_the_steps_of_an_episode_in_its_gradients(inputs, monkeypatch):
    grams = []
    region = sqp.trust_region_step
    monkeypatch.setattr(sqp, "trust_region_step", lambda gram, *rest: grams.append(gram) or region(gram, *rest))
    monkeypatch.setattr(sqp, "line_search", lambda *_: None)
    for steps in (1.0, 10.0):
        sqp.sqp_step(inputs(steps, -5.0))
    np.testing.assert_allclose(grams[1], 100.0 * grams[0], rtol=1e-3)


def test_the_share_of_a_gradient_that_is_no_noise():
    """Gradients m + ε, each half of the samples with noise of its own: gᵀg·s is |m|² on average."""
    rng, m = np.random.default_rng(0), np.array([3.0, 0.0, 1.0])
    a, b = m + rng.normal(size=(2, 20_000, 3)) * [[0.5]]
    g, d = (a + b) / 2, (a - b) / 2
    lengths = (g**2).sum(axis=1)
    assert np.mean(lengths * sqp.kept_share(lengths, (d**2).sum(axis=1))) == pytest.approx(m @ m, rel=0.01)
    assert sqp.kept_share(np.array([1.0, 0.0]), np.array([2.0, 0.0])).tolist() == [sqp.LEAST, 1.0]


@pytest.mark.parametrize("excess", [0.5, -0.5])
def test_sqp_asks_more_of_a_violated_constraint_whose_gradient_is_noisy(inputs, monkeypatch, excess):
    asked = []
    monkeypatch.setattr(sqp, "trust_region_step", lambda gram, e, _: asked.append(e[0]) or RegionStep(np.ones(2), True))
    monkeypatch.setattr(sqp, "line_search", lambda *_: None)
    noisy = inputs(1.0, excess)
    sqp.sqp_step(noisy)  # advantages that know nothing of states and actions
    batch = noisy.batch
    for part in (batch.observations, batch.actions):
        part[1::2] = part[::2]
    batch.advantages[:, 1::2] = batch.advantages[:, ::2]
    sqp.sqp_step(noisy)  # both halves say the same
    assert asked[1] == pytest.approx(excess, rel=1e-4)
    assert asked[0] >= 1.5 * excess if excess > 0 else asked[0] == excess


@pytest.mark.parametrize(("excess", "accepted"), [(-5.0, False), (0.5, True)])
def test_sqp_accepts_a_worse_objective_only_for_a_violated_constraint(inputs, monkeypatch, excess, accepted):
    """Along the ascent of the objective, the constraint's surrogate kept out of it: better with the descent, always."""
    made = inputs(1.0, excess)
    made.batch.advantages[1] = 0.0
    kept = {}
    monkeypatch.setattr(sqp, "line_search", lambda *args: kept.update(accept=args[4], old=args[2]))
    sqp.sqp_step(made)
    outputs = kept["old"].clone().requires_grad_()
    centred = made.batch.advantages[0] - made.batch.advantages[0].mean()
    slope = torch.autograd.grad((made.distribution.log_prob(outputs, made.batch.actions) * centred).sum(), outputs)[0]
    assert kept["accept"](kept["old"] - 1e-3 * slope)
    assert kept["accept"](kept["old"] + 1e-3 * slope) is accepted


def test_sqp_recovers_from_violations_that_pull_apart(inputs):
    """The larger one is lowered, though the smaller one grows: a step that lowers both does not exist."""
    made = inputs(1.0, 0.0)
    a = made.batch.advantages[:1]
    batch = made.batch._replace(advantages=torch.cat([0.1 * a, a, -a]))
    made = made._replace(batch=batch, weights=np.ones(3), excess=np.array([5.0, 0.1]))
    logs = made.distribution.log_prob(made.actor(batch.observations), batch.actions).detach()
    assert sqp.sqp_step(made)[::3] == (False, True)  # taken, as a recovery
    new = made.distribution.log_prob(made.actor(batch.observations), batch.actions).detach()
    assert float(((torch.exp(new - logs) - 1) * (a[0] - a[0].mean())).mean()) < 0


def test_crpo_and_the_epigraph_have_a_tolerance_and_its_end_belongs_to_it():
    budgets = np.array([4.0])
    assert CRPO(0.5).merit(np.array([-1.0, 4.5]), budgets) == (0.0, -1.0)
    assert CRPO(0.5).merit(np.array([-1.0, 5.0]), budgets) == (0.5, -1.0)
    assert CRPO(0.5).weights(np.array([-1.0, 4.5]), budgets).tolist() == [1.0, 0.0]
    assert CRPO(0.5).weights(np.array([-1.0, 4.75]), budgets).tolist() == [0.0, 1.0]
    for worst, reached in ((0.25, True), (0.5, True), (0.75, False)):  # the level is −2
        switch = BisectedEpigraph(2, 0.5, 0.9, Bisection(-4.0, 0.0))
        switch.begin_update(0.5, np.zeros(1))
        switch.weights(np.array([-2.0 + worst, 0.0]), budgets)
        assert switch.bisection == (Bisection(-4.0, -2.0) if reached else Bisection(-2.0, 0.0))
        assert switch.merit(np.array([-1.0, 4.5]), budgets) == (0.0, -1.0)


def test_no_policy_is_a_candidate_before_the_window_is_full(monkeypatch):
    known = []
    monkeypatch.setattr(Trainer, "_propose", lambda trainer: known.append(len(trainer.episodes.finished)))
    settings = DeepSettings(**{**TINY, "window": 6, "rollout_length": 16, "total_steps": 256})
    trainer, finished = Trainer(NoisyCartPoleVector(2), [3.0], settings, 0, 5), []
    trainer.actor_step = lambda inputs: ActorUpdate(True, 0.0, 0.0)
    while not trainer.finished:
        trainer.step()
        finished.append(len(trainer.episodes.finished))
    assert any(0 < count < 6 for count in finished)  # some ended before
    assert known
    assert set(known) == {6}
