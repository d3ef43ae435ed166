"""The loop: runs end well, resume exactly, and survive what happens to them."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from state_hash import state_hash
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy_learner import IDENTITY, ToyLearner, train_toy

import rcac
from rcac.errors import InputError
from rcac.learner import State, Step, Term
from rcac.runs import checkpoint, progress
from rcac.runs.checkpoint import load_latest
from rcac.runs.folder import RunFolder
from rcac.runs.loggers.csv import read_metrics
from rcac.runs.loop import Callback, Outcome, TrainingStopped
from rcac.runs.progress import ProgressView, score_text
from rcac.runs.saving import Checkpoints, rank
from rcac.runs.signals import StopRequest

TESTS = Path(__file__).parents[1]
FULL_IDENTITY = {"rcac": rcac.__version__, **IDENTITY}


def new(root: Path) -> RunFolder:
    return RunFolder.create(root, "toy", "descent", 0)


def run(learner: ToyLearner, folder: RunFolder, *callbacks: Callback, **options) -> Outcome:
    return train_toy(learner, folder, callbacks, **options).outcome


def send(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def fail(error: Exception) -> Callable[[], None]:
    def failing() -> None:
        raise error

    return failing


def rows_without_time(folder: RunFolder) -> list[list[str]]:
    table = list(csv.reader((folder.path / "metrics.csv").open()))
    timed = [k for k, name in enumerate(table[0]) if name == "wall_time" or name.startswith("time/")]
    assert len(timed) == 2
    return [[cell for k, cell in enumerate(row) if k not in timed] for row in table]


def checkpoints(folder: RunFolder) -> list[int]:
    return sorted(int(name) for name in os.listdir(folder.path / "checkpoints"))


def rubbish(folder: RunFolder) -> list[Path]:
    return [path for path in folder.path.rglob(".*")]


# A whole run


def test_what_a_run_leaves(tmp_path):
    learner, folder = ToyLearner(total=60), new(tmp_path)
    assert run(learner, folder) == Outcome(0, 60, "finished")
    names = {re.sub(r"^events\..*", "events", name) for name in os.listdir(folder.path)}
    expected = "run.lock versions.json metrics.csv events checkpoints plots policy.safetensors policy.json summary.json"
    assert names == set(expected.split())
    assert rubbish(folder) == []

    read = read_metrics(folder.path / "metrics.csv")
    again = ToyLearner(total=60)
    steps = [again.step() for _ in range(60)]
    np.testing.assert_array_equal(read["position"], range(1, 61))
    np.testing.assert_array_equal(read["return/value"], [step.metrics["return/value"] for step in steps])
    np.testing.assert_array_equal(read["critic/late"][19:], np.sqrt(np.arange(20, 61)))
    assert (read["time/steps_per_second"] > 0).all()
    assert state_hash(load_latest(folder.path, FULL_IDENTITY).state) == state_hash(again.state())
    np.testing.assert_array_equal(folder.read_policy().tensors["x"], again.best)

    summary = folder.read_json("summary.json")
    assert summary["best_return"] == again.best_return
    assert summary["run"].pop("wall_time") > 0
    assert summary["run"] == {"finished": True, "reason": "finished", "position": 60}

    board = EventAccumulator(str(folder.path), size_guidance={"scalars": 0, "images": 0})
    board.Reload()
    assert [event.step for event in board.Scalars("time/steps_per_second")] == list(range(1, 61))
    assert [event.step for event in board.Images("policy/picture")] == [10, 20, 30, 40, 50, 60, 60]
    assert "_hparams_/session_start_info" in board.PluginTagToContent("hparams")


@pytest.mark.parametrize("stride", [1, 7])
def test_the_last_and_the_best_feasible_checkpoints(tmp_path, stride):
    """Checkpoints at the first position on or after each multiple of 10; scored by return where the budget is met."""
    folder = new(tmp_path)
    run(ToyLearner(total=200, stride=stride), folder)
    again, scores, at = ToyLearner(total=200, stride=stride), {}, []
    while not again.finished:
        before, step = again.position, again.step()
        if again.position // 10 > before // 10 or again.finished:
            at.append(again.position)
            if step.terms[1].met:
                scores[again.position] = step.terms[0].value
    best = max(scores, key=scores.get)
    assert best not in at[-2:]  # or this would test nothing
    assert checkpoints(folder) == [best, *at[-2:]]
    assert checkpoint.best(folder.path).name == f"{best:012d}"


def test_an_objective_that_is_a_cost_is_better_when_smaller():
    met = Term("cost 2", 1.0, 2.0, True)
    assert rank((Term("return", -3.0, None, True), met)) == -3.0
    assert rank((Term("objective", 3.0, None, True), met)) == -3.0
    assert rank((Term("return", -3.0, None, True), met._replace(met=False))) is None
    assert rank(()) is None


def test_pictures_on_their_own_interval(tmp_path):
    folder = new(tmp_path)
    run(ToyLearner(total=40), folder, images_every=15)
    board = EventAccumulator(str(folder.path), size_guidance={"images": 0})
    board.Reload()
    assert [event.step for event in board.Images("policy/picture")] == [15, 30, 40]


# Callbacks


class Noting(Callback):
    """Writes a metric of its own, and stops at a position."""

    def __init__(self, stop_at: int = 0) -> None:
        self.stop_at, self.said = stop_at, []

    def on_start(self, learner):
        self.said.append(("start", learner.position))

    def on_step(self, learner, step):
        step.metrics["mine/double"] = 2.0 * learner.position
        return learner.position != self.stop_at

    def on_end(self, learner, outcome):
        self.said.append(("end", outcome.reason))

    def close(self):
        self.said.append("closed")


def test_a_callback_writes_metrics_and_stops_the_training(tmp_path):
    folder, noting = new(tmp_path), Noting(stop_at=23)
    assert run(ToyLearner(total=60), folder, noting) == Outcome(0, 23, "callback")
    assert noting.said == [("start", 0), ("end", "callback"), "closed"]
    read = read_metrics(folder.path / "metrics.csv")
    np.testing.assert_array_equal(read["mine/double"], 2.0 * np.arange(1, 24))
    assert folder.read_json("summary.json")["run"]["finished"] is False
    assert run(ToyLearner(seed=9, total=60), RunFolder.open(folder.path), resume=True) == Outcome(0, 60, "finished")


def test_callbacks_are_closed_whatever_happens(tmp_path):
    learner, noting = ToyLearner(), Noting()
    learner.at[3] = fail(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run(learner, new(tmp_path), noting)
    assert noting.said == [("start", 0), "closed"]


# Resuming


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    learner, folder = ToyLearner(total=60), new(tmp_path_factory.mktemp("whole"))
    run(learner, folder)
    return learner, folder


def same_end(learner: ToyLearner, folder: RunFolder, uninterrupted) -> None:
    whole, whole_folder = uninterrupted
    assert state_hash(learner.state()) == state_hash(whole.state())
    assert state_hash(folder.read_policy()) == state_hash(whole_folder.read_policy())
    assert rows_without_time(folder) == rows_without_time(whole_folder)
    assert checkpoints(folder) == checkpoints(whole_folder)
    assert rubbish(folder) == []


@pytest.mark.parametrize("points", [[7], [30], [53], [7, 30, 53]])
@pytest.mark.parametrize("broken", [False, True])
def test_resumed_equals_uninterrupted(tmp_path, uninterrupted, points, broken):
    """Stopped with a checkpoint on the spot, or broken off and taken up from the last multiple of ten."""
    folder, resume = new(tmp_path), False
    for point in points:
        learner = ToyLearner(total=60)
        learner.at[point] = fail(RuntimeError("the environment broke")) if broken else send(signal.SIGINT)
        if broken:
            with pytest.raises(RuntimeError, match="the environment broke"):
                run(learner, folder, resume=resume)
        else:
            assert run(learner, folder, resume=resume) == Outcome(130, point, "SIGINT")
            assert folder.read_json("summary.json")["run"]["finished"] is False
            assert checkpoint.latest(folder.path).name == f"{point:012d}"
        folder, resume = RunFolder.open(folder.path), True
    other_seed = ToyLearner(seed=99, total=60)  # everything must come from the checkpoint
    assert run(other_seed, folder, resume=True) == Outcome(0, 60, "finished")
    if broken:
        same_end(other_seed, folder, uninterrupted)
    else:  # a stop adds a checkpoint of its own, which may be the best feasible one
        assert state_hash(other_seed.state()) == state_hash(uninterrupted[0].state())
        assert rows_without_time(folder) == rows_without_time(uninterrupted[1])


def test_resuming_a_finished_run_changes_nothing(tmp_path):
    folder = new(tmp_path)
    run(ToyLearner(total=25), folder)
    before = {name: (folder.path / name).read_bytes() for name in ("metrics.csv", "policy.safetensors", "policy.json")}
    again = ToyLearner(total=25)
    assert run(again, RunFolder.open(folder.path), resume=True) == Outcome(0, 25, "finished")
    assert {name: (folder.path / name).read_bytes() for name in before} == before


def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(tmp_path, uninterrupted, capfd):
    folder = new(tmp_path)
    learner = ToyLearner(total=60)
    learner.at[37] = send(signal.SIGTERM)
    assert run(learner, folder) == Outcome(143, 37, "SIGTERM")
    os.truncate(folder.path / "checkpoints" / f"{37:012d}" / "state.json", 5)
    learner = ToyLearner(total=60)
    learner.at[38] = lambda: following.extend(os.listdir(folder.path / "checkpoints"))
    following: list[str] = []
    run(learner, RunFolder.open(folder.path), resume=True)
    assert f"{37:012d}.damaged" in following  # out of the way of what comes after 30
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(
        r"checkpoint 0+37 is damaged \(state.json: 5 bytes, \d+ expected\): continuing from 30", lines[0]
    )
    assert state_hash(learner.state()) == state_hash(uninterrupted[0].state())
    assert rows_without_time(folder) == rows_without_time(uninterrupted[1])


def test_a_state_of_another_learner_is_one_line(tmp_path):
    """Whole, and of this run by its identity, but written by other code, or by somebody."""
    kept = Checkpoints(tmp_path, IDENTITY, 10, 2)
    for state in (
        State({}, {}),
        State({"x": np.zeros(3), "best": np.zeros(4)}, {"position": 10, "best_return": 0, "rng": 1}),
    ):
        checkpoint.save(tmp_path, 10, state, identity=kept.identity, keep=2)
        with pytest.raises(InputError, match="checkpoint 10: its state is another's"):
            kept.resume(ToyLearner(total=20))


@pytest.mark.parametrize("key", ["env", "algo", "rcac"])
def test_another_runs_checkpoint_is_refused(tmp_path, key):
    folder = new(tmp_path)
    run(ToyLearner(total=20), folder)
    with pytest.raises(InputError, match=f"{key}: '{FULL_IDENTITY[key]}' in the checkpoint, 'other' now"):
        run(ToyLearner(total=20), RunFolder.open(folder.path), resume=True, identity={**IDENTITY, key: "other"})
    assert (folder.path / "summary.json").exists()


# Failures


def test_nan_stops_within_the_step(tmp_path):
    folder, learner = new(tmp_path), ToyLearner()
    learner.at[34] = lambda: learner.x.fill(np.nan)
    with pytest.raises(TrainingStopped) as stopped:
        run(learner, folder)
    assert learner.position == 34
    good = folder.path / "checkpoints" / f"{30:012d}"
    line = f"numbers broke down: return/value is not a number, after 34 steps; the last good checkpoint is {good}"
    assert str(stopped.value) == line
    loaded = load_latest(folder.path, FULL_IDENTITY)
    assert loaded.position == 30
    assert np.isfinite(loaded.state.tensors["x"]).all()
    np.testing.assert_array_equal(read_metrics(folder.path / "metrics.csv")["position"], range(1, 34))


def test_floating_point_error_of_a_learner(tmp_path):
    folder, learner = new(tmp_path), ToyLearner()
    learner.at[3] = fail(FloatingPointError("gradient of layer 2 is not finite"))
    with pytest.raises(
        TrainingStopped, match=r"gradient of layer 2 is not finite, after 3 steps; the last good .*0000$"
    ):
        run(learner, folder)
    assert load_latest(folder.path, FULL_IDENTITY).position == 0


def test_an_exception_keeps_its_type_and_gains_context(tmp_path):
    folder, learner = new(tmp_path), ToyLearner()
    learner.at[25] = fail(ZeroDivisionError("in the environment"))
    with pytest.raises(ZeroDivisionError, match="in the environment") as raised:
        run(learner, folder)
    [note] = raised.value.__notes__
    assert note.startswith("training stopped after 25 steps; the last good checkpoint is ")
    assert note.endswith(f"{20:012d}")


class Unsaveable(ToyLearner):
    def state(self):
        return super().state()._replace(data={"position": (1, 2)})


def test_a_start_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match=r"data\['position'\]: tuple given"):
        run(Unsaveable(), new(tmp_path / "runs"))
    assert os.listdir(tmp_path) == []


def test_a_negative_interval_is_refused(tmp_path):
    with pytest.raises(InputError, match="checkpoint_every: -1 given"):
        run(ToyLearner(), new(tmp_path), checkpoint_every=-1)


# As a program


def start(mode: str, where: Path, **options) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "faults" / "train.py"), mode, str(where), json.dumps(options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_signals_end_a_program_with_their_exit_codes_and_it_resumes(tmp_path, uninterrupted):
    """SIGINT, then SIGTERM, then to the end; meanwhile nobody else may resume the run."""
    program = start("new", tmp_path, wait_at=12)
    path = Path(program.stdout.readline().strip())
    assert program.stdout.readline() == "waiting\n"
    program.send_signal(signal.SIGINT)
    output, errors = program.communicate()
    assert (program.returncode, errors) == (130, "")
    first = json.loads(output)
    assert (first["reason"], first["position"]) == ("SIGINT", 12)
    assert checkpoint.latest(path).name == f"{first['position']:012d}"

    program = start("resume", path, wait_at=15)
    program.stdout.readline()
    assert program.stdout.readline() == "waiting\n"
    second = start("resume", path)
    assert second.communicate()[1].splitlines() == [f"run {path}: in use by process {program.pid}, stop that one first"]
    assert second.returncode == 2
    program.send_signal(signal.SIGTERM)
    output, errors = program.communicate()
    assert (program.returncode, errors) == (143, "")
    assert json.loads(output)["position"] == 15

    learner, folder = ToyLearner(seed=99, total=60), RunFolder.open(path)
    assert run(learner, folder, resume=True) == Outcome(0, 60, "finished")
    assert state_hash(learner.state()) == state_hash(uninterrupted[0].state())
    assert rows_without_time(folder) == rows_without_time(uninterrupted[1])


def test_a_second_sigint_stops_at_once(tmp_path):
    program = start("new", tmp_path, sleep_at=17)  # a step of an hour
    path = Path(program.stdout.readline().strip())
    assert program.stdout.readline() == "waiting\n"
    program.send_signal(signal.SIGINT)
    assert program.stdout.readline() == "told\n"  # the first one lets the step go on
    assert program.poll() is None
    program.send_signal(signal.SIGINT)
    assert program.communicate()[1] == ""
    assert program.returncode == 130
    loaded = load_latest(path, FULL_IDENTITY)
    assert (loaded.position, loaded.skipped) == (10, [])
    assert rubbish(RunFolder.open(path)) == []


@pytest.mark.parametrize(
    ("options", "culprit", "kept"),
    [
        ({"size": 10_000, "limit_at": [25, 100_000]}, "checkpoints/.saving/tensors.safetensors", 20),
        ({"size": 4, "limit_at": [25, 6_000]}, "metrics.csv", None),  # after TensorBoard's file, which is let go
    ],
)
def test_a_disk_that_fills_up(tmp_path, options, culprit, kept):
    program = start("new", tmp_path, total=300, **options)
    output, errors = program.communicate()
    path = Path(output.strip())
    assert program.returncode == 1
    [line] = errors.splitlines()
    rows = read_metrics(path / "metrics.csv")["position"]
    np.testing.assert_array_equal(rows, range(1, len(rows) + 1))
    loaded = load_latest(path, FULL_IDENTITY)
    last = rows[-1] if kept else rows[-1] + 1  # with a full table, the row of the last step is missing
    assert loaded.position == (kept or rows[-1] // 10 * 10) >= 20
    assert loaded.skipped == []
    good = path / "checkpoints" / f"{loaded.position:012d}"
    full = f"no space left (File too large: {path / culprit})"
    assert line == f"{full}, after {last} steps; the last good checkpoint is {good}"
    assert rubbish(RunFolder.open(path)) == []

    learner = ToyLearner(seed=99, total=300, size=options["size"])  # with space again
    run(learner, RunFolder.open(path), resume=True)
    whole = ToyLearner(total=300, size=options["size"])
    while not whole.finished:
        whole.step()
    assert state_hash(learner.state()) == state_hash(whole.state())


def test_a_disk_that_is_full_from_the_start(tmp_path):
    program = start("new", tmp_path / "runs", size=10_000, limit_at=[0, 100_000])
    errors = program.communicate()[1]
    assert program.returncode == 1
    assert re.fullmatch(r"no space left \(File too large: .*\), after 0 steps; there is no checkpoint yet\n", errors)
    assert os.listdir(tmp_path) == []


def test_killed_before_its_first_checkpoint_or_in_the_middle_of_saving(tmp_path, uninterrupted):
    folder = new(tmp_path)
    folder.close()
    for name in (".saving", ".removing"):
        (folder.path / "checkpoints" / name).mkdir()
    learner = ToyLearner(total=60)
    run(learner, folder, resume=True)
    same_end(learner, folder, uninterrupted)
    assert not list((folder.path / "checkpoints").glob(".*"))


def test_a_table_damaged_while_training_costs_the_plots_alone(tmp_path, capfd):
    folder = new(tmp_path)

    class Spoiling(Callback):
        def close(self):
            (folder.path / "metrics.csv").write_text("position,wall_time,x\n1,2,abc\n")

    assert train_toy(ToyLearner(total=60), folder, [Spoiling()]).history == {}
    assert "no plots: " in capfd.readouterr().err
    assert (folder.path / "policy.safetensors").is_file()
    assert (folder.path / "summary.json").is_file()


@pytest.mark.parametrize("text", ["garbage", "position,wall_time\n", "position,wall_time,x\n1,2,abc\n"])
def test_a_run_with_a_damaged_table_goes_on(tmp_path, text):
    folder = new(tmp_path)
    done = train_toy(ToyLearner(total=60), folder)
    for name in ("policy.safetensors", "policy.json", "summary.json"):
        (done.folder / name).unlink()
    (done.folder / "metrics.csv").write_text(text)
    run(ToyLearner(total=60), RunFolder.open(done.folder), resume=True)
    assert (folder.path / "policy.safetensors").is_file()
    assert (folder.path / "summary.json").is_file()


def test_killed_again_and_again_a_run_still_arrives(tmp_path, uninterrupted):
    """kill -9 at any moment of the loop: each time at most one interval is lost, and the end is the same."""
    folder = new(tmp_path)
    folder.close()
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(TESTS / "faults" / "kill_training.py"), str(folder.path)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= 5
    again = ToyLearner(seed=99, total=60)
    run(again, folder, resume=True)
    same_end(again, folder, uninterrupted)


# Signals


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with StopRequest() as stop:
        send(signal.SIGTERM)()
        send(signal.SIGTERM)()  # a second SIGTERM hurries nobody
        assert (stop.received, stop.exit_code) == (signal.SIGTERM, 143)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL  # a third one ends the process
        assert stop.exit_code == 143
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_another_thread_may_train(tmp_path):
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(run(ToyLearner(total=20), new(tmp_path))))
    thread.start()
    thread.join()
    assert outcomes == [Outcome(0, 20, "finished")]


# Progress

MET = Step({}, (Term("return", 12.345678, None, True), Term("cost", 40.0, 42.0, True)), "return")
EXCEEDED = Step({}, (Term("return", 12.0, None, True), Term("cost", 43.0, 42.0, False)), "cost")


def test_score_is_green_within_and_red_beyond_the_budget():
    assert score_text(MET).plain == "return 12.35  cost 40 (budget 42, met)  improving return"
    for step, colour in ((MET, "green"), (EXCEEDED, "red")):
        text = score_text(step)
        styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
        assert {words: style for words, style in styles.items() if "budget" in words} == {
            f"{step.terms[1].value:.4g} (budget 42, {'met' if step.terms[1].met else 'exceeded'})": colour
        }


def test_the_worst_context_stands_beside_its_budget():
    term = Term("cost", 180.0, 200.0, True, worst=231.25)
    text = score_text(Step({}, (Term("return", 12.0, None, True), term), "cost"))
    assert text.plain == "return 12  cost 180, worst context 231.2 (budget 200, exceeded)  reducing cost"
    styles = {text.plain[span.start : span.end]: span.style for span in text.spans}
    assert styles["worst context 231.2 (budget 200, exceeded)"] == "red"
    assert "worst context 199 (budget 200, met)" in score_text(Step({}, (term._replace(worst=199.0),), "cost")).plain


def watch(console: Console, seconds_per_step: float, steps: int) -> None:
    learner, now = ToyLearner(total=steps), [0.0]
    view = ProgressView(console, clock=lambda: now[0])
    view.on_start(learner)
    for _ in range(steps):
        learner.position += 1
        now[0] += seconds_per_step
        view.on_step(learner, MET)
    view.close()


def test_plain_lines_when_not_on_a_terminal():
    said = io.StringIO()
    watch(Console(file=said), 1.0, 25)
    score = "return 12.35  cost 40 (budget 42, met)  improving return"
    assert said.getvalue().splitlines() == [
        f"steps 10/25 (40%)  1/s  0:00:15 left  {score}",
        f"steps 20/25 (80%)  1/s  0:00:05 left  {score}",
        f"steps 25/25 (100%)  1/s  0:00:00 left  {score}",
    ]


@pytest.mark.parametrize("terminal", ["0", "1"])
def test_nothing_when_told_so(tmp_path, capfd, monkeypatch, terminal):
    monkeypatch.setenv("FORCE_COLOR", terminal)
    run(ToyLearner(total=15), new(tmp_path))
    assert capfd.readouterr() == ("", "")
    run(ToyLearner(total=15), new(tmp_path), progress=True)
    assert "steps" in capfd.readouterr().err


@pytest.mark.parametrize("widgets", [False, True])
def test_a_notebook_shows_a_bar_where_it_can_and_lines_where_not(monkeypatch, widgets):
    """Rich draws the bar with ipywidgets, which a notebook may lack."""
    monkeypatch.setattr(progress, "find_spec", lambda name: object() if widgets else None)
    monkeypatch.setattr(progress._Bar, "start", lambda self: None)
    lines: list = []
    console = Console(force_jupyter=True)
    monkeypatch.setattr(console, "print", lambda line, **_: lines.append(line))
    watch(console, 1.0, 25)
    assert len(lines) == (0 if widgets else 3)


def test_a_bar_on_a_terminal():
    said = io.StringIO()
    watch(Console(file=said, force_terminal=True, width=80, color_system="standard"), 1.0, 25)
    last = said.getvalue().split("\r")[-1]
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", last)
    assert re.search("steps ━+ 25/25 .*/s", text)
    assert "improving return" in text
    assert "\x1b[32m40 (budget 42, met)" in last
