"""The front door: what `rcac.solve` takes and rejects, and what a `Solution` offers."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from conftest import random_policy, random_problem

import rcac
from rcac import RCMDP, InputError, evaluate, nominal_optimum, robust_value_iteration, solve
from rcac.uncertainty import ChiSquare, CVaR, FiniteKernels, KLBall, Nominal, TotalVariation, Wasserstein


@pytest.fixture
def problem(rng):
    kernel, reward, cost, utility = (
        rng.dirichlet(np.ones(4), size=(4, 2)),
        rng.random((4, 2)),
        rng.random((1, 4, 2)),
        rng.random((1, 4, 2)),
    )
    return RCMDP.from_rewards(kernel, reward, cost, [6.0], discount=0.9, utilities=utility, utility_floors=[2.0])


def test_a_set_by_its_name_has_the_parameters_of_its_file(problem):
    for name, same in (("kl_ball", KLBall(0.01)), ("nominal", None)):
        np.testing.assert_array_equal(solve(problem, "rsqp", name).policy, solve(problem, "rsqp", same).policy)
    policy = np.full((4, 2), 0.5)
    assert evaluate(problem, policy, "kl_ball").returns[0] == evaluate(problem, policy, KLBall(0.01)).returns[0]
    assert robust_value_iteration(problem, "kl_ball").value == robust_value_iteration(problem, KLBall(0.01)).value


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: solve(p, "rsqp", "kl_bal"), "uncertainty: 'kl_bal' given, one of chi_square, .* expected"),
        (lambda p: solve(p, "rsqp", "kl_penalty"), "uncertainty: 'kl_penalty' given, a set with its parameters expected"),
        (lambda p: solve(p, "rsqp", "finite"), "uncertainty: 'finite' given, a set with its parameters expected"),
        (lambda p: solve(p, "rsqp", 0.05), r"uncertainty: float given, a set such as KLBall\(0.05\), or one of"),
        (lambda p: solve(p, iteration=5), "iteration: no such option; did you mean iterations"),
        (lambda p: solve(p, zzz=5), "zzz: no such option; one of family, switch, .* expected"),
        (lambda p: solve(p, iterations=0), "iterations: 0 given, a whole number ≥ 1 expected"),
        (lambda p: solve(p, seed="x"), "seed: 'x' given, a whole number ≥ 0 expected"),
        (lambda p: solve(p.kernel), r"problem: ndarray given, an RCMDP expected, as RCMDP.from_rewards\("),
        (lambda p: evaluate(p.kernel, None), "problem: ndarray given, an RCMDP expected"),
        (lambda p: robust_value_iteration(p.kernel), "problem: ndarray given, an RCMDP expected"),
        (lambda p: robust_value_iteration(p, KLBall(0.1), "x"), "index: x given, 0 to 2 expected"),
        (lambda p: solve(p, policy=np.ones((2, 2))), r"policy: shape \(2, 2\) given, \(4, 2\) expected"),
        (lambda p: evaluate(p, []), r"policy: shape \(0,\) given"),
        (lambda p: RCMDP.from_rewards(np.zeros((0, 0, 0)), np.zeros((0, 0))), r"reward: shape \(0, 0\) given"),
        (lambda p: RCMDP(p.kernel, np.zeros((0, 4, 2)), [], p.initial, 0.9), r"costs: shape \(0, 4, 2\) given"),
        (lambda p: RCMDP.from_rewards([[1, 2], [3]], np.zeros((2, 1))), "kernel: not an array of numbers"),
        (lambda p: RCMDP(p.kernel + 0j, p.costs, p.budgets, p.initial, 0.9), "kernel: not an array of numbers"),
        (lambda p: solve(p, "rsqp", ""), "uncertainty: '' given, one of chi_square"),
        (lambda p: solve(p, "rsqp", KLBall), r"uncertainty: the class KLBall given, a set such as KLBall\(0.05\)"),
        (lambda p: solve(p, callback=3), "callback: 3 given, a function of a step expected"),
        (lambda p: nominal_optimum(p.kernel), "problem: ndarray given, an RCMDP expected"),
        (lambda p: robust_value_iteration(p, index=True), "index: True given, 0 to 2 expected"),
        (lambda p: robust_value_iteration(p, tolerance=np.nan), "tolerance: nan given, a finite number ≥ 0 expected"),
        (lambda p: evaluate(p, np.full((4, 2), 0.5), tolerance="x"), "tolerance: 'x' given, a finite number ≥ 0"),
        (lambda p: evaluate(p, np.full((4, 2), 0.5), warm_start=5), r"warm_start: 5 given, an evaluation of costs \(3, 4, 2\)"),
        (lambda p: KLBall(0.1).worst_case([], [1.0]), r"values: shape \(0,\) given"),
        (lambda p: KLBall(0.1).worst_case([1, 2], []), r"nominal: shape \(0,\) given"),
        (lambda p: KLBall(0.1).worst_case([1, 2], [0.5, 0.6]), "nominal: sums to 1.1, 1 expected"),
        (lambda p: KLBall(0.1).worst_case([1, np.nan], [0.5, 0.5]), r"values\[1\]: nan given, a finite number"),
        (lambda p: KLBall(0.1).worst_case([[1, 2]] * 2, [[0.5, 0.5]] * 3), r"values: shape \(2, 2\) given, one that broadcasts"),
        (lambda p: KLBall([0.1, 0.2]).worst_case([1, 2], [[0.5, 0.5]] * 3), r"radius: shape \(2,\) given, a number or \(3,\)"),
        (lambda p: CVaR([0.1, 0.2]).worst_case([1, 2], [0.5, 0.5]), r"alpha: shape \(2,\) given, a number or \(\)"),
        (lambda p: Wasserstein(0.1, 1 - np.eye(3)).worst_case([1, 2], [0.5, 0.5]), "metric: 3 states given, the problem has 2"),
        (lambda p: CVaR([]), r"alpha: \[\] given, a number ≥ 0 or an array of them"),
        (lambda p: KLBall(True), "radius: True given, a number"),
        (lambda p: TotalVariation(0.1, "no"), "within_support: 'no' given, True or False expected"),
        (lambda p: FiniteKernels([p.kernel], "no"), "rectangular: 'no' given, True or False expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_on_one_line(problem, call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(problem)
    assert "\n" not in str(caught.value)


def test_a_solution_in_the_signs_of_the_problem(problem):
    found = solve(problem, "rsqp", KLBall(0.02))
    returns = evaluate(problem, found.policy, KLBall(0.02)).returns
    np.testing.assert_allclose(found.rewards, [-returns[0], -returns[2]], rtol=1e-8)  # the return and the utility
    np.testing.assert_allclose(found.costs, [returns[1]], rtol=1e-8)
    assert f"return {-found.returns[0]:.6g}, cost 1 {found.returns[1]:.6g} (at most 6), utility 2" in repr(found)
    assert "(at least 2)" in repr(found)


def test_a_solution_is_saved_plotted_and_tabulated(problem, tmp_path):
    found = solve(problem, "rnpg", TotalVariation(0.05), iterations=12)
    found.save(tmp_path / "solution.npz")
    with np.load(tmp_path / "solution.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["policy"], found.policy)
        np.testing.assert_array_equal(file["history_returns"], found.history["returns"])
    figure = found.plot(tmp_path / "solution.png")
    assert (tmp_path / "solution.png").stat().st_size > 0
    assert [axes.get_title() for axes in figure.axes] == ["worst-case return", "worst-case cost 1", "worst-case utility 2"]  # fmt: skip
    np.testing.assert_allclose(figure.axes[2].lines[2].get_ydata(), 2.0)  # the floor
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="to_dataframe: pandas is not installed"):
            found.to_dataframe()
        return
    table = found.to_dataframe()
    assert len(table) == 12
    np.testing.assert_allclose(table["return"], -found.history["returns"][:, 0])


@pytest.mark.parametrize("make", [torch.tensor, np.asarray, lambda kernel: [list(rows) for rows in kernel]])
def test_single_precision_is_known_in_any_container(make, rng):
    kernel = rng.dirichlet(np.ones(5), size=(5, 2)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        problem = RCMDP.from_rewards(make(kernel), np.zeros((5, 2)))
    np.testing.assert_allclose(problem.kernel.sum(axis=-1), 1, atol=1e-13)


def test_kernels_in_single_precision(rng):
    problem = random_problem(rng)
    kernel, policy = problem.kernel.astype(np.float32), random_policy(rng, problem)
    single = RCMDP(kernel, problem.costs, problem.budgets, problem.initial.astype(np.float32), problem.discount)
    np.testing.assert_allclose(single.kernel.sum(axis=-1), 1, atol=1e-13)
    for uncertainty in (KLBall(0.1), ChiSquare(0.1), FiniteKernels([kernel, kernel])):
        found = evaluate(single, policy.astype(np.float32), uncertainty).returns
        same = FiniteKernels([problem.kernel]) if isinstance(uncertainty, FiniteKernels) else uncertainty
        np.testing.assert_allclose(found, evaluate(problem, policy, same).returns, atol=1e-4)
    with pytest.raises(InputError, match=r"kernel\[0, 0\]: sums to 1.00"):
        RCMDP(kernel * np.float32(1.0001), problem.costs, problem.budgets, problem.initial, 0.9)
    with pytest.raises(InputError, match=r"kernel\[0, 0\]: sums to 1.00"):  # single precision, but not said to be
        RCMDP(kernel.astype(float) * (1 + 3e-8), problem.costs, problem.budgets, problem.initial, 0.9)


SMALL = """
import numpy as np, rcac
from rcac.uncertainty import {set}
rng = np.random.default_rng(0)
problem = rcac.RCMDP.from_rewards(rng.dirichlet(np.ones({n}), size=({n}, 2)), rng.random(({n}, 2)), rng.random((1, {n}, 2)), [8.0], discount=0.9)
{call}
"""


@pytest.mark.parametrize(
    ("name", "states", "compiled"),
    [
        ("KLBall", 4, False),
        ("TotalVariation", 70, True),
        *(
            pytest.param(name, 4, False, marks=pytest.mark.slow)
            for name in ("KLPenalty", "ChiSquare", "TotalVariation")
        ),
    ],
)
def test_small_problems_compile_nothing_and_large_ones_say_so_once(name, states, compiled, tmp_path):
    """With an empty cache; a second process says nothing, and finds the same to the bit."""
    call = f"print(rcac.solve(problem, 'rsqp', {name}(0.05), iterations=30).returns.tolist())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", SMALL.format(set=name, n=states, call=call)],
            env={"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    assert [run.stderr.count("compiling") for run in runs] == [int(compiled), 0]
    assert any(tmp_path.rglob("*.nbi")) == compiled
    assert runs[0].stdout == runs[1].stdout


def test_names_at_the_top_of_the_package():
    for name in rcac.__all__:
        assert getattr(rcac, name) is not None


def test_the_papers_settings_of_a_method(problem):
    own = dict(step="softmax", step_size=1e-3, objective="complement", start="random", iterations=1000)
    by_hand = solve(problem, "rnpg", Nominal(), **own | {"iterations": 5})
    preset = solve(problem, "rnpg", Nominal(), preset="paper", iterations=5)
    np.testing.assert_array_equal(preset.history["returns"], by_hand.history["returns"])
    assert solve(problem, "rsqp", Nominal(), preset="paper").feasible  # it has none: ours
    with pytest.raises(InputError, match="preset: 'ours' given, one of paper expected"):
        solve(problem, "rnpg", preset="ours")
