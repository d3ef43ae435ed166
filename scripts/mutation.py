"""Do the tests notice? Change the code in one small place after the other, and see whether a test fails:

    python scripts/mutation.py [--count 200] [--seed 0] [--only rcac/switch.py] [--show]

A sample of all small changes (mutants) to the files of `CONCERNED`, each in a copy of the tree: another comparison or
operator, a number one larger, a condition negated, a call left out. A mutant meets default tests of the files that
concern it: those that run its line, the quickest first, `MOST` seconds of them in all, until one fails (`-x`). It is
caught if one does, or if they take far longer than they took without it. The survivors are printed in the end, and exit
code 1 says that fewer than `SHARE` were caught. Those of the last run are in mutation.md, with the reason for each.

Seconds are of the processor, so that nothing depends on the load of the machine.

Every mutant has a process of its own, forked from one that has loaded what does not change (torch, SciPy, …).
"""

import argparse
import ast
import contextlib
import copy
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARE = 0.9
MOST = 20.0  # seconds of tests for a mutant
SLOW = 30  # seconds after which a test is left out, by the clock
LOADED = ("torch", "scipy.optimize", "scipy.sparse.linalg", "scipy.stats", "gymnasium.vector", "numba", "hypothesis")
LOADED = (*LOADED, "omegaconf", "hydra", "rich.progress", "matplotlib.figure", "safetensors.numpy", "filelock")
CONCERNED = {  # tests of each file, or of the files of a folder
    "rcac/switch.py": ["tests/test_switch.py", "tests/deep/test_switching.py", "tests/deep/test_update.py"],
    "rcac/deep/steps": ["tests/deep/test_steps.py", "tests/deep/test_update.py"],
    "rcac/deep/trainer.py": ["tests/deep/test_update.py", "tests/deep/test_trainer.py", "tests/deep/test_adversary.py"],
    "rcac/tabular/rsqp.py": ["tests/tabular/test_solvers.py", "tests/tabular/test_solve.py"],
    "rcac/evaluation": ["tests/evaluation", "tests/tabular/test_solvers.py"],
    "rcac/runs/checkpoint.py": ["tests/runs/test_checkpoint.py", "tests/runs/test_loop.py"],
}


# Mutants


class Mutant(NamedTuple):
    file: str
    line: int
    before: str  # the statement, or the head of one
    after: str
    source: str  # the whole file
    lines: range  # of which a test must run one


SWAPPED: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
RENAMED = {"max": "min", "maximum": "minimum", "any": "all", "argmax": "argmin"}
RENAMED |= {new: old for old, new in RENAMED.items()}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    new: Any = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            new.ops = [SWAPPED[type(op)]()]
            yield new
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(new.op) in SWAPPED:
            new.op = SWAPPED[type(new.op)]()
            yield new
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield new.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not new.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(new.value + 1)
        case ast.Name(id=name) if name in RENAMED:
            yield ast.Name(RENAMED[name], new.ctx)
        case ast.Attribute(attr=name) if name in RENAMED:
            new.attr = RENAMED[name]
            yield new
        case ast.If() | ast.IfExp() | ast.While():
            new.test = ast.UnaryOp(ast.Not(), new.test)
            yield new
        case ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def mutants(file: str) -> Iterator[Mutant]:
    """All of a file; not of its annotations, nor of what it says in an error."""
    tree = ast.parse((ROOT / file).read_text())

    def walk(node: Any, statement: Any) -> Iterator[Mutant]:
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise | ast.JoinedStr):
                continue
            for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST):
                    continue
                inside = child if isinstance(child, ast.stmt) else statement
                for new in changes(child):
                    before = words(inside)
                    put(node, field, place, new)
                    source = ast.unparse(ast.fix_missing_locations(tree))
                    after = words(new if inside is child else inside)
                    put(node, field, place, child)
                    simple = not hasattr(inside, "body")
                    last = (inside if simple else child).end_lineno or inside.lineno
                    first = inside.lineno if simple else getattr(child, "lineno", inside.lineno)
                    yield Mutant(file, first, before, after, source, range(first, last + 1 if simple else first + 1))
                yield from walk(child, inside)

    yield from walk(tree, tree)


def put(node: Any, field: str, place: int | None, child: ast.AST) -> None:
    if place is None:
        setattr(node, field, child)
    else:
        getattr(node, field)[place] = child


def words(node: Any) -> str:
    """A statement in one line; of one that has others inside, its head."""
    if hasattr(node, "body"):
        node = copy.copy(node)
        node.body = [ast.Expr(ast.Constant(...))]
        for rest in ("orelse", "handlers", "finalbody", "decorator_list"):
            if hasattr(node, rest):
                setattr(node, rest, [])
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())


def files(concerned: str) -> list[str]:
    path = ROOT / concerned
    found = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return [str(each.relative_to(ROOT)) for each in found]


# Tests, in a process of their own


class Trace:
    """A plugin of pytest: which lines of some files each test runs, and how long it takes."""

    def __init__(self, paths: set[str]) -> None:
        self.paths = paths
        self.lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))  # by test and file
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Any:
        here, paths = self.lines[item.nodeid], self.paths

        def line(frame: Any, event: str, _: Any) -> Any:
            here[frame.f_code.co_filename].add(frame.f_lineno)
            return line

        def call(frame: Any, event: str, _: Any) -> Any:
            return line(frame, event, _) if frame.f_code.co_filename in paths else None

        started = time.process_time()
        sys.settrace(call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - started

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class Chosen:
    """A plugin of pytest: these tests alone, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.order = {name: place for place, name in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])


def run(tree: Path, tests: list[str], plugin: Any, seconds: float, log: Path) -> int:
    """pytest's exit code; −9 if it took longer (or thirty times as long by the clock: it may wait for ever)."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        os.environ["PYTHONPATH"] = str(tree)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = 99
        try:
            flags = ["-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", "-o", "timeout=0"]
            if isinstance(plugin, Trace):  # every test, but none that takes long
                flags = [*flags[1:-1], f"timeout={SLOW}"]
            code = int(pytest.main([*flags, *tests], [plugin]))
            if isinstance(plugin, Trace):
                lines = {name: {f: sorted(n) for f, n in found.items()} for name, found in plugin.lines.items()}
                found = {"lines": lines, "seconds": plugin.seconds, "failed": plugin.failed}
                (tree / "trace.json").write_text(json.dumps(found))
        finally:
            os._exit(code)
    end = time.monotonic() + 30 * seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what it started
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL


def copied(tree: Path) -> None:
    """The files of the working tree that Git knows, or would."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)


# All together


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=200, help="of mutants, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--only", default="", help="files whose names begin so")
    parser.add_argument("--show", action="store_true", help="print the sample, and run nothing")
    given = parser.parse_args()
    everything = [
        (mutant, tests)
        for concerned, tests in CONCERNED.items()
        for file in files(concerned)
        for mutant in mutants(file)
        if file.startswith(given.only)
    ]
    sample = random.Random(given.seed).sample(everything, min(given.count, len(everything)))
    sample.sort(key=lambda each: each[0][:4])
    print(f"{len(sample)} of {len(everything)} mutants, seed {given.seed}", flush=True)
    if given.show:
        for mutant, _ in sample:
            print(f"{mutant.file}:{mutant.line}: {mutant.before}  →  {mutant.after}")
        return 0
    for name in LOADED:
        importlib.import_module(name)
    os.environ.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder).resolve()
        copied(tree)
        return judge(tree, sample)


def judge(tree: Path, sample: list[tuple[Mutant, list[str]]]) -> int:
    here = sorted({name for _, tests in sample for name in tests if (tree / name).exists()})
    targets = {mutant.file for mutant, _ in sample}
    started = time.monotonic()
    run(tree, here, Trace({str(tree / file) for file in targets}), 3600, tree / "log")
    if not (tree / "trace.json").exists():
        sys.exit(f"the tests do not run:\n{(tree / 'log').read_text()[-3000:]}")
    trace = json.loads((tree / "trace.json").read_text())
    sane = trace["seconds"].keys() - set(trace["failed"])
    print(f"{len(sane)} tests in {time.monotonic() - started:.0f} s; left out: {trace['failed'] or 'none'}", flush=True)

    survivors = []
    for number, (mutant, concerned) in enumerate(sample, start=1):
        path = str(tree / mutant.file)
        possible = [name for name in sane if name.startswith(tuple(concerned)) and path in trace["lines"][name]]
        tests = [name for name in possible if {*mutant.lines} & {*trace["lines"][name][path]}]
        tests, seconds = affordable(tests or possible, trace["seconds"])  # else it is run by the import
        original = (tree / mutant.file).read_text()
        (tree / mutant.file).write_text(mutant.source)
        chosen = sorted({name.split("::")[0] for name in tests})
        code = run(tree, chosen, Chosen(tests), 60 + 3 * seconds, tree / "log") if tests else 0
        (tree / mutant.file).write_text(original)
        verdict = (
            "SURVIVED" if code == 0 else "took too long" if code in (-signal.SIGKILL, -signal.SIGXCPU) else "caught"
        )
        line = f"{mutant.file}:{mutant.line}: {mutant.before}  →  {mutant.after}"
        print(f"{number}/{len(sample)} {verdict} ({len(tests)} tests) {line}", flush=True)
        if code == 0:
            survivors.append(line)
    caught = 1 - len(survivors) / max(1, len(sample))
    print(f"\n{caught:.1%} of {len(sample)} caught; survivors:", *survivors, sep="\n")
    return 0 if caught >= SHARE else 1


def affordable(tests: list[str], seconds: dict[str, float]) -> tuple[list[str], float]:
    """The quickest of them, and how long they take in all."""
    chosen, total = [], 0.0
    for name in sorted(tests, key=seconds.__getitem__):
        if total + seconds[name] <= MOST or not chosen:
            chosen.append(name)
            total += seconds[name]
    return chosen, total


if __name__ == "__main__":
    sys.exit(main())
