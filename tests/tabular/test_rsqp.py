"""RSQP's step, apart from the search around it."""

from types import SimpleNamespace

import numpy as np
import pytest

from rcac.tabular import rsqp
from rcac.tabular.rsqp import FADE, GAINED, LARGEST, MEANS, OVER, PATIENCE, PIECES, SequentialPolicy
from rcac.tabular.steps import Piece
from rcac.uncertainty import Nominal


def proposed(monkeypatch, bundle: bool = False, **changes) -> SequentialPolicy:
    """A step that promised a gain of 2 at a distance of 1, from J = (10, 4) with a budget of 5."""
    monkeypatch.setattr(SequentialPolicy, "uses_bundle", lambda *_: bundle)
    monkeypatch.setattr(SequentialPolicy, "_bundled", lambda *_: bundle)
    step = SequentialPolicy(np.array([5.0]), 1e-6, 0.0, Nominal(), trust=1.0, first=1.0)
    step.promised, step.distance, step.predicted = 2.0, 1.0, np.array([8.0, 4.0])
    for name, value in changes.items():
        setattr(step, name, value)
    return step


def evaluated(objective: float, constraint: float = 4.0, error: float = 0.0, policy: float | None = None):
    returns = np.array([objective, constraint])
    there = np.array([[objective if policy is None else policy]])
    return SimpleNamespace(returns=returns, error_bounds=np.full(2, error), policy=there, values=returns)


@pytest.mark.parametrize(("share", "accepted"), [(0.9, False), (1.1, True)])
def test_a_step_is_accepted_for_its_share_of_what_was_promised(monkeypatch, share, accepted):
    step = proposed(monkeypatch)
    assert step.accept(evaluated(10.0), evaluated(10.0 - share * GAINED * 2.0)) is accepted
    assert step.trust == (4.0 if accepted else 0.25)


@pytest.mark.parametrize(("unit", "accepted"), [(10.0, True), (100.0, False)])
def test_errors_of_the_evaluation_are_forgiven_in_the_units_of_the_costs(monkeypatch, unit, accepted):
    step = proposed(monkeypatch, units=np.array([unit, unit]), penalties=np.zeros(1))
    assert step.accept(evaluated(10.0, error=1.0), evaluated(10.0, error=1.0)) is accepted  # 2/unit against 0.05 · 2


@pytest.mark.parametrize(
    ("beyond", "changes", "expected"),
    [
        (3.0, {}, OVER * 3.0),
        (3.0, {"distance": 2.0}, OVER * 1.5),
        (-1.0, {}, FADE * 2.0),  # it fades
        (3.0, {"distance": 1e-13}, FADE * 2.0),  # no step at all: nothing was seen
        (3.0, {"distance": 1e-12, "first": 100.0}, LARGEST / 100.0),
        (1e-3, {"distance": 1e-12, "first": 100.0}, OVER * 1e9),
        (1.0, {"distance": 1e-11, "first": 100.0}, LARGEST / 100.0),
    ],
)
def test_curvature_is_what_the_last_step_cost_beyond_the_prediction(monkeypatch, beyond, changes, expected):
    step = proposed(monkeypatch, curvatures=np.array([2.0, 2.0]), **changes)
    step.accept(evaluated(10.0), evaluated(9.0, 4.0 + beyond))
    assert step.curvatures[0] == 0.0
    assert step.curvatures[1] == pytest.approx(expected)


@pytest.mark.parametrize(("unexplained", "expected"), [(1.0, 1.0), (7.0, 3.0)])
def test_what_the_worst_kernel_of_a_rejected_step_explains_is_no_curvature(monkeypatch, unexplained, expected):
    for after, least in ((evaluated(11.0, 7.0), expected), (evaluated(2.0, 7.0), 3.0)):  # rejected, accepted
        step = proposed(monkeypatch, bundle=True)
        monkeypatch.setattr(step, "_unexplained", lambda *_: np.full(2, unexplained))
        step.accept(evaluated(10.0), after)
        assert step.curvatures[1] == pytest.approx(OVER * least)


@pytest.mark.parametrize(
    ("before", "after", "idle"),
    [
        (0.5, 0.375, 4),  # gains of just the stationarity are none
        (0.5, 0.36, 0),
        (10.5, 10.0, 4),  # relative to the objective
        (12.0, 10.0, 0),
    ],
)
def test_progress_is_a_gain_of_more_than_the_stationarity(monkeypatch, before, after, idle):
    step = proposed(monkeypatch, stationarity=0.125, idle=3, promised=0.0)
    assert step.accept(evaluated(before), evaluated(after))
    assert step.idle == idle
    assert step.reason is None


def test_a_step_that_is_rejected_is_no_progress(monkeypatch):
    step = proposed(monkeypatch, idle=3)
    assert not step.accept(evaluated(10.0), evaluated(9.99))
    assert step.idle == 4


def test_the_search_stalls_without_progress_or_where_a_step_leads_nowhere(monkeypatch):
    for idle, policy, stalled in ((PATIENCE - 1, 1.0, True), (PATIENCE - 2, 1.0, False), (0, 0.0, True)):
        step = proposed(monkeypatch, idle=idle)
        step.accept(evaluated(10.0, policy=0.0), evaluated(10.0, policy=policy))
        assert (step.reason is not None) == stalled


def test_pieces_of_rejected_steps_are_kept_and_of_accepted_ones_those_that_were_used(monkeypatch):
    step, after = proposed(monkeypatch, bundle=True), evaluated(11.0)
    step._keep_pieces(evaluated(10.0), after, accepted=False)
    assert [(piece.values is after.values, piece.policy is after.policy) for piece in step.pieces] == [(True, True)]
    rest = [Piece(np.zeros(2), np.zeros(1)) for _ in range(PIECES)]
    step.pieces = rest
    step._keep_pieces(evaluated(10.0), after, accepted=False)
    assert len(step.pieces) == PIECES
    assert step.pieces[:-1] == rest[1:]
    step.pieces, step.active = rest[:2], np.array([True, False, True])
    before = evaluated(10.0)
    step._keep_pieces(before, after, accepted=True)
    assert [piece.values is before.values for piece in step.pieces] == [True, False]
    assert step.pieces[1] is rest[1]


def test_where_only_means_are_used_few_pieces_are_kept_and_none_of_an_accepted_step(monkeypatch):
    step = proposed(monkeypatch)
    for _ in range(MEANS + 1):
        step._keep_pieces(evaluated(10.0), evaluated(11.0), accepted=False)
    assert len(step.pieces) == MEANS
    step._keep_pieces(evaluated(10.0), evaluated(9.0), accepted=True)
    assert step.pieces == []


@pytest.mark.parametrize(("bundled", "price", "smooth", "uses"), [
    (True, 0.0, True, True), (True, 1e-5, True, False), (True, 1e-7, True, True), (True, 1e-5, False, False),
    (False, 0.0, True, False), (False, 1.0, False, True),
])  # fmt: skip
def test_a_bundle_helps_where_a_set_has_no_price(monkeypatch, bundled, price, smooth, uses):
    monkeypatch.setattr(SequentialPolicy, "_bundled", lambda *_: bundled)
    step = SequentialPolicy(np.array([5.0]), 1e-6, 0.0, SimpleNamespace(smooth=smooth))
    values = np.array([[1.0, -2.0]])
    worst = SimpleNamespace(value=values, expectations=lambda values: values - 2 * price)
    assert step.uses_bundle(SimpleNamespace(values=values, worst=worst)) is uses


def test_what_a_worst_kernel_leaves_unexplained(monkeypatch):
    gradients = np.array([[[1.0, 3.0]], [[0.0, -2.0]]])
    piece = SimpleNamespace(returns=np.array([1.0, 2.0]), gradients=gradients)
    monkeypatch.setattr(rsqp, "evaluate_under", lambda *_: piece)
    before = SimpleNamespace(problem=None, policy=np.array([[0.5, 0.5]]))
    after = SimpleNamespace(worst=None, policy=np.array([[0.0, 1.0]]), returns=np.array([5.0, 4.0]))
    step = proposed(monkeypatch, units=np.array([1.0, 2.0]))
    np.testing.assert_allclose(step._unexplained(before, after), [5.0 - (1.0 + 1.0), (4.0 - (2.0 - 1.0)) / 2.0])


def test_units_are_how_far_each_cost_can_move_at_first():
    gradients = np.array([[[0.0, 2.0]], [[0.0, 8.0]], [[1.0, 1.0]], [[0.0, 0.0]]])
    q_values = np.array([[[1.0, 1.0]], [[1.0, 1.0]], [[-4.0, 1.0]], [[0.0, 0.0]]])
    problem = SimpleNamespace(discount=0.5)
    first = SimpleNamespace(
        gradients=gradients,
        q_values=q_values,
        policy=np.array([[0.5, 0.5]]),
        occupancy=np.ones((4, 1)),
        problem=problem,
    )
    step = SequentialPolicy(np.zeros(3), 1e-6, 0.0, Nominal())
    step._begin(first)
    np.testing.assert_allclose(step.units, [2.0, 8.0, 4e-9, 1.0])  # nothing moves the third: a little of its size
    assert step.trust == step.first == pytest.approx(4.0)  # ±1 / 2, in visits of 1 / (1 − 0.5)
    np.testing.assert_allclose(step.penalties, [2.0, 0.5e6, 0.5e6])


@pytest.mark.parametrize(("objective", "residual"), [(0.5, 0.5), (-8.0, 0.0625)])
@pytest.mark.parametrize("feasible", [True, False])
def test_stationary_is_where_little_can_be_gained_within_the_budgets(monkeypatch, objective, residual, feasible):
    model = SimpleNamespace(gap=lambda y, penalties: 0.5)
    for stationarity, enough in ((residual, True), (0.9 * residual, False)):
        step = proposed(monkeypatch, stationarity=stationarity, units=np.array([2.0, 1.0]))
        step._measure(model, np.zeros(1), evaluated(2 * objective, 5.0 if feasible else 5.1))
        assert step.residual == residual
        assert step.stop_reason == ("stationary" if enough and feasible else None)
