"""The benchmark's own machinery; what it measures is never asserted."""

import json
from importlib import import_module

import numpy as np
import pytest
from conftest import random_policy
from rich.console import Console

from rcac import evaluate
from rcac.experiment.benchmark import command, problems, scale
from rcac.experiment.benchmark.evaluation import row_wise_iteration
from rcac.experiment.benchmark.measure import Row, interleaved, seconds
from rcac.uncertainty import KLPenalty


def test_every_section_can_be_measured():
    for name in command.SECTIONS:
        assert callable(import_module(f"rcac.experiment.benchmark.{name}").measure)


def test_the_slow_peer_computes_the_same(rng):
    problem = problems.dense(5, 3, 0.9)
    policy = random_policy(rng, problem)
    np.testing.assert_allclose(row_wise_iteration(problem, policy, 2.0), evaluate(problem, policy, KLPenalty(2.0)).values, atol=1e-7)


def test_sparse_problems_have_the_successors_asked_for():
    problem = problems.sparse(50, 4, 3, 0.9)
    assert problem.sparse
    assert np.diff(problem.rows.indptr).max() == 3


def test_times_are_medians_of_calls():
    calls = []
    assert seconds(lambda: calls.append(1), 5) >= 0
    assert len(calls) == 6  # one to warm up
    one, two = interleaved(lambda: calls.append(2), lambda: calls.append(3), 4)
    assert calls[-2:] == [2, 3]
    assert min(one, two) >= 0


def test_scale_on_small_sizes():
    rows = scale.measure((100, 200))
    assert sum("growth" in row.name for row in rows) == 4
    assert all(np.isfinite(row.value) for row in rows)


def test_the_command_saves_and_compares(tmp_path, monkeypatch, capsys):
    made = iter([[Row("a", 2.0, "ms", 3.0, "peer")], [Row("a", 4.0, "ms"), Row("b", np.inf, "s")]])
    monkeypatch.setattr(command, "_section", lambda name: lambda: next(made))
    command.main(["solvers", "--save", str(tmp_path / "one.json")])
    assert json.loads((tmp_path / "one.json").read_text()) == {"solvers": {"a": 2.0}}
    command.main(["solvers", "--save", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")])
    out = capsys.readouterr().out
    assert "2.00×" in out
    assert "never" in out


def test_the_table_says_what_the_ratio_is_to():
    console = Console(record=True, width=120)
    console.print(command.table({"evaluation": [Row("x", 1.0, "ms", 12.5, "peer")]}, {}))
    assert "12.5" in console.export_text()


def test_bad_arguments_exit_with_2(tmp_path, capsys):
    for arguments in (["nope"], ["solvers", "--against", str(tmp_path / "missing.json")]):
        with pytest.raises(SystemExit) as stopped:
            command.main(arguments)
        assert stopped.value.code == 2
    assert "missing.json cannot be read" in capsys.readouterr().err
