"""Seconds: RNPG against EPIRC-PGS and the others, for equal updates and to within 1 % of the best value found.

One process, one thread; the methods take turns, so that whatever else the machine does meets all of them; medians.
Bounds, which every method computes alike, are not counted.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from rcac.problem import RCMDP
from rcac.registry import algorithm
from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import INK
from rcac.tabular.settings import TabularSettings
from rcac.tabular.solve import make_solvers, solve
from rcac.uncertainty.base import Uncertainty
from reproduction import forms
from reproduction.section import Claim, PieceCache, Result, Section, verdict
from reproduction.tabular import METHODS, PROBLEMS, STEP_SIZES, kl_penalty, load_problem

TOLERANCE = 0.01  # of the best value
PRINTED = {  # seconds: RNPG's one column, EPIRC-PGS's at γ .9, .99, .995
    "river_swim": (48.574, {"0.9": 190.53, "0.99": 228.65, "0.995": 290.15}),
    "garnet": (78.406, {"0.9": 290.21, "0.99": 316.23, "0.995": 453.14}),
    "frozen_lake": (160.31, {"0.9": 453.7, "0.99": 561.47, "0.995": 620.12}),
    "garbage_collector": (177.13, {"0.9": 344.87, "0.99": 400.13, "0.995": 489.54}),
}
RPPG = 1.6  # RPPG's time over RNPG's on river-swim, as printed
SIMILAR = 1.5  # within this factor, times are comparable
CLAIMED = {"river_swim": "4–6", "garnet": "3–5", "frozen_lake": "3–4", "garbage_collector": "2–3"}
FINE_STEP_SIZES = [float(a) for a in np.geomspace(STEP_SIZES[0], STEP_SIZES[-1], 12)]
GRIDS: dict[str, list[dict[str, float]]] = {  # twelve settings each
    "rnpg": [{"lam": lam, "step_size": a} for lam in (50.0, 500.0) for a in STEP_SIZES],
    "rppg": [{"lam": lam, "step_size": a} for lam in (50.0, 500.0) for a in STEP_SIZES],
    "epirc_pgs": [{"levels": k, "step_size": a} for k in (5, 10) for a in STEP_SIZES],
    "robust_crpo": [{"step_size": a} for a in FINE_STEP_SIZES],
    "rsqp": [{}],
}


class TimedRun(NamedTuple):
    seconds: np.ndarray  # (T,) since the start, after each evaluation
    returns: np.ndarray  # (T, N+1)


def timed_run(model: RCMDP, method: str, uncertainty: Uncertainty, goal: float | None, **options: Any) -> TimedRun:
    """Run, with a clock; only until a feasible policy has J_0 ≤ `goal` if there is one."""
    settings = replace(algorithm(method, TabularSettings), **options)
    [solver] = make_solvers(model, uncertainty, settings, seed=0)
    seconds: list[float] = []
    began = time.perf_counter()
    while not solver.finished:
        solver.step()
        seconds.append(time.perf_counter() - began)
        if (
            goal is not None
            and first_reaching(np.array(solver.history["returns"][-1:]), model.budgets, goal) is not None
        ):
            break
    return TimedRun(np.array(seconds), np.array(solver.history["returns"]))


def first_reaching(returns: np.ndarray, budgets: np.ndarray, goal: float) -> int | None:
    """Index of the first feasible row of (T, N+1) with J_0 ≤ goal."""
    reaches = (returns[:, 0] <= goal) & (returns[:, 1:] <= budgets).all(axis=1)
    return int(np.argmax(reaches)) if reaches.any() else None


def _cell(problem: str, discount: float, settings: dict[str, Any], form: str, best: float | None) -> dict[str, Any]:
    """Times of the methods; in another form than ours those of the paper's three, near the `best` of ours."""
    model, work = load_problem(problem, discount), settings["iterations"]
    uncertainty = forms.in_form(form, kl_penalty(problem))
    given = {m: forms.options(form, m, problem) if m in forms.FORMS[form].methods else {} for m in METHODS}
    timed = METHODS if form == forms.OURS else list(forms.FORMS["paper"].methods)
    tuning: dict[str, list[tuple[dict[str, Any], np.ndarray]]] = {}
    for method in timed:
        grid = [{}] if form == "paper" else GRIDS[method][:: settings["stride"]]
        rows = [given[method] | row | {"iterations": work} for row in grid]
        tuning[method] = [(row, solve(model, method, uncertainty, **row).history["returns"]) for row in rows]
    if best is None:
        best = max(-first_best(returns, model.budgets) for tried in tuning.values() for _, returns in tried)
    goal = -best + TOLERANCE * abs(best)  # cost form
    chosen = {method: _fastest(tried, model.budgets, goal) for method, tried in tuning.items()}
    updates: dict[str, list[float]] = {method: [] for method in timed}
    near: dict[str, list[float]] = {method: [] for method in timed}
    for _ in range(settings["repetitions"]):
        for method in timed:
            own = given[method] | {"iterations": work}
            updates[method].append(float(timed_run(model, method, uncertainty, None, **own).seconds[-1]))
            if (row := chosen[method]) is not None:
                near[method].append(float(timed_run(model, method, uncertainty, goal, **row[0]).seconds[-1]))
    return {
        "problem": problem,
        "discount": discount,
        "best": best,
        "methods": {
            method: {
                "updates": median(updates[method]),
                "near": median(near[method]) if near[method] else None,
                "evaluations": row[1] if (row := chosen[method]) is not None else None,
                "setting": row[0] if row is not None else None,
            }
            for method in timed
        },
    }


def first_best(returns: np.ndarray, budgets: np.ndarray) -> float:
    """The least J_0 of a feasible row of (T, N+1)."""
    feasible = (returns[:, 1:] <= budgets).all(axis=1)
    return float(np.min(returns[feasible, 0], initial=np.inf))


def _fastest(tried: list[Any], budgets: np.ndarray, goal: float) -> tuple[dict[str, Any], int] | None:
    """The setting that gets near in the fewest evaluations, and how many; None if none does."""
    reached = [(first_reaching(returns, budgets, goal), row) for row, returns in tried]
    near = [(at + 1, row) for at, row in reached if at is not None]
    if not near:
        return None
    count, row = min(near, key=lambda pair: pair[0])
    return row, count


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    cells: list[dict[str, Any]] = []
    for problem in settings["problems"]:
        for discount in settings["discounts"]:
            own: dict[str, Any] = ours["cells"][len(cells)] if ours else {"best": None, "methods": {}}
            name = forms.label(form, f"{problem}, γ {discount:g}")
            cell = cache(name, _cell, problem, discount, settings, form, own["best"])
            cells.append(cell | {"methods": own["methods"] | cell["methods"]})
    return {"cells": cells, "iterations": settings["iterations"], "repetitions": settings["repetitions"]}


def ratio(cell: dict[str, Any], measure: str, rival: str = "epirc_pgs") -> float | None:
    """How many times longer the rival takes than RNPG; None if one of them does not get there."""
    ours, theirs = (cell["methods"][method][measure] for method in ("rnpg", rival))
    return None if ours is None or theirs is None else theirs / ours


def printed(problem: str, discount: float) -> float:
    own, theirs = PRINTED[problem]
    return theirs[f"{discount:g}"] / own


def tables(result: Result) -> str:
    def times(measure: str, scale: float, digits: int) -> list[list[str]]:
        rows = []
        for cell in result["cells"]:
            values = [cell["methods"][method][measure] for method in METHODS]
            cells = ["not reached" if v is None else f"{scale * v:.{digits}f}" for v in values]
            quotient = ratio(cell, measure)
            ratio_text = "–" if quotient is None else f"**{quotient:.2f}**"
            rows.append(
                [
                    PROBLEMS[cell["problem"]],
                    f"{cell['discount']:g}",
                    *cells,
                    ratio_text,
                    f"{printed(cell['problem'], cell['discount']):.1f}",
                ]
            )
        return rows

    header = ["problem", "γ", *(style.look(m).name for m in METHODS), "EPIRC-PGS / RNPG", "the paper's"]
    counts = [
        [PROBLEMS[c["problem"]], f"{c['discount']:g}", *(str(c["methods"][m]["evaluations"] or "–") for m in METHODS)]
        for c in result["cells"]
    ]
    return (
        f"Milliseconds for {result['iterations']} updates at the default settings (RSQP: until it stops), median of "
        f"{result['repetitions']}.\n\n"
        + markdown(header, times("updates", 1e3, 0), left=2)
        + "\n\nMilliseconds to a feasible policy within 1 % of the best value found, each method at the fastest of its "
        "tuned settings.\n\n"
        + markdown(header, times("near", 1e3, 1), left=2)
        + "\n\nRobust evaluations until then.\n\n"
        + markdown(header[:-2], counts, left=2)
        + f"\n\nThe rules behind the verdicts stand in the code: *as fast as* asks for nine tenths of the printed ratio for "
        "equal updates at every γ, in part at some γ or to within 1 % of the best value; *about as long* for ratios within a "
        f"factor of {SIMILAR:g} for equal updates, in part in half of the problems and discounts."
    )


MEASURES = {  # words, marker, colour
    "updates": ("equal updates", "o", "#0072B2"),
    "near": ("to within 1 % of the best", "D", "#009E73"),
}


def figures(result: Result) -> dict[str, Figure]:
    problems = list(dict.fromkeys(cell["problem"] for cell in result["cells"]))
    fig = style.figure(2.3 * len(problems) + 0.8, 2.7)
    panels = fig.subplots(1, len(problems), sharex=True, sharey=True, squeeze=False)[0]
    for axes, problem in zip(panels, problems, strict=True):
        cells = [cell for cell in result["cells"] if cell["problem"] == problem]
        style.panel(axes, PROBLEMS[problem], "time of EPIRC-PGS / time of RNPG")
        places = np.arange(len(cells))[::-1]
        claimed = [printed(problem, cell["discount"]) for cell in cells]
        axes.scatter(claimed, places, marker="|", s=170, linewidths=2, color=style.BOUND, label="the paper's")
        for measure, (words, marker, colour) in MEASURES.items():
            known = [(r, y) for cell, y in zip(cells, places, strict=True) if (r := ratio(cell, measure)) is not None]
            values, heights = zip(*known, strict=True) if known else ((), ())
            axes.scatter(values, heights, marker=marker, s=42, color=colour, edgecolor="white", label=words, zorder=3)
        for cell, place in zip(cells, places, strict=True):
            if missing := _not_reached(cell):
                small: Any = dict(fontsize=6.5, color=MEASURES["near"][2], va="center", path_effects=[style.HALO])
                axes.text(0.012, place, f"not near: {missing}", **small)
        axes.axvline(1, color=INK, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_yticks(places, [f"γ = {cell['discount']:g}" for cell in cells])
        axes.set_ylim(-0.6, len(cells) - 0.4)
        axes.set_xlim(0.01, 30)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=8.5, labelcolor=INK)
    note = "Right of 1: RNPG is faster. Medians."
    if any(_not_reached(cell) for cell in result["cells"]):
        note += (
            " Not near: at none of its settings does the method get within 1 % of the best value, so there is no ratio."
        )
    style.note(fig, note)
    return {"wall_clock": fig}


def _not_reached(cell: dict[str, Any]) -> str:
    """Which of RNPG and EPIRC-PGS never gets near the best value."""
    return ", ".join(style.look(m).name for m in ("rnpg", "epirc_pgs") if cell["methods"][m]["near"] is None)


def claims(result: Result) -> list[Claim]:
    found = []
    for problem in dict.fromkeys(cell["problem"] for cell in result["cells"]):
        cells = [cell for cell in result["cells"] if cell["problem"] == problem]
        asked = [0.9 * printed(problem, cell["discount"]) for cell in cells]
        updates = [ratio(cell, "updates") or 0.0 for cell in cells]
        near = [ratio(cell, "near") for cell in cells]
        met = [u >= a for u, a in zip(updates, asked, strict=True)]
        met_near = [n is not None and n >= a for n, a in zip(near, asked, strict=True)]
        near_text = _join(near)
        discounts = ", ".join(f"{cell['discount']:g}" for cell in cells)
        found.append(
            Claim(
                f"RNPG is {CLAIMED[problem]} times as fast as EPIRC-PGS on {PROBLEMS[problem]}",
                verdict(all(met), any(met) or any(met_near)),
                f"at γ {discounts}: {', '.join(f'{u:.1f}' for u in updates)} times for equal updates, and {near_text} times "
                "to within 1 % of the best value (–: RNPG or EPIRC-PGS does not get there)",
            )
        )
    river = [cell for cell in result["cells"] if cell["problem"] == "river_swim"]
    others = [cell for cell in result["cells"] if cell["problem"] != "river_swim"]
    found += [_faster_than_rppg(river)] if river else []
    return found + ([_similar_to_rppg(others)] if others else [])


def _faster_than_rppg(cells: list[dict[str, Any]]) -> Claim:
    """As with EPIRC-PGS: at least nine tenths of the paper's ratio for equal updates; in part at some γ, or near."""
    updates, near = ([ratio(cell, measure, "rppg") for cell in cells] for measure in ("updates", "near"))
    met, met_near = ([r is not None and r >= 0.9 * RPPG for r in ratios] for ratios in (updates, near))
    discounts = ", ".join(f"{cell['discount']:g}" for cell in cells)
    return Claim(
        f"RNPG is about {RPPG:g} times as fast as RPPG on river-swim",
        verdict(all(met), any(met) or any(met_near)),
        f"at γ {discounts}: {_join(updates)} times for equal updates, and "
        f"{_join(near)} times to within 1 % of the best value (–: RNPG or RPPG does not get there)",
    )


def _similar_to_rppg(cells: list[dict[str, Any]]) -> Claim:
    """Neither takes more than `ALIKE` times as long as the other for equal updates; in part if so in half of the cells."""
    ratios = [ratio(cell, "updates", "rppg") or 0.0 for cell in cells]
    alike = [1 / SIMILAR <= r <= SIMILAR for r in ratios]
    problems = list(dict.fromkeys(cell["problem"] for cell in cells))
    evidence = "; ".join(
        f"{PROBLEMS[problem]} {_join([r for r, cell in zip(ratios, cells, strict=True) if cell['problem'] == problem])}"
        for problem in problems
    )
    return Claim(
        "RNPG and RPPG take about as long on the other problems",
        verdict(all(alike), 2 * sum(alike) >= len(alike)),
        f"RPPG's time for equal updates over RNPG's: {evidence}; within a factor of {SIMILAR:g} in {sum(alike)} of {len(alike)}",
    )


def _join(ratios: Sequence[float | None]) -> str:
    return ", ".join("–" if r is None else f"{r:.2g}" for r in ratios)


def _answers(result: Result) -> forms.Answers:
    """Milliseconds for equal updates, and robust evaluations to within 1 % of the best."""
    return {
        (PROBLEMS[cell["problem"]], f"{cell['discount']:g}", style.look(method).name): (
            f"{1e3 * run['updates']:.0f}, {run['evaluations'] or '–'}"
        )
        for cell in result["cells"]
        for method, run in cell["methods"].items()
    }


SECTION = forms.in_forms(
    Section(
        "wall_clock",
        "Wall-clock time",
        "The paper's KL penalty; the budgets scaled with γ, as a budget for γ .99 means nothing at .9. EPIRC-PGS bisects "
        "over ten levels with as many updates in all as the others make. Single thread, methods in turns, medians.",
        "tabular",
        {
            "quick": {
                "problems": ["river_swim", "frozen_lake"],
                "discounts": [0.9, 0.99],
                "iterations": 200,
                "repetitions": 3,
                "stride": 4,
            },
            "full": {
                "problems": list(PROBLEMS),
                "discounts": [0.9, 0.99, 0.995],
                "iterations": 1000,
                "repetitions": 7,
                "stride": 1,
            },
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["problem", "γ", "method"],
    _answers,
)
