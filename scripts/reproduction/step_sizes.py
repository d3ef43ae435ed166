"""What every step size reaches, the paper's 1e-3 among them, and the one default that this speaks for."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac import registry
from rcac.report import style
from rcac.report.tables import markdown
from reproduction import forms, tabular
from reproduction.section import Claim, PieceCache, Result, Section, verdict

PAPER_STEP_SIZE = 1e-3


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    cells, work = [], settings["iterations"]
    for kind in tabular.SETS:
        for problem in settings["problems"]:
            model, uncertainty = tabular.load_problem(problem), tabular.make_uncertainty(kind, problem)
            own = forms.in_form(form, uncertainty)
            reference = cache(f"{kind}, {problem}, rsqp", tabular.run_method, model, "rsqp", uncertainty)
            bound = cache(f"{kind}, {problem}, bounds", tabular.display_bounds, model, uncertainty)
            for method in forms.changed(form, settings["methods"]):
                given = forms.options(form, method, problem) | {"iterations": work}
                rows = [given | {"step_size": a} for a in tabular.STEP_SIZES]
                name = forms.label(form, f"{kind}, {problem}, {method}")
                tried = cache(name, tabular.run_grid, model, method, own, rows)
                description = {"set": kind, "problem": problem, "method": method, "runs": tried, "reference": reference}
                cells.append(description | bound)
    return {
        "cells": forms.merged(ours["cells"], cells, "set", "problem", "method") if ours else cells,
        "iterations": work,
    }


def _fraction_of_best(cell: dict[str, Any], run: dict[str, Any]) -> float:
    """What the answer earns of the best known reward; 0 if it is not feasible."""
    best = max([cell["reference"]["objective"], *(r["objective"] for r in cell["runs"] if r["feasible"])])
    return run["answer"]["objective"] / best if run["answer"]["feasible"] else 0.0


def _mean_fractions(result: Result, method: str) -> np.ndarray:
    """(6,) over the step sizes, the mean over problems and sets."""
    cells = [cell for cell in result["cells"] if cell["method"] == method]
    return np.mean([[_fraction_of_best(cell, run) for run in cell["runs"]] for cell in cells], axis=0)


def _default(method: str) -> float:
    return float(registry.rows("algo")[method]["step_size"])


def _methods(result: Result) -> list[str]:
    return list(dict.fromkeys(cell["method"] for cell in result["cells"]))


def tables(result: Result) -> str:
    sizes = [f"α = {a:g}" for a in tabular.STEP_SIZES]

    def bold(method: str, texts: list[str]) -> list[str]:
        return [
            f"**{t}**" if np.isclose(a, _default(method)) else t for a, t in zip(tabular.STEP_SIZES, texts, strict=True)
        ]

    mean = [
        [style.look(m).name, *bold(m, [f"{100 * s:.1f} %" for s in _mean_fractions(result, m)])]
        for m in _methods(result)
    ]
    rows = []
    for cell in result["cells"]:
        mark = [f"{r['answer']['objective']:.2f}{'' if r['answer']['feasible'] else ' †'}" for r in cell["runs"]]
        names = [tabular.PROBLEMS[cell["problem"]], tabular.SETS[cell["set"]], style.look(cell["method"]).name]
        first, best = f"{cell['runs'][0]['first']:.2f}", f"{cell['reference']['objective']:.2f}"
        rows.append([*names, first, *bold(cell["method"], mark), best])
    return (
        f"Share of the best known reward that {result['iterations']} iterations reach (a policy that breaks its budget "
        "counts as nothing), mean over problems and sets. Bold: our default.\n\n"
        + markdown(["method", *sizes], mean)
        + "\n\nWorst-case reward of each method's answer (γ .99). †: breaks its budget. First: the uniform policy.\n\n"
        + markdown(["problem", "set", "method", "first", *sizes, "RSQP, no step size"], rows, left=3)
    )


def figures(result: Result) -> dict[str, Figure]:
    problems = list(dict.fromkeys(cell["problem"] for cell in result["cells"]))
    fig = style.figure(2.35 * len(problems) + 0.6, 4.6)
    axes_grid = fig.subplots(len(tabular.SETS), len(problems), sharex=True, sharey=True, squeeze=False)
    for row, kind in enumerate(tabular.SETS):
        for column, problem in enumerate(problems):
            y = f"{tabular.SETS[kind]}\n% of the best known reward" if column == 0 else ""
            axes = style.panel(
                axes_grid[row, column], tabular.PROBLEMS[problem] if row == 0 else "", "step size α" if row else "", y
            )
            axes.set_xscale("log")
            for cell in result["cells"]:
                if (cell["set"], cell["problem"]) == (kind, problem):
                    look = style.look(cell["method"])
                    share = [100 * _fraction_of_best(cell, run) for run in cell["runs"]]
                    axes.plot(tabular.STEP_SIZES, share, marker=look.marker, markersize=3.5, **look.line(linewidth=1.3))
                    chosen = int(np.argmin(np.abs(np.log(np.array(tabular.STEP_SIZES) / _default(cell["method"])))))
                    ring: Any = dict(
                        markersize=9, markerfacecolor="none", markeredgecolor=look.colour, linestyle="none"
                    )
                    axes.plot(tabular.STEP_SIZES[chosen], share[chosen], marker="o", **ring)
            axes.set_ylim(-4, 106)
            axes.set_xticks(tabular.STEP_SIZES)
    style.legend(fig, _methods(result), markers=True)
    work = f"{result['iterations']:,} iterations"
    style.note(fig, f"Ring: our default. The paper's step size is 1e-3. {work}; 0 %: the answer breaks its budget.")
    return {"step_sizes": fig}


def claims(result: Result) -> list[Claim]:
    at = tabular.STEP_SIZES.index(PAPER_STEP_SIZE)
    gained = []
    for cell in result["cells"]:
        run, best = cell["runs"][at], cell["reference"]["objective"]
        if best > run["first"] + 1e-6:
            way = (run["answer"]["objective"] - run["first"]) / (best - run["first"])
            gained.append(way if run["answer"]["feasible"] else 0.0)  # beyond the budget is no way to go
    median, most = float(np.median(gained)), float(np.max(gained))
    found = [
        Claim(
            "The step size of the paper, 1e-3, is enough for 1000 iterations",
            verdict(median >= 0.95, median >= 0.5),
            f"of the way from the uniform policy to the best known one it goes {100 * median:.0f} % in the median over "
            f"problems, sets and methods (0 where the budget is broken), and {100 * most:.0f} % at most",
        )
    ]
    for method in _methods(result):
        shares = _mean_fractions(result, method)
        best = int(np.argmax(shares))
        chosen = int(np.argmin(np.abs(np.log(np.array(tabular.STEP_SIZES) / _default(method)))))
        found.append(
            Claim(
                f"Our default for {style.look(method).name}, {_default(method):g}, is the best single one of the six",
                verdict(best == chosen, shares[chosen] >= shares[best] - 0.05),
                f"{100 * shares[chosen]:.1f} % of the best known reward; the best is {tabular.STEP_SIZES[best]:g} with "
                f"{100 * shares[best]:.1f} %, and 1e-3 has {100 * shares[at]:.1f} %",
            )
        )
    return found


def _answers(result: Result) -> forms.Answers:
    """At the paper's step size."""
    at = tabular.STEP_SIZES.index(PAPER_STEP_SIZE)
    found: forms.Answers = {}
    for cell in result["cells"]:
        own = cell["runs"][at]["answer"]
        key = (tabular.PROBLEMS[cell["problem"]], tabular.SETS[cell["set"]], style.look(cell["method"]).name)
        found[key] = forms.pair((own["objective"], own["constraint"]), own["feasible"])
    return found


SECTION = forms.in_forms(
    Section(
        "step_sizes",
        "Step sizes",
        "The paper sets its step sizes to 1e-3 and 1e-4. Here every method that has one runs with six of them on the four "
        "problems, with the paper's KL penalty and with a KL ball.",
        "tabular",
        {
            "quick": {
                "iterations": 100,
                "problems": ["river_swim", "frozen_lake"],
                "methods": tabular.STEP_SIZE_METHODS,
            },
            "full": {"iterations": 1000, "problems": list(tabular.PROBLEMS), "methods": tabular.STEP_SIZE_METHODS},
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["problem", "set", "method"],
    _answers,
)
