"""Many runs under many conditions: which runs there are, which belong together, and their scores.

Runs are grouped by environment, and by algorithm and what differs in its settings; the seeds are a group's members.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from rcac.config import compose as configuration
from rcac.errors import InputError
from rcac.policies import perturbations
from rcac.policies.episodes import check_spaces
from rcac.policies.perturbations import Condition
from rcac.policies.policy import load_policy
from rcac.policies.scores import EvaluationSettings, TermScore, score
from rcac.policies.unchanged import check_unchanged, flat
from rcac.report import style
from rcac.runs import modules
from rcac.runs.build import make_uncertainty
from rcac.runs.config import Config
from rcac.runs.environments import close, env_label, open_env
from rcac.runs.folder import POLICY, RunFolder

Composed = dict[str, Config]  # what was composed before: most runs of a folder share their environment
INCIDENTAL = ("device", "threads")  # settings of the machine
MARKS = ("versions.json", POLICY)  # of a run's folder


class Run(NamedTuple):
    folder: Path
    name: str  # of the folder, as seen from the one that was given
    config: Config  # environment and set, as changed for the evaluation
    trained: dict[str, Any]  # the settings of the algorithm, and of its set
    seed: int
    env: str = ""
    algo: str = ""
    setting: str = ""  # what differs from other runs of the same algorithm


class RunScores(NamedTuple):
    run: Run
    condition: Condition
    rows: list[TermScore]


# Finding runs


def find(root: Path, changes: Sequence[str], trust: bool = False) -> list[Run]:
    """The run in `root`, or all finished ones below it. Those that are left out are named on stderr.

    Modules that their configurations name are imported as `rcac.runs.modules` says; with `trust`, now and later."""
    composed: Composed = {}
    named = [change for change in changes if change.startswith("env.id=")]
    if is_run(root):
        RunFolder.open(root)
        return labelled([_read(root, root, changes, composed, trust)])
    runs = []
    for folder in sorted(Path(path) for path, _, names in os.walk(root) if {*names} & {*MARKS}):
        try:
            _check_finished(folder)
            run = _read(folder, root, named, composed, trust)
            close(open_env(run.config.env).env)
        except InputError as error:
            _warn(f"left out: {folder.relative_to(root)}: {error}")
            continue
        runs.append(_read(folder, root, changes, composed, trust) if changes else run)
    if not runs:
        raise InputError(f"run: {str(root)!r} given, the folder of a run or one above finished runs expected")
    return _distinct(labelled(runs))


def is_run(folder: Path) -> bool:
    return any((folder / name).is_file() for name in MARKS)


def _check_finished(folder: Path) -> None:
    if not (folder / POLICY).is_file():
        raise InputError("not finished, it has no policy yet")
    if (folder / "summary.json").is_file():
        ending = RunFolder(folder).read_json("summary.json").get("run")
        if isinstance(ending, dict) and ending.get("finished") is False:
            raise InputError(f"not finished, it was stopped at {ending.get('position')}")


def _read(folder: Path, root: Path, changes: Sequence[str], composed: Composed, trust: bool) -> Run:
    saved = configuration.load(folder)
    load_policy(folder)
    check_unchanged(folder, saved)
    if trust:
        modules.trust(saved["env"].get("id"), folder)
    elif not any(change.startswith("env.id=") for change in changes):
        modules.admit(saved["env"].get("id"), folder)
    groups = {key: saved.get(key) for key in ("env", "uncertainty")}
    key = repr((groups, changes))
    config = composed[key] if key in composed else composed.setdefault(key, configuration.compose(changes, groups))
    trained = {**flat(saved["algo"]), **flat({"uncertainty": saved.get("uncertainty")})}
    trained = {key: value for key, value in trained.items() if key not in INCIDENTAL}
    seed = saved.get("seed")
    name = folder.name if folder == root else folder.relative_to(root).as_posix()
    return Run(folder, name, config, trained, seed if isinstance(seed, int) else -1)


def labelled(runs: Iterable[Run]) -> list[Run]:
    """Runs with the names of their groups, in the order of the methods' looks."""
    found: list[Run] = []
    for env, same_env in _by(runs, lambda run: env_label(run.config.env)).items():
        for words, here in _differences(same_env, lambda run: flat(vars(run.config.env))):
            place = f"{env} {words}".strip()
            for algo, same in _by(here, lambda run: str(run.trained["name"])).items():
                for setting, members in _differences(same, lambda run: run.trained):
                    found += [run._replace(env=place, algo=algo, setting=setting) for run in members]
    order = list(style.LOOKS)
    return sorted(
        found, key=lambda r: (r.env, order.index(r.algo) if r.algo in order else 99, r.algo, r.setting, r.seed)
    )


def _distinct(runs: list[Run]) -> list[Run]:
    """The same settings and seed are the same run: the latest counts, and no seed twice."""
    kept: dict[tuple, Run] = {}
    for run in runs:
        key = (run.env, run.algo, run.setting, run.seed)
        if key in kept:
            first, second = sorted([kept[key], run], key=lambda r: r.folder.name)
            _warn(f"left out: {first.name}: the same settings and seed as {second.name}")
            run = second
        kept[key] = run
    return list(kept.values())


def _by(runs: Iterable[Run], key: Callable[[Run], str]) -> dict[str, list[Run]]:
    ordered = sorted(runs, key=key)
    return {name: list(members) for name, members in groupby(ordered, key)}


def _differences(runs: Sequence[Run], flat: Callable[[Run], dict[str, Any]]) -> list[tuple[str, list[Run]]]:
    """Runs of equal settings, each group named by those that not all runs share: `lam=50, slack=0.0`."""
    settings = [flat(run) for run in runs]
    keys = dict.fromkeys(key for own in settings for key in own)
    differing = [key for key in keys if any(s.get(key) != settings[0].get(key) for s in settings)]
    words = [", ".join(f"{key.split('.')[-1]}={s.get(key)}" for key in differing) for s in settings]
    return [(w, [r for r, own in zip(runs, words, strict=True) if own == w]) for w in dict.fromkeys(words)]


# Scoring


def plan(runs: Sequence[Run], sweeps: Mapping[str, list[float]]) -> list[tuple[Run, Condition]]:
    """What is to be scored, all of it checked: better now than after hours."""
    shared: dict[str, list[Condition]] = {}  # by environment and set
    able: dict[str, set[str]] = {}
    for run in runs:
        if (where := _where(run)) not in shared:
            known = perturbations.known(run.config) if sweeps else {}
            able[where] = set(known)
            shared[where] = [known[name](x) for name in sweeps if name in known for x in sweeps[name]]
            if not sweeps:
                shared[where] = [perturbations.unperturbed(run.config)]
            for condition in shared[where]:
                _check(run, condition)
    for name in sweeps:
        without = [where for where, names in able.items() if name not in names]
        if len(without) == len(able):
            names = ", ".join(sorted(set().union(*able.values())))
            raise InputError(f"sweep.{name}: no such perturbation of {', '.join(able)}; known are {names}")
        for where in without:
            _warn(f"left out: sweep.{name}: there is none of {where}")
    return [(run, condition) for run in runs for condition in shared[_where(run)]]


def _where(run: Run) -> str:
    return f"{run.env} {perturbations.set_words(run.config.uncertainty)}".strip()


def _check(run: Run, condition: Condition) -> None:
    try:
        single, problem, _ = open_env(condition.config.env)
        try:
            check_spaces(load_policy(run.folder), single.observation_space, single.action_space)
            if condition.wrap is not None:
                condition.wrap(single)
        finally:
            close(single)
        if problem is not None and condition.config.uncertainty is not None:
            make_uncertainty(problem, condition.config.uncertainty)
    except InputError as error:
        if condition.strength is None:
            raise
        given = f"sweep.{condition.perturbation}: {condition.strength:g} given for {_where(run)}"
        raise InputError(f"{given}: {error}") from error


def measure(run: Run, condition: Condition, settings: EvaluationSettings) -> RunScores:
    policy = load_policy(run.folder, settings.deterministic, settings.seed)
    return RunScores(run, condition, score(condition, policy, settings))


def _warn(line: str) -> None:
    print(" ".join(line.split()), file=sys.stderr)
