"""What methods make of an evaluator with an error. The paper argues against EPIRC-PGS that a binary search fails under one.

Two kinds (see `rcac.evaluation.inexact`): errors of a given size in every J and Q, and the paper's own sampled evaluator. A policy
is chosen by the values with errors, as a user would have to, and judged by exact ones:

    shortfall = (V_0 − V)₊/|V_0| + (cost − budget)₊/|budget|      V_0: what the same method, without errors, earns
"""

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from rcac.report import style
from rcac.report.tables import markdown
from rcac.tabular.solve import solve
from rcac.uncertainty.kl import KLPenalty
from reproduction import forms
from reproduction.section import CONFIDENCE, Claim, PieceCache, Result, Section, at_most, decide
from reproduction.tabular import PROBLEMS, kl_penalty, load_problem, signs

METHODS = ["epirc_pgs", "rnpg", "rsqp"]
FAILS = 0.05  # shortfall beyond which a method fails
RULE = (
    f"a method fails at an error if the whole {CONFIDENCE:.0%} interval (Student's t, over seeds) of its mean shortfall is above {FAILS:.0%}, "
    "works if it is at or below, and is undecided if the interval crosses; the claim counts the errors at which EPIRC-PGS fails or is undecided, "
    "and holds if EPIRC-PGS fails and RNPG works at each (fixed before the first full run)"
)


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    errors = [{"noise": size} for size in settings["noise"]] + [{"samples": count} for count in settings["samples"]]
    cells = []
    for problem in settings["problems"]:
        for method in forms.changed(form, METHODS):
            work = settings["iterations"]
            exact = cache(forms.label(form, f"{problem}, {method}"), _answer, problem, method, form, {}, 0, work)
            for error in errors:
                [(kind, size)] = error.items()
                name = forms.label(form, f"{problem}, {method}, {kind} {size:g}")
                one = partial(_answer, problem, method, form, error, iterations=work)
                found = cache(name, _each, one, settings["seeds"])
                cells.append({"problem": problem, "method": method, "error": error, "exact": exact, "runs": found})
    if ours:
        merged = {_key(cell): cell for cell in cells}
        cells = [merged.get(_key(cell), cell) for cell in ours["cells"]]
    return {"cells": cells, "iterations": settings["iterations"], "seeds": settings["seeds"]}


def _key(cell: dict[str, Any]) -> tuple[str, str, str]:
    return PROBLEMS[cell["problem"]], _words(cell["error"]), style.look(cell["method"]).name


def _words(error: dict[str, float]) -> str:
    return f"{100 * error['noise']:g} %" if "noise" in error else f"τ = {error['samples']:,}"


def _each(answer: Any, seeds: int) -> list[dict[str, Any]]:
    return [answer(seed) for seed in range(seeds)]


def _answer(problem: str, method: str, form: str, error: dict[str, Any], seed: int, iterations: int) -> dict[str, Any]:
    """The policy handed out, by exact values, in the user's signs."""
    model, uncertainty = load_problem(problem), forms.in_form(form, kl_penalty(problem))
    if "samples" in error:
        uncertainty = KLPenalty(kl_penalty(problem).temperature, "linear")  # what they are for
    given = forms.options(form, method, problem) | {"iterations": iterations} | error
    found = solve(model, method, uncertainty, seed, **given)
    sign, other = signs(model)
    return {
        "objective": sign * float(found.returns[0]),
        "constraint": other * float(found.returns[1]),
        "excess": max(0.0, float(found.returns[1] - model.budgets[0])) / abs(float(model.budgets[0])),
    }


def shortfalls(cell: dict[str, Any]) -> list[float]:
    best = cell["exact"]["objective"]
    return [max(0.0, best - run["objective"]) / abs(best) + run["excess"] for run in cell["runs"]]


def interval(values: list[float]) -> tuple[float, float]:
    """Of the mean, by Student's t; NaN for one value."""
    if len(values) < 2:
        return np.nan, np.nan
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def works(cell: dict[str, Any]) -> bool | None:
    return at_most(*interval(shortfalls(cell)), FAILS)


def tables(result: Result) -> str:
    rows = []
    for cell in result["cells"]:
        runs, low_high = cell["runs"], interval(shortfalls(cell))
        broken = sum(run["excess"] > 0 for run in runs)
        rows.append(
            [
                *_key(cell),
                f"{np.mean([run['objective'] for run in runs]):.2f} ({cell['exact']['objective']:.2f})",
                f"{np.mean([run['constraint'] for run in runs]):.2f}",
                f"{broken} of {len(runs)}",
                f"{np.mean(shortfalls(cell)):.1%} [{low_high[0]:.1%}, {low_high[1]:.1%}]",
                {True: "works", False: "**fails**", None: "undecided"}[works(cell)],
            ]
        )
    header = ["problem", "error", "method", "reward (without error)", "constraint", "over the budget", "shortfall", ""]
    return f"The rule behind the verdicts: {RULE}.\n\n" + markdown(header, rows, left=3)


def figures(result: Result) -> dict[str, Figure]:
    problems = list(dict.fromkeys(cell["problem"] for cell in result["cells"]))
    fig = style.figure(3.3 * len(problems) + 0.6, 3.2)
    for axes, problem in zip(fig.subplots(1, len(problems), sharey=True, squeeze=False)[0], problems, strict=True):
        first = problem == problems[0]
        style.panel(axes, PROBLEMS[problem], "error of every J and Q, % of max |Q|", "shortfall, %" if first else "")
        for method in METHODS:
            cells = [
                cell
                for cell in result["cells"]
                if (cell["problem"], cell["method"]) == (problem, method) and "noise" in cell["error"]
            ]
            size, look = [100 * cell["error"]["noise"] for cell in cells], style.look(method)
            means = [100 * np.mean(shortfalls(cell)) for cell in cells]
            ends = 100 * np.array([interval(shortfalls(cell)) for cell in cells])
            axes.plot(size, means, marker=look.marker, markersize=4, **look.line(linewidth=1.3))
            axes.fill_between(size, ends[:, 0], ends[:, 1], color=look.colour, alpha=0.15, linewidth=0)
        axes.axhline(100 * FAILS, color=style.BOUND, linestyle=":", linewidth=1.2)
        axes.set_xscale("log")
    style.legend(fig, METHODS, markers=True)
    style.note(fig, f"Mean over {result['seeds']} seeds, band: {CONFIDENCE:.0%}. Dotted: a method that is above fails.")
    return {"noise": fig}


def claims(result: Result) -> list[Claim]:
    by = {_key(cell): works(cell) for cell in result["cells"]}
    places = list(dict.fromkeys(key[:2] for key in by))
    verdicts = {m: {place: by[(*place, style.look(m).name)] for place in places} for m in METHODS}
    evidence = "; ".join(
        f"{style.look(m).name} works at {sum(v is True for v in found.values())} of {len(places)} errors, fails at "
        f"{sum(v is False for v in found.values())}"
        for m, found in verdicts.items()
    )
    where = [place for place in places if verdicts["epirc_pgs"][place] is not True]
    parts = [_and(_not(verdicts["epirc_pgs"][place]), verdicts["rnpg"][place]) for place in where]
    at = ", ".join(f"{problem} {error}" for problem, error in where) or "none"
    return [
        Claim(
            "A binary search fails where the evaluator is noisy, and RNPG does not",
            decide(parts) if parts else decide([False]),
            f"{evidence}; EPIRC-PGS does not work at: {at}",
        ),
        Claim(
            "The paper's own evaluator, τ = 1000 samples, is good enough for its methods",
            decide([by[key] for key in by if key[1] == "τ = 1,000" and key[2] != style.look("rsqp").name]),
            "shortfalls: "
            + "; ".join(
                f"{PROBLEMS[cell['problem']]} {style.look(cell['method']).name} {np.mean(shortfalls(cell)):.2%}"
                for cell in result["cells"]
                if cell["error"] == {"samples": 1000} and cell["method"] != "rsqp"
            ),
        ),
    ]


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _and(one: bool | None, other: bool | None) -> bool | None:
    return False if one is False or other is False else None if None in (one, other) else True


def _answers(result: Result) -> forms.Answers:
    return {_key(cell): f"{np.mean(shortfalls(cell)):.1%}" for cell in result["cells"]}


SECTION = forms.in_forms(
    Section(
        "noise",
        "Evaluators with an error",
        "River-swim and garnet, γ .99, the paper's KL penalty. Methods see values with errors, choose their policy by them, and are judged "
        "by exact ones. An error of 1 % is a standard deviation of 1 % of the largest |Q| of that cost, drawn anew for every J and every "
        "Q(s,a) at every evaluation; τ is the number of samples of the paper's Algorithm 3, whose kernel is not quite the worst. The same "
        "evaluations for all (RSQP starts again where the noise stalls it). Below, in the other forms: the mean shortfall.",
        "tabular",
        {
            "quick": {
                "problems": ["river_swim"],
                "noise": [0.01, 0.1],
                "samples": [1000],
                "seeds": 2,
                "iterations": 100,
            },
            "full": {
                "problems": ["river_swim", "garnet"],
                "noise": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1],
                "samples": [100, 1000, 10_000],
                "seeds": 10,
                "iterations": 1000,
            },
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["problem", "error", "method"],
    _answers,
)
