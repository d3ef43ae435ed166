"""The paper's claims about RNPG on sets that it leaves to future work: total variation, χ², Wasserstein, and s-rectangular ones."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac.problem import RCMDP
from rcac.report import style
from rcac.report.tables import markdown
from rcac.uncertainty import ChiSquare, StateL1, StateL2, TotalVariation, Uncertainty, Wasserstein
from rcac.uncertainty.named import steps_between
from reproduction import forms
from reproduction.section import Claim, PieceCache, Result, Section, verdict, yes_no
from reproduction.tabular import METHODS, display_bounds, load_problem, rank_key, run_grid

OTHER_SETS = {
    "total_variation": "total variation .01",
    "chi_square": "χ² .01",
    "wasserstein": "Wasserstein .01",
    "state_l1": "s-rectangular L1 .02",
    "state_l2": "s-rectangular L2 .02",
}
OURS = "rsqp"
RIVALS = ["rppg", "epirc_pgs", "robust_crpo"]
LEVEL = 1e-3  # relative: rewards this close are level


def make(name: str, model: RCMDP) -> Uncertainty:
    return {
        "total_variation": lambda: TotalVariation(0.01),
        "chi_square": lambda: ChiSquare(0.01),
        "wasserstein": lambda: Wasserstein(0.01, steps_between(model)),
        "state_l1": lambda: StateL1(0.02),
        "state_l2": lambda: StateL2(0.02),
    }[name]()


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    model = load_problem("river_swim", initial="uniform")
    sets: list[dict[str, Any]] = []
    for kind in OTHER_SETS:
        uncertain, runs = make(kind, model), []
        for method in forms.changed(form, METHODS):
            tuned = method != OURS and form != "paper"
            sizes = [{"step_size": size} for size in settings["step_sizes"]] if tuned else [{}]
            given = forms.options(form, method, "river_swim") | {"iterations": settings["iterations"]}
            rows, name = [given | row for row in sizes], forms.label(form, f"{kind}-{method}")
            runs.append(max(cache(name, run_grid, model, method, uncertain, rows), key=rank_key))
        runs = forms.merged(ours["sets"][len(sets)]["runs"], runs, "method") if ours else runs
        sets.append({"set": kind, "runs": runs, **display_bounds(model, uncertain)})
    return {"sets": sets, "iterations": settings["iterations"]}


def tables(result: Result) -> str:
    rows = []
    for group in result["sets"]:
        for run in group["runs"]:
            size = run["options"].get("step_size")
            rows.append(
                [
                    OTHER_SETS[group["set"]],
                    style.look(run["method"]).name,
                    "its own" if size is None else f"{size:g}",
                    f"{run['objective']:.2f}",
                    f"{run['constraint']:.3f}",
                    yes_no(run["feasible"]),
                    f"{run['at']:,}",
                    f"{group['best']:.2f}",
                ]
            )
    header = ["set", "method", "step size", "reward", "cost (≤ 42)", "feasible", "evaluations until then", "bound"]
    return markdown(header, rows, left=2)


def figures(result: Result) -> dict[str, Figure]:
    shown = style.figure(7.4, 3.4)
    axes = style.panel(shown.subplots(), "", "worst-case reward of the best feasible policy", "")
    groups = result["sets"]
    for place, method in zip(np.linspace(-0.3, 0.3, len(METHODS)), METHODS, strict=True):
        own = style.look(method)
        for row, group in enumerate(groups):
            [run] = [run for run in group["runs"] if run["method"] == method]
            filled: Any = {} if run["feasible"] else {"markerfacecolor": "none"}
            axes.plot(run["objective"], row + place, own.marker, color=own.colour, markersize=5, **filled)
    for row, group in enumerate(groups):
        axes.plot([group["best"]] * 2, [row - 0.4, row + 0.4], color=style.BOUND, linewidth=1)
    axes.set_yticks(range(len(groups)), [OTHER_SETS[group["set"]] for group in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    style.legend(shown, METHODS, markers=True, lines=False)
    style.note(shown, "Vertical lines: no policy earns more. Hollow: over the budget.")
    return {"other_sets": shown}


def claims(result: Result) -> list[Claim]:
    found = [(OTHER_SETS[group["set"]], {run["method"]: run for run in group["runs"]}) for group in result["sets"]]
    met = [runs["rnpg"]["feasible"] for _, runs in found]
    costs = "; ".join(f"{name}: cost {runs['rnpg']['constraint']:.2f}" for name, runs in found)
    ahead = [all(_ahead(runs["rnpg"], runs[rival]) for rival in RIVALS) for _, runs in found]
    best = [all(_ahead(runs[OURS], run) for run in runs.values()) for _, runs in found]
    rewards = "; ".join(
        f"{name}: "
        + ", ".join(
            f"{style.look(method).name} {run['objective']:.2f}" + ("" if run["feasible"] else " (infeasible)")
            for method, run in runs.items()
        )
        for name, runs in found
    )
    return [
        Claim("RNPG ends within the budget on these sets too", verdict(all(met), any(met)), costs),
        Claim(
            "RNPG earns as much as RPPG, EPIRC-PGS and robust CRPO, or more, on these sets too",
            verdict(all(ahead), any(ahead)),
            rewards,
        ),
        Claim("(Ours) RSQP earns as much as every other method, or more", verdict(all(best), any(best)), rewards),
    ]


def _ahead(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Feasible, and level with the other or better, or the other is not feasible."""
    level = LEVEL * max(1.0, abs(other["objective"]))
    return one["feasible"] and (not other["feasible"] or one["objective"] >= other["objective"] - level)


def _answers(result: Result) -> forms.Answers:
    return {
        (OTHER_SETS[group["set"]], style.look(run["method"]).name): forms.pair(
            (run["objective"], run["constraint"]), run["feasible"]
        )
        for group in result["sets"]
        for run in group["runs"]
    }


SECTION = forms.in_forms(
    Section(
        "other_sets",
        "Other uncertainty sets",
        "River-swim from a uniform start, γ .99. Each method with the best of the step sizes tried, RSQP with its own; what counts is the "
        f"best feasible policy that a run met, and rewards within {LEVEL:.1%} of each other are level.",
        "tabular",
        {
            "quick": {"iterations": 100, "step_sizes": [0.1, 1.0]},
            "full": {"iterations": 1000, "step_sizes": [0.01, 0.1, 1.0, 10.0, 100.0]},
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["set", "method"],
    _answers,
)
