"""Boxes of parameters and the adversaries over them, against cvxpy."""

import cvxpy as cp
import numpy as np
import pytest

from rcac.contexts import Parameters, Range, Risk
from rcac.errors import InputError

BOX = Parameters({"wind": (-2, 2), "length": (0.5, 2.0, "log"), "mass": (1, 1)})


def test_the_unit_cube_and_back():
    unit = BOX.sample(np.random.default_rng(0), 50)
    contexts = BOX.contexts(unit)
    assert (contexts["mass"] == 1).all()
    back = BOX.unit(contexts)
    np.testing.assert_allclose(back[:, :2], unit[:, :2], atol=1e-12)
    assert np.median(np.log(contexts["length"])) == pytest.approx(0.0, abs=0.3)


def test_corners_are_all_pairs_of_ends():
    corners = BOX.contexts(BOX.corners())
    found = {(float(w), round(float(x), 12)) for w, x in zip(corners["wind"], corners["length"], strict=True)}
    assert found == {(-2.0, 0.5), (-2.0, 2.0), (2.0, 0.5), (2.0, 2.0)}
    assert len(Parameters({f"p{i}": (0, 1) for i in range(14)}).corners()) == 1024


def test_widened_about_its_centre():
    wide = BOX.widened(1.5).ranges
    assert wide["wind"] == (-3, 3, False)
    assert wide["length"].low == pytest.approx(2**-1.5)
    assert wide["length"].high == pytest.approx(2**1.5)
    assert wide["mass"] == (1, 1, False)


def maximum(values, law, risk):
    """By cvxpy: max qᵀJ over the risk's set."""
    q = cp.Variable(len(law), nonneg=True)
    held = [cp.sum(q) == 1]
    if risk.kind == "kl":
        held.append(cp.sum(cp.kl_div(q, law)) <= risk.parameter)  # Σ q log(q/p) − q + p
    elif risk.kind == "cvar":
        held.append(q <= law / risk.parameter)
    elif risk.kind == "mean":
        held.append(q == law)
    problem = cp.Problem(cp.Maximize(values @ q), held)
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize(
    "risk",
    [Risk("mean"), Risk("worst"), *(Risk("kl", r) for r in (0.01, 0.5, 9.0)), Risk("cvar", 0.3), Risk("cvar", 1)],
)
def test_the_adversary_attains_the_maximum_over_its_set(risk):
    rng = np.random.default_rng(1)
    for trial in range(5):
        values = 100 * rng.normal(size=9)
        if trial == 0:
            values[:4] = values.max()  # a tie at the top
        law = rng.dirichlet(np.ones(9))
        q = risk.adversary(values, law)
        assert q.sum() == pytest.approx(1)
        assert (q >= 0).all()
        assert values @ q == pytest.approx(maximum(values, law, risk), abs=1e-4)
        if risk.kind == "kl":
            held = q > 0
            assert q[held] @ np.log(q[held] / law[held]) <= risk.parameter + 1e-9
        if risk.kind == "cvar":
            assert (q <= law / risk.parameter + 1e-12).all()


def test_the_adversary_does_not_depend_on_units():
    values, law = np.array([3.0, 1.0, 2.0]), np.full(3, 1 / 3)
    for risk in (Risk("kl", 0.4), Risk("cvar", 0.5), Risk("worst")):
        for unit in (1e-9, 1e9):
            np.testing.assert_allclose(risk.adversary(unit * values - 5 * unit, law), risk.adversary(values, law))


def test_a_risk_for_each_cost():
    box = Parameters({"wind": (-2, 2)}, risk={"cost": {"kl": 2.5}, "steps lost": "mean"})
    assert box.risks(["return", "cost", "steps lost"]) == [Risk("mean"), Risk("kl", 2.5), Risk("mean")]
    assert Parameters({"wind": (0, 1)}).risks(["return", "cost"]) == [Risk("mean"), Risk("worst")]
    assert Parameters({"wind": (0, 1)}, "worst").risks(["return", "cost"]) == [Risk("worst"), Risk("worst")]
    with pytest.raises(InputError, match=r"risk.steps lost: given, one of return, cost, cost 1 expected"):
        box.risks(["return", "cost 1"])


def test_plain_data_and_back():
    box = Parameters({"wind": (-2, 2), "length": (0.5, 2.0, "log")}, risk={"cost": {"cvar": 0.2}})
    again = Parameters(**box.as_dict())
    assert again.as_dict() == box.as_dict()
    assert again.ranges["length"] == Range(0.5, 2.0, True)


@pytest.mark.parametrize(
    ("ranges", "risk", "message"),
    [
        ({}, None, "ranges: {} given"),
        ({"wind": 3}, None, "ranges.wind: 3 given"),
        ({"wind": (2, -2)}, None, "low ≤ high"),
        ({"wind": (0, "x")}, None, "ranges.wind"),
        ({"wind": (0, float("inf"))}, None, "finite"),
        ({"wind": (0, 1, "log")}, None, "low > 0"),
        ({"wind": (0, 1, "cubic")}, None, '"log"'),
        ({"wind": (0, 1)}, "careful", "risk: 'careful' given, worst, mean"),
        ({"wind": (0, 1)}, "kl", "risk: 'kl' given"),
        ({"wind": (0, 1)}, {"kl": -1}, "risk: -1 given, a radius > 0 expected for kl"),
        ({"wind": (0, 1)}, {"cost": {"cvar": 2}}, r"risk.cost: 2 given, a share in \(0, 1\] expected for cvar"),
    ],
)
def test_bad_input(ranges, risk, message):
    with pytest.raises(InputError, match=message):
        Parameters(ranges, risk)
