"""The problem type: what it accepts, what it refuses and how it says so, and its file."""

import dataclasses
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import random_problem

from rcac import RCMDP, InputError

KERNEL = np.full((3, 2, 3), 1 / 3)
GOOD = dict(kernel=KERNEL, costs=np.ones((2, 3, 2)), budgets=[1.0], initial=np.full(3, 1 / 3), discount=0.9)


def with_entry(array, index, value):
    array = np.array(array, dtype=float)
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(kernel=with_entry(KERNEL, (1, 0, 2), 0.5)), r"kernel\[1, 0\]: sums to 1\.16666666667, 1 expected"),
        (dict(kernel=with_entry(KERNEL, (2, 1, 0), -0.1)), r"kernel\[2, 1\]\[0\]: -0\.1 given, a probability"),
        (dict(kernel=with_entry(KERNEL, (0, 1, 1), np.nan)), r"kernel\[0, 1, 1\]: nan given, a finite number"),
        (dict(kernel=np.full((2, 3, 3), 1 / 3)), r"looks like \(A, S, S\): pass kernel\.transpose\(1, 0, 2\)"),
        (dict(kernel=np.ones((3, 3)) / 3), r"kernel: shape \(3, 3\) given, \(S, A, S\) = \(3, 2, 3\) expected"),
        (dict(kernel="abc"), "kernel: not an array of numbers"),
        (dict(kernel=sp.csr_array(np.eye(3))), r"kernel: sparse shape \(3, 3\) given, \(S·A, S\) = \(6, 3\)"),
        (dict(kernel=sp.csr_array(with_entry(KERNEL, (1, 0, 2), 0.5).reshape(6, 3))), r"kernel\[1, 0\]: sums to"),
        (
            dict(kernel=sp.csr_array(with_entry(KERNEL, (1, 1, 2), -1).reshape(6, 3))),
            r"kernel\[1, 1\]\[2\]: -1\.0 given",
        ),
        (
            dict(kernel=sp.csr_array(with_entry(KERNEL, (1, 1, 2), np.inf).reshape(6, 3))),
            r"kernel\[1, 1\]\[2\]: inf given",
        ),
        (dict(costs=np.ones((3, 2))), r"costs: shape \(3, 2\) given, \(N\+1, S, A\)"),
        (dict(costs=with_entry(np.ones((2, 3, 2)), (1, 2, 0), np.inf)), r"costs\[1, 2, 0\]: inf given"),
        (dict(costs=np.ones((0, 3, 2))), "at least one cost, state and action"),
        (dict(budgets=[1.0, 2.0]), "budgets: 2 given, 1 expected"),
        (dict(budgets=[np.nan]), r"budgets\[0\]: nan given"),
        (dict(initial=np.full(2, 0.5)), r"initial: shape \(2,\) given, \(3,\) expected"),
        (dict(initial=[0.5, 0.5, 0.5]), r"initial: sums to 1\.5"),
        (dict(initial=[1.5, -0.5, 0.0]), r"initial\[1\]: -0\.5 given"),
        (dict(discount=1.0), r"discount: 1\.0 given, a number in \[0, 1\) expected"),
        (dict(discount=-0.1), r"discount: -0\.1 given"),
        (dict(discount=np.nan), "discount: nan given"),
        (dict(discount="x"), "discount: 'x' given, a number expected"),
        (dict(signs=[1, 2]), "signs: .* values of"),
    ],
)
def test_bad_problems_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        RCMDP(**(GOOD | change))


def test_bad_rewards_are_refused():
    with pytest.raises(InputError, match=r"reward: shape \(3,\) given, \(S, A\) expected"):
        RCMDP.from_rewards(KERNEL, np.ones(3))
    with pytest.raises(InputError, match=r"costs: shape \(3, 2\) given, \(n, 3, 2\) expected"):
        RCMDP.from_rewards(KERNEL, np.ones((3, 2)), np.ones((3, 2)), [1])
    with pytest.raises(InputError, match="utility_floors: 0 given, 1 expected"):
        RCMDP.from_rewards(KERNEL, np.ones((3, 2)), utilities=np.ones((1, 3, 2)))


def test_is_read_only_and_keeps_no_reference():
    kernel = KERNEL.copy()
    problem = RCMDP(**(GOOD | dict(kernel=kernel)))
    kernel[0, 0] = 0
    assert problem.kernel[0, 0, 0] == 1 / 3
    with pytest.raises(ValueError, match="read-only"):
        problem.costs[0, 0, 0] = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.discount = 0.5


def test_repr_is_short():
    assert repr(RCMDP(**GOOD)) == "RCMDP(3 states × 2 actions, 1 constraint, discount 0.9, dense kernel)"


def test_labels_are_in_a_persons_words():
    reward = np.ones((3, 2))
    assert RCMDP(**GOOD).labels() == ["objective", "cost"]
    mixed = RCMDP.from_rewards(KERNEL, reward, [reward], [1], utilities=[reward], utility_floors=[0])
    assert mixed.labels() == ["return", "cost 1", "utility 2"]


def test_rounding_within_the_tolerance_is_divided_out():
    problem = RCMDP(**(GOOD | dict(kernel=KERNEL * (1 + 5e-9))))
    np.testing.assert_allclose(problem.kernel.sum(axis=-1), 1, atol=1e-15)


@pytest.mark.parametrize("sparse", [False, True])
def test_file_round_trip(sparse, tmp_path, rng):
    problem = random_problem(rng, constraints=2)
    if sparse:
        problem = RCMDP(
            sp.csr_array(problem.kernel.reshape(15, 5)), problem.costs, problem.budgets, problem.initial, 0.9
        )
    problem.save(tmp_path / "p.npz")
    again = RCMDP.load(tmp_path / "p.npz")
    for name in ("costs", "budgets", "initial", "signs"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    for mine, theirs in zip(again.rows, problem.rows, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (again.discount, again.sparse) == (problem.discount, sparse)


def test_bad_files_are_refused(tmp_path):
    good = tmp_path / "good.npz"
    RCMDP(**GOOD).save(good)
    cases = {"missing": None, "text": b"hello", "cut": good.read_bytes()[:300]}
    for name, content in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=name):
            RCMDP.load(path)
    np.savez(tmp_path / "part.npz", costs=np.ones((1, 1, 1)), kernel=np.ones((1, 1, 1)))
    with pytest.raises(InputError, match="lacks budgets, discount, initial"):
        RCMDP.load(tmp_path / "part.npz")


def test_a_pickle_in_the_file_is_not_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    np.savez(tmp_path / "evil.npz", costs=np.array([Bomb()], dtype=object), kernel=np.ones((1, 1, 1)))
    assert zipfile.is_zipfile(tmp_path / "evil.npz")
    with pytest.raises(InputError, match="plain arrays"):
        RCMDP.load(tmp_path / "evil.npz")
    assert not (tmp_path / "executed").exists()
