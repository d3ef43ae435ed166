"""Settings of the actor's step on MuJoCo, tried on seeds of their own: where the `deep:` block of `conf/env/*_velocity.yaml`
comes from. One method stands for each kind of step; the others with that step share its setting.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac import registry
from rcac.report import style
from rcac.report.tables import markdown
from reproduction import deep, velocity
from reproduction.section import Claim, PieceCache, Result, Section, yes_no
from reproduction.tuning import format_setting

FIRST_SEED = 50  # never reported
SETTINGS: dict[str, list[tuple[str, ...]]] = {
    "rcac": [
        ("algo.actor_lr=0.001", "algo.actor_epochs=4", "algo.actor_batch=512"),
        ("algo.actor_lr=0.0003", "algo.actor_epochs=10", "algo.actor_batch=128"),
        ("algo.actor_lr=0.0003", "algo.actor_epochs=10", "algo.actor_batch=256"),
    ],
    "rcac_npg": [("algo.kl_radius=0.01",), ("algo.kl_radius=0.02",), ("algo.kl_radius=0.03",)],
    "rcac_sqp": [("algo.kl_radius=0.01",), ("algo.kl_radius=0.02",), ("algo.kl_radius=0.03",)],
}
RULE = (
    "a run counts its mean return if its mean cost, less two standard errors, is within the budget, else 0, and never less than 0; "
    "chosen is the setting with the largest sum over tasks of the mean over seeds, each task in units of its largest"
)


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    specs = [
        deep.TrainingSpec(task, algo, FIRST_SEED + k, changes)
        for k in range(settings["seeds"])
        for task in settings["tasks"]
        for algo in settings["algorithms"]
        for changes in SETTINGS[algo]
    ]
    pieces = {spec.label: partial(velocity.run, spec, settings, cache.folder) for spec in specs}
    runs = [{**run, "changes": list(spec.changes)} for spec, run in zip(specs, cache.compute_all(pieces), strict=True)]
    return {"runs": runs, **{key: settings[key] for key in ("tasks", "algorithms", "steps", "episodes")}}


def counted(run: dict[str, Any]) -> float:
    """What a run's return counts by the rule."""
    tests = run["stochastic"]
    return max(0.0, float(np.mean(tests["returns"]))) if velocity.within(tests["costs"]) else 0.0


def best_setting(tried: Sequence[Sequence[float]]) -> int:
    """The index that `RULE` says, of settings by tasks."""
    table = np.array(tried)
    return int(np.argmax((table / np.maximum(table.max(axis=0), 1e-12)).sum(axis=1)))


def score(result: Result, algo: str) -> list[list[float]]:
    """For each setting, task by task, the mean over seeds of what counts."""

    def mean(task: str, changes: tuple[str, ...]) -> float:
        runs = [run for run in velocity.of(result, task, algo) if tuple(run["changes"]) == changes]
        return float(np.mean([counted(run) for run in runs]))

    return [[mean(task, changes) for task in result["tasks"]] for changes in SETTINGS[algo]]


def tables(result: Result) -> str:
    rows = []
    for algo in result["algorithms"]:
        scores = score(result, algo)
        for k, changes in enumerate(SETTINGS[algo]):
            mark, cells = "**" if k == best_setting(scores) else "", []
            for task in result["tasks"]:
                runs = [run for run in velocity.of(result, task, algo) if tuple(run["changes"]) == changes]
                cells += ["; ".join(f"{r:.0f} at {c:.1f}" for r, c in velocity.means(runs))]
            counts = [f"{x:.0f}" for x in scores[k]]
            rows.append([style.look(algo).name, f"{mark}{format_setting(changes)}{mark}", *cells, *counts])
    names = [velocity.TASKS[task] for task in result["tasks"]]
    header = [
        "method",
        "setting",
        *(f"{name}: return at cost" for name in names),
        *(f"{name}: counts" for name in names),
    ]
    return (
        f"{result['steps']:,} steps for each training, seeds from {FIRST_SEED} on, {result['episodes']} test episodes for each policy. "
        f"The rule, fixed in the code: {RULE}. Bold: chosen.\n\n" + markdown(header, rows, left=2)
    )


def kept(algo: str, task: str) -> tuple[str, ...]:
    """The setting that a method has on a task by default, in the words of `SETTINGS`."""
    row = registry.rows("env")[task]["deep"]
    keys = [change.partition("=")[0].removeprefix("algo.") for change in SETTINGS[algo][0]]
    return tuple(f"algo.{key}={row[key]:g}" for key in keys)


def claims(result: Result) -> list[Claim]:
    chosen = {algo: SETTINGS[algo][best_setting(score(result, algo))] for algo in result["algorithms"]}
    agree = {algo: all(kept(algo, task) == found for task in velocity.TASKS) for algo, found in chosen.items()}
    text = "; ".join(f"{style.look(a).name} {format_setting(x)}, kept: {yes_no(agree[a])}" for a, x in chosen.items())
    verdict = "holds" if all(agree.values()) else "holds in part" if any(agree.values()) else "does not hold here"
    return [
        Claim("the settings in conf/env/*_velocity.yaml are those that were best on seeds of their own", verdict, text)
    ]


def figures(result: Result) -> dict[str, Figure]:
    return {}


_SIZE = {"tasks": ["hopper_velocity", "half_cheetah_velocity"], "algorithms": list(SETTINGS), "changes": []}
SECTION = Section(
    "velocity_tuning",
    "Settings of the step on MuJoCo",
    "Where the settings of the velocity tasks come from: two or three of the actor's step for every kind of step, on Hopper and HalfCheetah.",
    "deep",
    {
        "quick": {
            **_SIZE,
            "tasks": ["hopper_velocity"],
            "algorithms": ["rcac_sqp"],
            "seeds": 1,
            "steps": 50_000,
            "episodes": 5,
        },
        "full": {**_SIZE, "seeds": 2, "steps": 300_000, "episodes": 20},
    },
    compute,
    tables,
    figures,
    claims,
    ("seeds", "tasks", "algorithms"),
)
