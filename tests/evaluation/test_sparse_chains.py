"""Sparse systems: a factorisation where it fills in little, an iteration elsewhere; both against dense algebra."""

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks import problems
from rcac import RCMDP, evaluate
from rcac.evaluation import sparse
from rcac.evaluation.sparse import System, fill_in
from rcac.uncertainty import KLBall, Nominal, TotalVariation


def walk(states, closed=True, discount=0.99):
    """Forward and back on a cycle or a line."""
    here = np.arange(states)
    steps = (
        [(here + 1) % states, (here - 1) % states]
        if closed
        else [np.minimum(here + 1, states - 1), np.maximum(here - 1, 0)]
    )
    indices = np.stack([np.stack([step, here], axis=1) for step in steps], axis=1).reshape(-1)
    data = np.tile([0.9, 0.1], 2 * states)
    kernel = sp.csr_array((data, indices, np.arange(0, 4 * states + 1, 2)), shape=(2 * states, states))
    costs = np.random.default_rng(0).random((2, states, 2))
    return RCMDP(kernel, costs, [0.0], np.full(states, 1 / states), discount)  # fmt: skip


def counted(monkeypatch):
    """Which way each solve went."""
    calls = {"factorised": 0, "iterated": 0}
    factorise, bicgstab = System._factorise, sparse.spla.bicgstab

    def factorising(self, right):
        calls["factorised"] += 1
        return factorise(self, right)

    def iterating(*args, **kwargs):
        calls["iterated"] += 1
        return bicgstab(*args, **kwargs)

    monkeypatch.setattr(System, "_factorise", factorising)
    monkeypatch.setattr(sparse.spla, "bicgstab", iterating)
    return calls


@pytest.mark.parametrize("uncertainty", [Nominal(), KLBall(0.05), TotalVariation(0.05)])
@pytest.mark.parametrize("closed", [True, False])
def test_cycles_and_lines_are_factorised(uncertainty, closed, monkeypatch):
    problem, policy = walk(600, closed, 0.999), np.full((600, 2), 0.5)
    calls = counted(monkeypatch)
    found = evaluate(problem, policy, uncertainty)
    np.testing.assert_allclose(found.occupancy.sum(axis=1), 1, atol=1e-9)
    assert calls["factorised"] > 0
    assert calls["iterated"] == 0
    for k, kernel in enumerate(found.kernels):  # by dense algebra
        chain = np.einsum("sa,sat->st", policy, kernel.toarray().reshape(600, 2, 600))
        values = np.linalg.solve(np.eye(600) - 0.999 * chain, (policy * problem.costs[k]).sum(axis=1))
        np.testing.assert_allclose(found.values[k], values, rtol=1e-7)
        occupancy = np.linalg.solve(np.eye(600) - 0.999 * chain.T, 0.001 * problem.initial)
        np.testing.assert_allclose(found.occupancy[k], occupancy, rtol=1e-6)


def test_random_graphs_are_iterated(monkeypatch):
    problem = problems.sparse(1000, 2, 10, 0.99)
    calls = counted(monkeypatch)
    evaluate(problem, np.full((1000, 2), 0.5), KLBall(0.05)).occupancy  # noqa: B018
    assert calls["iterated"] > 0
    assert calls["factorised"] == 0


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("pushed", [False, True])
def test_every_way_to_solve_a_system(transposed, pushed, rng, monkeypatch):
    chain = sp.csr_array(rng.dirichlet(np.full(40, 0.02), size=40))
    push, towards = rng.normal(size=(2, 40)) * 0.05
    system = System(chain, 0.95, *((push, towards) if pushed else (None, None)), transposed=transposed)
    matrix = np.eye(40) - 0.95 * (chain.toarray() + (np.outer(push, towards) if pushed else 0))
    right = rng.normal(size=40)
    truth = np.linalg.solve(matrix.T if transposed else matrix, right)
    np.testing.assert_allclose(system._factorise(right), truth, rtol=1e-10)
    np.testing.assert_allclose(system.solve(right, 1e-12), truth, rtol=1e-9)
    monkeypatch.setattr(sparse, "SHORT", 0)
    np.testing.assert_allclose(system.solve(right, 1e-12), truth, rtol=1e-9)


def test_the_bound_on_fill_in_holds(rng):
    for chain in (walk(300).rows.matrix()[::2], sp.csr_array(rng.dirichlet(np.full(60, 0.03), size=60))):
        matrix = (sp.eye_array(chain.shape[0]) - 0.9 * chain).tocsc()
        options = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
        order = sparse.reverse_cuthill_mckee((chain + chain.T).tocsr(), symmetric_mode=True)
        factors = sparse.spla.splu(matrix[order][:, order].tocsc(), **options)
        assert factors.L.nnz + factors.U.nnz <= fill_in(sp.csr_array(chain)).entries + chain.shape[0]
