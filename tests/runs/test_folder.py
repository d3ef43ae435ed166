"""The run folder: made once, locked by one process, written whole or not at all."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from state_hash import state_hash

from rcac.errors import InputError
from rcac.learner import State
from rcac.runs import folder as runfolder
from rcac.runs import versions
from rcac.runs.folder import RunFolder, replace_file


def helper(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


class FrozenClock(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 5, 6, 7, 8, 9)


def names(path: Path) -> set[str]:
    return set(os.listdir(path))


def test_layout(tmp_path, monkeypatch):
    monkeypatch.setattr(runfolder, "datetime", FrozenClock)
    folder = RunFolder.create(tmp_path / "runs", "river_swim", "rnpg", 7)
    assert folder.path == tmp_path / "runs/river_swim/rnpg/20240506-070809-seed7"
    assert names(folder.path) == {"run.lock", "versions.json", "checkpoints", "plots"}
    assert (folder.path / "run.lock").read_text() == f"{os.getpid()}\n"


def test_twenty_starts_in_one_second(tmp_path, monkeypatch):
    monkeypatch.setattr(runfolder, "datetime", FrozenClock)
    folders = [RunFolder.create(tmp_path, "e", "a", 0) for _ in range(20)]
    stem = "20240506-070809-seed0"
    assert [f.path.name for f in folders] == [stem] + [f"{stem}-{n}" for n in range(2, 21)]


def test_twenty_starts_in_one_second_from_four_processes(tmp_path):
    code = """if True:
        import sys
        from datetime import datetime
        from rcac.runs import folder as runfolder
        class Frozen(datetime):
            now = classmethod(lambda cls: cls(2024, 5, 6, 7, 8, 9))
        runfolder.datetime = Frozen
        print("ready", flush=True)
        sys.stdin.readline()
        folders = [runfolder.RunFolder.create(sys.argv[1], "e", "a", 0) for _ in range(5)]
        print(*(f.path for f in folders), sep="\\n", flush=True)
    """
    programs = [helper(code, tmp_path) for _ in range(4)]
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    for program in programs:
        program.stdin.write("go\n")
        program.stdin.flush()
    paths = [line for program in programs for line in program.communicate()[0].split()]
    assert len(paths) == 20
    assert len(set(paths)) == 20
    assert {str(path) for path in (tmp_path / "e/a").iterdir()} == set(paths)


def test_versions(tmp_path):
    recorded = json.loads((RunFolder.create(tmp_path, "e", "a", 0).path / "versions.json").read_text())
    assert recorded["numpy"] == np.__version__
    assert recorded["python"] == ".".join(map(str, sys.version_info[:3]))
    assert set(recorded) == {"rcac", "numpy", "torch", "gymnasium", "python", "platform", "git"}


def test_git_revision_is_that_of_the_packages_tree(tmp_path, monkeypatch):
    home = tmp_path / "tree" / "rcac"
    home.mkdir(parents=True)
    (home / "__init__.py").touch()
    monkeypatch.setattr(versions.rcac, "__file__", str(home / "__init__.py"))
    assert versions.versions()["git"] is None

    def git(*arguments):
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        done = subprocess.run(["git", "-C", home, *who, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q", "..")
    assert versions.versions()["git"] is None  # inside a tree, but no part of it
    git("add", "__init__.py")
    git("commit", "-qm", "x")
    head = git("rev-parse", "HEAD")
    assert re.fullmatch("[0-9a-f]{40}", head)
    assert versions.versions()["git"] == head
    (home / "__init__.py").write_text("changed")
    assert versions.versions()["git"] == f"{head}-dirty"
    monkeypatch.setenv("PATH", "")
    assert versions.versions()["git"] is None


@pytest.mark.parametrize(("env", "expected"), [("rcac/RiverSwim-v0", "rcac-RiverSwim-v0"), ("../../x", "x")])
def test_a_name_is_never_a_path(tmp_path, env, expected):
    assert RunFolder.create(tmp_path, env, "a", 0).path.parent == tmp_path / expected / "a"


@pytest.mark.parametrize("env", ["", "..", "/", "./."])
def test_a_name_with_nothing_in_it_is_refused(tmp_path, env):
    with pytest.raises(InputError, match="env: "):
        RunFolder.create(tmp_path, env, "a", 0)
    assert names(tmp_path) == set()


def test_a_root_under_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file/runs: cannot be written"):
        RunFolder.create(tmp_path / "file" / "runs", "e", "a", 0)
    assert names(tmp_path) == {"file"}


def test_a_read_only_root_is_refused_by_an_unprivileged_process():
    """Permission bits do not bind root, so the program lets go of its privileges first, if it has them."""
    code = """if True:
        import os, sys
        from rcac.errors import InputError
        from rcac.runs.folder import RunFolder
        if os.geteuid() == 0:
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
        for attempt in (lambda: RunFolder.create(sys.argv[1], "e", "a", 0), RunFolder.open(sys.argv[2]).lock):
            try:
                attempt()
            except InputError as error:
                print(error)
    """
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        locked = Path(place) / "runs"
        run = RunFolder.create(locked, "e", "a", 0)
        run.close()
        for path in (run.path, locked):
            os.chmod(path, 0o555)
        before = {str(path) for path in locked.rglob("*")}
        program = helper(code, locked, run.path)
        output, errors = program.communicate()
        for path in (run.path, locked):
            os.chmod(path, 0o755)
        assert errors == ""
        first, second = output.splitlines()
        assert first.startswith(f"runs folder {locked}: cannot be written (Permission denied")
        assert second.startswith(f"run {run.path}: cannot be written (Permission denied")
        assert {str(path) for path in locked.rglob("*")} == before


def test_a_file_system_that_turns_out_read_only_leaves_nothing(tmp_path, monkeypatch):
    """The kernel's answer is faked: folders can be made, files cannot."""
    real = os.open

    def read_only(path, flags, *rest, **options):
        if flags & (os.O_WRONLY | os.O_RDWR) and str(path).startswith(str(tmp_path)):
            raise OSError(30, "Read-only file system", str(path))
        return real(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(InputError, match=r"cannot be written \(Read-only file system"):
        RunFolder.create(tmp_path / "runs", "e", "a", 0)
    assert names(tmp_path) == set()


def test_discard_leaves_what_was_there_before(tmp_path):
    first = RunFolder.create(tmp_path / "runs", "e", "a", 0)
    second = RunFolder.create(tmp_path / "runs", "e", "b", 0)
    second.discard()
    assert names(tmp_path / "runs" / "e") == {"a"}
    opened = RunFolder.open(first.path)
    opened.discard()
    assert (first.path / "versions.json").exists()
    first.discard()
    assert names(tmp_path) == set()


def test_open_wants_a_run(tmp_path):
    with pytest.raises(InputError, match=f"run: {tmp_path} given, the folder of a run expected"):
        RunFolder.open(tmp_path)


def test_the_second_of_two_processes_is_refused_and_told_by_whom(tmp_path):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    with pytest.raises(InputError, match=rf"in use by process {os.getpid()}\b"):
        RunFolder.open(folder.path).lock()
    code = """if True:
        import sys
        from rcac.errors import InputError
        from rcac.runs.folder import RunFolder
        folder = RunFolder.open(sys.argv[1])
        try:
            folder.lock()
        except InputError as error:
            print("refused:", error, flush=True)
        sys.stdin.readline()
        folder.lock()
        print("locked", flush=True)
        sys.stdin.readline()
    """
    program = helper(code, folder.path)
    assert re.fullmatch(f"refused: .*in use by process {os.getpid()}, .*\n", program.stdout.readline())
    folder.close()
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "locked\n"
    with pytest.raises(InputError, match=rf"in use by process {program.pid}\b"):
        folder.lock()
    program.kill()
    program.communicate()
    folder.lock()


def test_a_worker_that_outlives_its_killed_parent_does_not_hold_the_lock(tmp_path):
    code = """if True:
        import os, sys, time
        from rcac.runs.folder import RunFolder
        folder = RunFolder.create(sys.argv[1], "e", "a", 0)
        if os.fork() == 0:
            print(os.getpid(), folder.path, flush=True)  # by the worker: it is under way
            time.sleep(3600)
            os._exit(0)
        sys.stdin.readline()
    """
    program = helper(code, tmp_path)
    worker, path = program.stdout.readline().split()
    try:
        program.kill()
        program.wait()
        os.kill(int(worker), 0)  # the worker lives
        RunFolder.open(path).lock()
    finally:
        os.kill(int(worker), signal.SIGKILL)
        program.communicate()


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    folder.write_text("config.yaml", "a: 1\n")
    folder.write_json("summary.json", {"x": np.float32(0.5), "y": np.arange(2), "z": "é"})
    assert folder.read_json("summary.json") == {"x": 0.5, "y": [0, 1], "z": "é"}
    before = names(folder.path)

    def full(*_):
        raise OSError(28, "No space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, full)
            with pytest.raises(OSError, match="No space left"):
                folder.write_text("config.yaml", "a: 2\n")
        assert (folder.path / "config.yaml").read_text() == "a: 1\n"
        assert names(folder.path) == before
    folder.write_text("config.yaml", "a: 3\n")
    assert (folder.path / "config.yaml").read_text() == "a: 3\n"


def test_what_a_killed_writer_left_is_cleared_by_the_next(tmp_path):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    folder.close()
    (folder.path / ".summary.json.123.tmp").write_text("half")
    (folder.path / f".config.yaml.{os.getpid()}.tmp").write_text("half")
    replace_file(folder.path / "config.yaml", b"whole")  # its own process id, used before
    assert (folder.path / "config.yaml").read_bytes() == b"whole"
    RunFolder.open(folder.path).lock()
    assert not list(folder.path.glob(".*.tmp"))


def test_policy_round_trip_and_damage(tmp_path):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    policy = State({"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"spaces": {"n": 3}, "scale": float("inf")})
    folder.write_policy(policy, {"identity": {"env": "e"}})
    read = RunFolder.open(folder.path).read_policy()
    assert state_hash(read) == state_hash(policy)
    card = folder.read_json("policy.json")
    assert card["identity"] == {"env": "e"}
    assert card["versions"]["numpy"] == np.__version__
    content = bytearray((folder.path / "policy.safetensors").read_bytes())
    content[-1] ^= 1
    (folder.path / "policy.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="SHA-256 differs"):
        folder.read_policy()
    (folder.path / "policy.json").write_text("{")
    with pytest.raises(InputError, match=r"policy\.json: not the JSON"):
        folder.read_policy()


@pytest.mark.parametrize("number", [np.nan, -np.inf])
def test_a_policy_that_is_not_finite_is_not_written(tmp_path, number):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    with pytest.raises(FloatingPointError, match="policy: w is not finite"):
        folder.write_policy(State({"w": np.array([1.0, number])}, {}), {})
    assert not (folder.path / "policy.safetensors").exists()


def test_a_damaged_record_of_versions_costs_no_policy(tmp_path):
    folder = RunFolder.create(tmp_path, "e", "a", 0)
    (folder.path / "versions.json").write_text("{")
    folder.write_policy(State({"w": np.ones(2)}, {"kind": "none"}), {})
    assert json.loads((folder.path / "policy.json").read_text())["versions"]["numpy"] == np.__version__


@pytest.mark.parametrize("name", ["plots", "checkpoints", "metrics.csv"])
@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/tmp"), os.mkfifo], ids=["link", "fifo"])
def test_links_and_pipes_in_the_place_of_a_runs_own_are_refused(tmp_path, name, make):
    with RunFolder.create(tmp_path, "e", "a", 0) as folder:
        if (folder.path / name).exists():
            (folder.path / name).rmdir()
        make(folder.path / name)
    with pytest.raises(InputError, match=f"{name} is not a"):
        RunFolder.open(folder.path)
