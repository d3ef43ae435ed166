"""Accidents in any order: a run arrives where it would have arrived without them, and a sweep knows what is left to do."""

import csv
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from state_hash import state_hash
from toy_learner import ToyLearner, train_toy

from rcac.config.sweep.folder import FAILED, FINISHED, INFEASIBLE, RUNNING, STOPPED, JobRecord, SweepFolder
from rcac.runs import checkpoint
from rcac.runs.folder import RunFolder

TOTAL, EVERY = 24, 5
FEW = settings(max_examples=6, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=300, stateful_step_count=20)


class Killed(BaseException):
    """Nothing of the run comes after it."""


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        shutil.rmtree(self.home)


def train(folder: RunFolder, until: int = -1, error: type[BaseException] = Killed) -> ToyLearner:
    learner = ToyLearner(total=TOTAL)

    def stop() -> None:
        raise error

    learner.at[until] = stop
    resume = checkpoint.latest(folder.path) is not None
    train_toy(learner, folder, checkpoint_every=EVERY, keep=3, loggers=["csv"], resume=resume)
    return learner


def numbers(path: Path) -> list[list[str]]:
    """The table but for its times."""
    header, *rows = csv.reader((path / "metrics.csv").open())
    return [[cell for name, cell in zip(header, row, strict=True) if "time" not in name] for row in rows]


def undisturbed() -> tuple[str, list[list[str]]]:
    with tempfile.TemporaryDirectory() as home:
        folder = RunFolder.create(home, "toy", "descent", 0)
        return state_hash(train(folder).state()), numbers(folder.path)


class Resuming(Machine):
    """A run that is killed, stopped and harmed, and begun again and again."""

    expected = None

    def __init__(self) -> None:
        super().__init__()
        Resuming.expected = Resuming.expected or undisturbed()
        self.path = RunFolder.create(self.home, "toy", "descent", 0).path

    def checkpoints(self) -> list[Path]:
        return sorted(path for path in (self.path / "checkpoints").iterdir() if path.name.isdecimal())

    @rule(until=st.integers(1, TOTAL), error=st.sampled_from([Killed, KeyboardInterrupt]))
    def train_until(self, until: int, error: type[BaseException]) -> None:
        try:
            train(RunFolder.open(self.path), until, error)
        except error:
            assert not (self.path / "checkpoints" / ".saving").exists()

    @precondition(lambda self: len(self.checkpoints()) > 1)
    @rule(name=st.sampled_from([checkpoint.DATA, checkpoint.TENSORS, checkpoint.MANIFEST]), share=st.floats(0, 0.99))
    def truncate_the_newest(self, name: str, share: float) -> None:
        path = self.checkpoints()[-1] / name
        os.truncate(path, int(share * path.stat().st_size))
        if not any(self.whole(each) for each in self.checkpoints()):
            shutil.rmtree(self.path / "checkpoints")
            (self.path / "checkpoints").mkdir()

    def whole(self, path: Path) -> bool:
        try:
            checkpoint.load(path, checkpoint._manifest(path)["identity"])
        except checkpoint.Damaged:
            return False
        return True

    @rule()
    def leave_half_a_checkpoint(self) -> None:
        for name in (".saving", ".removing"):
            (self.path / "checkpoints" / name).mkdir(exist_ok=True)
            (self.path / "checkpoints" / name / checkpoint.DATA).write_text("{")

    @rule()
    def leave_half_a_row(self) -> None:
        if (self.path / "metrics.csv").exists():
            with (self.path / "metrics.csv").open("a") as file:
                file.write("17,0.3")

    @rule(content=st.binary(max_size=20))
    def damage_the_versions(self, content: bytes) -> None:
        (self.path / "versions.json").write_bytes(content)

    def teardown(self) -> None:
        try:
            learner = train(RunFolder.open(self.path))
            assert (state_hash(learner.state()), numbers(self.path)) == self.expected
            assert (self.path / "policy.json").exists()
        finally:
            super().teardown()


class Sweeping(Machine):
    """What the folder of a sweep says of its jobs, whatever has become of them."""

    keys = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.folder = SweepFolder(self.home)
        self.folder.jobs.mkdir()
        self.done: dict[str, bool] = {}

    @rule(key=keys, outcome=st.sampled_from([FINISHED, INFEASIBLE, FAILED, STOPPED, RUNNING]), wrote=st.booleans())
    def end(self, key: str, outcome: str, wrote: bool) -> None:
        run = self.home / f"run-{key}"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        if wrote:
            (run / "summary.json").write_text("{}")
        self.folder.write(key, JobRecord("launch", ["seed=1"], outcome, run.name))
        self.done[key] = outcome == INFEASIBLE or (outcome == FINISHED and wrote)

    @rule(key=keys)
    def delete_the_run(self, key: str) -> None:
        shutil.rmtree(self.home / f"run-{key}", ignore_errors=True)
        record = self.folder.read(key)
        self.done[key] = record is not None and record.outcome == INFEASIBLE

    @rule(key=keys, content=st.binary(max_size=12))
    def damage_the_record(self, key: str, content: bytes) -> None:
        (self.folder.jobs / f"{key}.json").write_bytes(content)
        self.done[key] = False

    @rule(key=keys)
    def work_on_it(self, key: str) -> None:
        with self.folder.locked(key) as mine:
            assert mine
            assert self.folder.running(key)
            with self.folder.locked(key) as another:
                assert not another
        assert not self.folder.running(key)

    @rule(launch=st.sampled_from(["one", "two"]))
    def launch(self, launch: str) -> None:
        self.folder.begin_launch(launch)
        assert self.folder.active_launch() == launch
        self.folder.end_launch()
        assert self.folder.active_launch() is None

    def teardown(self) -> None:
        found = {key: bool(self.folder.done(key)) for key in self.done}
        super().teardown()
        assert found == self.done


@pytest.mark.parametrize("machine", [Resuming, Sweeping])
def test_a_few_accidents(machine):
    run_state_machine_as_test(machine, settings=FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("machine", [Resuming, Sweeping])
def test_many_accidents(machine):
    run_state_machine_as_test(machine, settings=MANY)
