"""Tuning of the actor-critics: as many settings, seeds and steps for every method, and one rule for the best setting."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from rcac import registry
from rcac.report import style
from rcac.report.tables import markdown
from reproduction.deep import BUDGET, PerturbationTest, TrainingSpec, mean_scores, train_and_test
from reproduction.section import PieceCache, Result

FIRST_SEED = 100  # tuning uses these seeds and above, which are never reported
RULE = (
    "chosen is the largest mean return among the settings whose mean cost is within the budget; returns that are equal "
    "as printed, to .1, count as ties, and go to the lower cost; if no setting is within the budget, the least cost"
)

EFFORT = {  # of tuning, the same in every section and for every method
    "quick": {"tuning_settings": 2, "tuning_seeds": 1, "tuning_steps": 10_000},
    "full": {"tuning_settings": 6, "tuning_seeds": 2, "tuning_steps": 500_000},
}

# Six settings for every method: three sizes of its step, two of what its switch goes by.
STEPS = {
    "gradient": ("algo.actor_lr", (3e-4, 1e-3, 3e-3)),
    "natural": ("algo.kl_radius", (0.005, 0.01, 0.02)),
    "sqp": ("algo.kl_radius", (0.005, 0.01, 0.02)),
}
SWITCHES = {
    "surrogate": ("algo.lam", (50.0, 500.0)),
    "soft_surrogate": ("algo.width", (0.2, 0.5)),
    "crpo": ("algo.tolerance", (0.0, 2.0)),
    "epigraph": ("algo.epigraph_phases", (4, 8)),
}
SLACK = ("algo.slack", (0.0, 2.0))  # with an sqp step, the switch only ranks


def grid(algo: str) -> list[tuple[str, ...]]:
    """The six settings of a method, as changes of its configuration."""
    row = registry.rows("algo")[algo]
    step, switch = STEPS[row["step"]], SLACK if row["step"] == "sqp" else SWITCHES[row["switch"]]
    return [(f"{step[0]}={a:g}", f"{switch[0]}={b:g}") for a, b in product(step[1], switch[1])]


def select_settings(algo: str, count: int) -> list[tuple[str, ...]]:
    """This many of a method's settings: all six, or for a quick look fewer, the first and the last among them."""
    settings = grid(algo)
    return [settings[k] for k in np.unique(np.linspace(0, len(settings) - 1, count).round().astype(int))]


def tune(
    env: str, algorithms: Sequence[str], settings: Mapping[str, Any], cache: PieceCache
) -> dict[str, dict[str, Any]]:
    """Every method's settings on seeds of their own, in the environment of training; the best setting of each."""
    tests, shorter = [PerturbationTest("training", 0.0, {})], {**settings, "steps": settings["tuning_steps"]}
    numbers = range(FIRST_SEED, FIRST_SEED + settings["tuning_seeds"])
    candidates = {algo: select_settings(algo, settings["tuning_settings"]) for algo in algorithms}
    groups = {
        (algo, changes): [TrainingSpec(env, algo, seed, changes) for seed in numbers]
        for algo in algorithms
        for changes in candidates[algo]
    }
    runs = train_and_test(groups, tests, shorter, cache)
    found = {}
    for algo in algorithms:
        tried = []
        for changes in candidates[algo]:
            value, cost = np.mean([mean_scores(run, "training", 0.0) for run in runs[algo, changes]], axis=0)
            tried.append({"changes": list(changes), "return": float(value), "cost": float(cost)})
        found[algo] = {"tried": tried, "best": tried[best_setting(tried)]["changes"]}
    return found


def best_setting(tried: Sequence[Mapping[str, Any]]) -> int:
    """The index that `RULE` says."""
    within = [k for k, t in enumerate(tried) if t["cost"] <= BUDGET]
    if within:
        return max(within, key=lambda k: (round(tried[k]["return"], 1), -tried[k]["cost"]))
    return min(range(len(tried)), key=lambda k: tried[k]["cost"])


def format_setting(changes: Sequence[str]) -> str:
    return ", ".join(change.removeprefix("algo.") for change in changes)


def tuning_table(result: Result) -> str:
    """What every setting gave, from a result with `tuned`, `tuning_seeds` and `tuning_steps`."""
    rows = []
    for algo, tuned in result["tuned"].items():
        for tried in tuned["tried"]:
            mark = "**" if tried["changes"] == tuned["best"] else ""
            words = format_setting(tried["changes"])
            rows.append(
                [style.look(algo).name, f"{mark}{words}{mark}", f"{tried['return']:.1f}", f"{tried['cost']:.1f}"]
            )
    count = max(len(tuned["tried"]) for tuned in result["tuned"].values())
    return (
        f"Tuning, the same for every method: {count} settings × {result['tuning_seeds']} seeds "
        f"(from {FIRST_SEED} on, others than those reported) × {result['tuning_steps']:,} steps, tested as trained. The rule, fixed "
        f"in the code: {RULE}. Bold: chosen.\n\n" + markdown(["method", "setting", "return", "cost"], rows, left=2)
    )
