"""What every step size reaches, the paper's 1e-3 among them, and the one default that this speaks for."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac import registry
from rcac.experiment import style
from rcac.experiment.reproduction.section import Claim, Once, Result, Section, markdown, verdict
from rcac.experiment.reproduction.tabular import (
    SETS,
    STEP_SIZES,
    STEPPED,
    WORLDS,
    attempt,
    attempts,
    problem,
    shown_bounds,
    uncertainty,
)

PAPERS = 1e-3


def compute(settings: dict[str, Any], once: Once) -> Result:
    cells, work = [], settings["iterations"]
    for kind in SETS:
        for world in settings["worlds"]:
            model, uncertain = problem(world), uncertainty(kind, world)
            reference = once(f"{kind}, {world}, rsqp", attempt, model, "rsqp", uncertain)
            bound = once(f"{kind}, {world}, bounds", shown_bounds, model, uncertain)
            for method in settings["methods"]:
                rows = [{"iterations": work, "step_size": a} for a in STEP_SIZES]
                tried = once(f"{kind}, {world}, {method}", attempts, model, method, uncertain, rows)
                about = {"set": kind, "world": world, "method": method, "runs": tried, "reference": reference}
                cells.append(about | bound)
    return {"cells": cells, "iterations": work}


def _share(cell: dict[str, Any], run: dict[str, Any]) -> float:
    """What the answer earns of the best known reward; 0 if it is not feasible."""
    best = max([cell["reference"]["objective"], *(r["objective"] for r in cell["runs"] if r["feasible"])])
    return run["answer"]["objective"] / best if run["answer"]["feasible"] else 0.0


def _mean_shares(result: Result, method: str) -> np.ndarray:
    """(6,) over the step sizes, the mean over problems and sets."""
    cells = [cell for cell in result["cells"] if cell["method"] == method]
    return np.mean([[_share(cell, run) for run in cell["runs"]] for cell in cells], axis=0)


def _default(method: str) -> float:
    return float(registry.rows("algo")[method]["step_size"])


def _methods(result: Result) -> list[str]:
    return list(dict.fromkeys(cell["method"] for cell in result["cells"]))


def tables(result: Result) -> str:
    sizes = [f"α = {a:g}" for a in STEP_SIZES]

    def bold(method: str, texts: list[str]) -> list[str]:
        return [f"**{t}**" if np.isclose(a, _default(method)) else t for a, t in zip(STEP_SIZES, texts, strict=True)]

    mean = [
        [style.look(m).name, *bold(m, [f"{100 * s:.1f} %" for s in _mean_shares(result, m)])] for m in _methods(result)
    ]
    rows = []
    for cell in result["cells"]:
        mark = [f"{r['answer']['objective']:.2f}{'' if r['answer']['feasible'] else ' †'}" for r in cell["runs"]]
        names = [WORLDS[cell["world"]], SETS[cell["set"]], style.look(cell["method"]).name]
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
    worlds = list(dict.fromkeys(cell["world"] for cell in result["cells"]))
    shown = style.figure(2.35 * len(worlds) + 0.6, 4.6)
    every = shown.subplots(len(SETS), len(worlds), sharex=True, sharey=True, squeeze=False)
    for row, kind in enumerate(SETS):
        for column, world in enumerate(worlds):
            y = f"{SETS[kind]}\n% of the best known reward" if column == 0 else ""
            axes = style.panel(every[row, column], WORLDS[world] if row == 0 else "", "step size α" if row else "", y)
            axes.set_xscale("log")
            for cell in result["cells"]:
                if (cell["set"], cell["world"]) == (kind, world):
                    own = style.look(cell["method"])
                    share = [100 * _share(cell, run) for run in cell["runs"]]
                    axes.plot(STEP_SIZES, share, marker=own.marker, markersize=3.5, **own.line(linewidth=1.3))
                    chosen = int(np.argmin(np.abs(np.log(np.array(STEP_SIZES) / _default(cell["method"])))))
                    ring: Any = dict(markersize=9, markerfacecolor="none", markeredgecolor=own.colour, linestyle="none")
                    axes.plot(STEP_SIZES[chosen], share[chosen], marker="o", **ring)
            axes.set_ylim(-4, 106)
            axes.set_xticks(STEP_SIZES)
    style.legend(shown, _methods(result), markers=True)
    work = f"{result['iterations']:,} iterations"
    style.note(shown, f"Ring: our default. The paper's step size is 1e-3. {work}; 0 %: the answer breaks its budget.")
    return {"step_sizes": shown}


def claims(result: Result) -> list[Claim]:
    at = STEP_SIZES.index(PAPERS)
    gained = []
    for cell in result["cells"]:
        run, best = cell["runs"][at], cell["reference"]["objective"]
        if best > run["first"] + 1e-6:
            gained.append((run["answer"]["objective"] - run["first"]) / (best - run["first"]))
    median, most = float(np.median(gained)), float(np.max(gained))
    found = [
        Claim(
            "The step size of the paper, 1e-3, is enough for 1000 iterations",
            verdict(median >= 0.95, median >= 0.5),
            f"of the way from the uniform policy to the best known one it goes {100 * median:.0f} % in the median over "
            f"problems, sets and methods, and {100 * most:.0f} % at most",
        )
    ]
    for method in _methods(result):
        shares = _mean_shares(result, method)
        best = int(np.argmax(shares))
        chosen = int(np.argmin(np.abs(np.log(np.array(STEP_SIZES) / _default(method)))))
        found.append(
            Claim(
                f"Our default for {style.look(method).name}, {_default(method):g}, is the best single one of the six",
                verdict(best == chosen, shares[chosen] >= shares[best] - 0.05),
                f"{100 * shares[chosen]:.1f} % of the best known reward; the best is {STEP_SIZES[best]:g} with "
                f"{100 * shares[best]:.1f} %, and 1e-3 has {100 * shares[at]:.1f} %",
            )
        )
    return found


SECTION = Section(
    "step_sizes",
    "Step sizes",
    "The paper sets its step sizes to 1e-3 and 1e-4. Here every method that has one runs with six of them on the four "
    "problems, with the paper's KL penalty and with a KL ball.",
    "tabular",
    {
        "quick": {"iterations": 100, "worlds": ["river_swim", "frozen_lake"], "methods": STEPPED},
        "full": {"iterations": 1000, "worlds": list(WORLDS), "methods": STEPPED},
    },
    compute,
    tables,
    figures,
    claims,
)
