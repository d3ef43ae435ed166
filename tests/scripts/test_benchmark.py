"""The benchmark's own machinery; what it measures is never asserted."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import random_policy
from rich.console import Console

from benchmarks import command, inner, nominal, problems, scale, training
from benchmarks.evaluation import row_wise_iteration
from benchmarks.measure import Row, absent, interleaved, seconds, slowdown
from rcac import evaluate
from rcac.uncertainty import KLPenalty


def test_every_section_can_be_measured():
    for name in command.SECTIONS:
        assert callable(import_module(f"benchmarks.{name}").measure)


def test_the_slow_peer_computes_the_same(rng):
    problem = problems.dense(5, 3, 0.9)
    policy = random_policy(rng, problem)
    np.testing.assert_allclose(
        row_wise_iteration(problem, policy, 2.0), evaluate(problem, policy, KLPenalty(2.0)).values, atol=1e-7
    )


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


def test_scale_on_small_sizes(monkeypatch):
    monkeypatch.setattr(scale, "SEARCHES", 1)
    rows = scale.measure((49, 100), evaluations=6)
    assert len({row.name for row in rows}) == len(rows)
    solved = [row for row in rows if row.name.startswith(("RSQP to 1 %", "RNPG to 1 %"))]
    assert len(solved) == 2 * 2 * 2 * 2  # methods, kinds, sets, sizes
    larger = [row for row in solved if row.name.endswith("100 states")]
    assert (
        sum(np.isfinite(row.value) for row in larger) >= 4
    )  # whoever is best has solved it, unless a longer search is better
    beside = [row for row in rows if row.name.startswith("RSQP beside longer searches")]
    assert len(beside) == 2 * 2  # kinds and sets, at the smallest size
    assert all(row.value >= 0 for row in beside)
    assert all(np.isfinite(row.value) for row in rows if row not in solved)
    assert all("above the optimum" in row.note for row in solved if np.isfinite(row.value))
    assert sum("growth of evaluation" in row.name for row in rows) == 4


def test_when_a_method_has_solved_a_problem():
    course = scale.Course(np.array([1.0, 2.0, 3.0]), np.array([np.inf, 5.0, 4.0]))
    assert [course.reached(goal) for goal in (5.5, 4.2, 3.9)] == [1, 2, None]


def test_grid_moves_end_where_they_should():
    problem = problems.grid(5, 0.9)
    kernel = problem.kernel.toarray().reshape(25, 10, 25)
    assert kernel[12, 4, 12] == pytest.approx(0.8)  # staying, in the middle of the torus
    assert kernel[12, 0, 6] == pytest.approx(0.8)  # up and left
    assert kernel[4, 9, 1] == pytest.approx(0.8)  # the jump by two, around the edge
    assert np.all(np.sort(kernel, axis=2)[:, :, -10:-1] == pytest.approx(0.2 / 9))
    assert problem.costs[0, 0].max() == 0  # the goal


def fake_sections(monkeypatch, *sections):
    """Sections that find these rows, one after the other."""
    results = iter(sections)
    monkeypatch.setattr(command, "_section", lambda name: lambda: next(results))


def test_the_command_saves_and_compares(tmp_path, monkeypatch, capsys):
    first = [Row("a", 2.0, "ms", 3.0, "peer"), Row("b", np.inf, "s"), Row("c", 9.0, "steps/s"), Row("d", np.nan, "s")]
    second = [Row("a", 4.0, "ms"), Row("b", np.inf, "s"), Row("c", 18.0, "steps/s"), Row("new", 1.0, "s")]
    fake_sections(monkeypatch, first, second)
    command.main(["solvers", "--save", str(tmp_path / "one.json")])
    text = (tmp_path / "one.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"solvers": {"a": 2.0, "b": "never", "c": 9.0}}
    capsys.readouterr()
    command.main(["solvers", "--save", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")])
    out = capsys.readouterr().out
    assert "! 2.00× worse" in out
    assert "2.00× better" in out  # twice the steps per second
    assert "! solvers: a: 2 ms before, 4 ms now" in out
    assert out.count("!") == 2


def test_every_section_is_saved_as_it_ends(tmp_path, monkeypatch, capsys):
    """What was measured before an accident is saved, and shown."""
    path = tmp_path / "figures.json"
    results = iter([[Row("a", 1.0, "ms")], [Row("b", 2.0, "ms")]])

    def section():
        if (rows := next(results, None)) is None:
            raise KeyboardInterrupt
        return rows

    monkeypatch.setattr(command, "_section", lambda name: section)
    with pytest.raises(KeyboardInterrupt):
        command.main(["all", "--save", str(path)])
    assert json.loads(path.read_text()) == {"evaluation": {"a": 1.0}, "solvers": {"b": 2.0}}
    assert "2 ms" in capsys.readouterr().out


def test_figures_are_shown_if_they_cannot_be_saved_after_all(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "folder"

    def section():
        folder.rmdir()
        return [Row("a", 1.0, "ms")]

    monkeypatch.setattr(command, "_section", lambda name: section)
    with pytest.raises(SystemExit) as stopped:
        command.main(["solvers", "--save", str(folder / "figures.json")])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert "1 ms" in out
    assert err.startswith(f"--save: {folder / 'figures.json'} cannot be written (")
    assert err.count("\n") == 1


def test_a_comparison_with_other_measurements_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "one.json").write_text(json.dumps({"solvers": {"another": 2.0}}))
    fake_sections(monkeypatch, [Row("a", 1.0, "ms")])
    with pytest.raises(SystemExit) as stopped:
        command.main(["solvers", "--save", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2
    assert err == f"--against: {tmp_path / 'one.json'} given, which has none of the measurements above\n"
    assert "1 ms" in out
    assert json.loads((tmp_path / "two.json").read_text()) == {"solvers": {"a": 1.0}}


def test_saving_keeps_the_other_sections(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "figures.json"
    fake_sections(monkeypatch, [Row("a", 1.0, "ms")], [Row("b", 2.0, "ms")], [Row("c", 3.0, "ms")])
    for section in ("solvers", "scale", "solvers"):
        command.main([section, "--save", str(path)])
    assert json.loads(path.read_text()) == {"solvers": {"c": 3.0}, "scale": {"b": 2.0}}


@pytest.mark.parametrize(
    ("row", "before", "expected"),
    [
        (Row("", 3.0, "ms"), 2.0, 1.5),
        (Row("", 2.0, "M steps/s"), 3.0, 1.5),
        (Row("", 2.0, "×"), 3.0, 1.5),
        (Row("", np.inf, "ms"), 3.0, np.inf),
        (Row("", 3.0, "ms"), np.inf, 0.0),
        (Row("", np.inf, "ms"), np.inf, 1.0),
        (Row("", 3.0, "ms"), 0.0, 1.0),
    ],
)
def test_slow_downs(row, before, expected):
    assert slowdown(row, before) == expected


def test_a_slow_down_fails_only_on_request(tmp_path, monkeypatch, capsys):
    (tmp_path / "one.json").write_text(json.dumps({"solvers": {"a": 2.0}}))
    same = ["solvers", "--save", str(tmp_path / "two.json"), "--against", str(tmp_path / "one.json")]
    fake_sections(monkeypatch, *[[Row("a", 2.5, "ms")]] * 4)
    command.main(same)
    assert "!" not in capsys.readouterr().out
    command.main([*same, "--fail"])
    command.main([*same, "--threshold", "1.2"])
    assert "! 1.25× worse" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        command.main([*same, "--threshold", "1.2", "--fail"])
    assert stopped.value.code == 1
    assert json.loads((tmp_path / "two.json").read_text()) == {"solvers": {"a": 2.5}}


def test_the_table_says_what_the_ratio_is_to():
    console = Console(record=True, width=120)
    rows = [
        Row("x", 1.0, "ms", 12.5, "peer", "7 rounds"),
        Row("y", np.nan, "s", None, absent("[some] peer")),
        Row("z", np.inf, "s"),
    ]
    console.print(command.table({"evaluation": rows}, {}))
    text = console.export_text()
    for part in ("12.5", "x (7 rounds)", "n/a: [some] peer is not installed (extra `peers`)", "never"):
        assert part in text


def test_the_script_runs_from_any_folder(tmp_path):
    script = Path(__file__).parents[2] / "scripts" / "benchmark.py"
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in command.SECTIONS)
    assert list(tmp_path.iterdir()) == []


def test_bad_arguments_exit_with_2_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "_section", lambda name: pytest.fail("measured"))
    missing, broken, other = (tmp_path / name for name in ("missing.json", "broken.json", "other.json"))
    broken.write_text("{")
    other.write_text('{"solvers": [1, 2]}')
    empty, scaled = tmp_path / "empty.json", tmp_path / "scaled.json"
    empty.write_text("{}")
    scaled.write_text('{"scale": {"a": 1.0}, "solvers": {}}')
    for arguments, message in (
        (["nope"], "invalid choice: 'nope'"),
        (
            ["solvers", "--against", str(missing)],
            f"--against: {missing} given, the figures of an earlier benchmark expected",
        ),
        (["solvers", "--against", str(broken)], f"--against: {broken} given"),
        (["solvers", "--save", str(other)], f"--save: {other} given"),
        (["solvers", "--save", str(tmp_path)], f"--save: {tmp_path} given"),
        (["solvers", "--save", str(other / "x.json")], f"--save: {other / 'x.json'} given, a file that can be written"),
        (["solvers", "--save", "/proc/x.json"], "--save: /proc/x.json given, a file that can be written expected"),
        (["all", "--against", str(empty)], f"--against: {empty} given, which has no figures of evaluation, solvers, "),
        (["solvers", "--against", str(scaled)], f"--against: {scaled} given, which has no figures of solvers"),
        (["solvers", "--threshold", "0.5"], "--threshold: 0.5 given, a number ≥ 1 expected"),
    ):
        with pytest.raises(SystemExit) as stopped:
            command.main(arguments)
        assert stopped.value.code == 2
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1


# Peers


def test_inner_problems_beside_cvxpy():
    rows = inner.measure(states=5, count=20, compared=3)
    assert [row.name.split(",")[0] for row in rows] == ["KL ball .05", "χ² .2", "Wasserstein .05", "TV .1"]
    assert all(row.ratio > 0 and row.peer == "cvxpy's time" for row in rows)


@pytest.mark.parametrize("position", range(4))
def test_another_answer_of_cvxpy_is_noticed(monkeypatch, position):
    """With the program of another set."""
    known = inner.inner_problems(5)
    wrong = known[position]._replace(program=known[(position + 1) % 4].program)
    monkeypatch.setattr(inner, "inner_problems", lambda states: [wrong])
    with pytest.raises(AssertionError, match="cvxpy differs by"):
        inner.measure(states=5, count=20, compared=3)


def discrete_dp(error=0.0):
    """QuantEcon's interface, by plain value iteration: rewards (S, A), or (S·A,) with the pairs' states and actions."""

    class DiscreteDP:
        def __init__(self, R, Q, beta, s_indices=None, a_indices=None):
            shape = R.shape if s_indices is None else (s_indices.max() + 1, a_indices.max() + 1)
            order = slice(None) if s_indices is None else np.lexsort((a_indices, s_indices))
            self.reward, self.beta = R.reshape(-1)[order].reshape(shape), beta
            self.kernel = (Q if s_indices is None else Q.toarray()[order]).reshape(*shape, -1)

        def solve(self, method, epsilon, max_iter):
            return SimpleNamespace(v=largest_values(self.reward, self.kernel, self.beta) + error)

    return SimpleNamespace(DiscreteDP=DiscreteDP)


def largest_values(reward, kernel, discount):
    """By plain value iteration: reward (S, A), kernel (S, A, S)."""
    v = np.zeros(len(reward))
    for _ in range(3000):
        v = (reward + discount * kernel @ v).max(axis=1)
    return v


class MdpsolverModel:
    """mdpsolver's interface: lists of probabilities and states."""

    def mdp(self, discount, rewards, tranMatProbs, tranMatColumns):
        kernel = np.zeros((len(rewards), len(rewards[0]), len(rewards)))
        for s, a in np.ndindex(kernel.shape[:2]):
            kernel[s, a, tranMatColumns[s][a]] = tranMatProbs[s][a]
        self.problem = np.array(rewards), kernel, discount

    def solve(self, algorithm, tolerance):
        self.values = largest_values(*self.problem)

    def getValueVector(self):
        return self.values.tolist()


class ModifiedPolicyIteration:
    """pymdptoolbox's interface: a matrix for each action; values are right up to a constant."""

    def __init__(self, transitions, reward, discount, epsilon):
        kernel = np.stack([t if isinstance(t, np.ndarray) else t.toarray() for t in transitions], axis=1)
        self.problem, self.V = (reward, kernel, discount), np.zeros(len(reward))

    def run(self):
        self.V = tuple(largest_values(*self.problem) + 3.0)


def stand_ins(monkeypatch, error=0.0):
    modules = {
        "quantecon": SimpleNamespace(),
        "quantecon.markov": discrete_dp(error),
        "mdpsolver": SimpleNamespace(model=MdpsolverModel),
        "mdptoolbox": SimpleNamespace(),
        "mdptoolbox.mdp": SimpleNamespace(PolicyIterationModified=ModifiedPolicyIteration),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("installed", [True, False])
def test_nominal_optima_beside_their_peers(monkeypatch, installed):
    """With the packages where they are there, and with stand-ins for them."""
    if not installed or not all(map(find_spec, ("quantecon", "mdpsolver", "mdptoolbox"))):
        stand_ins(monkeypatch)
    rows = nominal.measure((8, 12))
    assert len({row.name for row in rows}) == len(rows) == 10
    assert all(row.ratio > 0 for row in rows)


def test_another_answer_of_quantecon_is_noticed(monkeypatch):
    stand_ins(monkeypatch, error=1e-5)
    with pytest.raises(AssertionError, match="QuantEcon's policy iteration differs by"):
        nominal.measure((8, 12))


def test_absent_peers_are_named_and_nothing_fails(monkeypatch):
    nominals = ("quantecon", "quantecon.markov", "mdpsolver", "mdptoolbox", "mdptoolbox.mdp")
    for module in ("cvxpy", *nominals, "stable_baselines3"):
        monkeypatch.setitem(sys.modules, module, None)
    for rows, peers in (
        (inner.measure(5, 20, 3), {"cvxpy"}),
        (nominal.measure((8, 12)), {"QuantEcon", "mdpsolver", "pymdptoolbox"}),
    ):
        assert {row.peer for row in rows} == {absent(peer) for peer in peers}
        assert all(np.isfinite(row.value) and row.ratio is None for row in rows)
    for name in ("steps_per_second", "time_to_solve"):
        monkeypatch.setattr(training, name, lambda *arguments, **settings: 2.0)
    monkeypatch.setattr(training, "vector_speed", lambda: Row("vector", 1.0, "M steps/s"))
    rows = training.measure()
    assert sum(np.isnan(row.value) for row in rows) == 3  # A2C, PPO, tuned PPO
    assert {row.peer for row in rows if np.isnan(row.value)} == {absent("Stable-Baselines3")}


def test_training_beside_stable_baselines(monkeypatch):
    for name in ("steps_per_second", "time_to_solve", "peer_time_to_solve"):
        monkeypatch.setattr(training, name, lambda *arguments, **settings: 2.0)
    monkeypatch.setattr(training, "vector_speed", lambda: Row("vector", 1.0, "M steps/s"))
    monkeypatch.setattr(training, "peer_speed", lambda *arguments: 0.5)
    monkeypatch.setattr(training, "image_times", lambda: (1.0, 2.0))
    monkeypatch.setattr(training, "peers", lambda: dict.fromkeys(("A2C", "PPO", "tuned PPO"), int))
    rows = training.measure()
    assert len({row.name for row in rows}) == len(rows)
    assert [row.value for row in rows if "beside SB3" in row.name] == [4.0] * 6
    assert [row.ratio for row in rows if "to 475" in row.name] == [None, 1.0, 1.0, 1.0]
    assert [row.ratio for row in rows if "on images" in row.name] == [0.5]
