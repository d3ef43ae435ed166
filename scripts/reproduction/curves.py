"""Learning curves on the four problems, on garnet at the λ of the paper's figure, and what λ does to RNPG."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import INK
from reproduction import forms, late_iterates
from reproduction.section import Claim, PieceCache, Result, Section, verdict, yes_no
from reproduction.tabular import METHODS, PROBLEMS, display_bounds, kl_penalty, load_problem, trace

LAMBDAS = [10.0, 15.0, 30.0, 50.0, 100.0, 500.0]
POINTS = 150  # of a curve
SHADES = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#d8c000"]  # viridis, darkest first


def compute(settings: dict[str, Any], cache: PieceCache, form: str = forms.OURS, ours: Result | None = None) -> Result:
    work = settings["iterations"]
    problems: list[dict[str, Any]] = []
    for problem in settings["problems"]:
        own = ours["problems"][len(problems)] if ours else None
        problems.append(_problem(problem, METHODS, cache, form, own, iterations=work))
    river, price = load_problem("river_swim"), kl_penalty("river_swim")
    given = forms.options(form, "rnpg", "river_swim") | {"iterations": work}
    lambdas = [
        {"lam": lam}
        | cache(
            forms.label(form, f"λ {lam:g}"),
            trace,
            river,
            "rnpg",
            forms.in_form(form, price),
            POINTS,
            **given | {"lam": lam},
        )
        for lam in LAMBDAS
    ]
    own, lam = (
        ours["garnet"] if ours else None,
        settings["garnet_lambda"],
    )  # that of the paper's second figure of garnet
    garnet = _problem("garnet", late_iterates.PAPER_METHODS, cache, form, own, iterations=work, lam=lam)
    return {
        "problems": problems,
        "lambdas": lambdas,
        "limits": display_bounds(river, price),
        "garnet": garnet | {"lam": lam},
        "iterations": work,
    }


def _problem(
    problem: str, methods: list[str], cache: PieceCache, form: str, ours: dict[str, Any] | None, **given: Any
) -> dict[str, Any]:
    model, uncertainty, runs = load_problem(problem), kl_penalty(problem), []
    for method in forms.changed(form, methods):
        options = forms.options(form, method, problem) | given
        name = forms.label(form, ", ".join([problem, method, *(f"λ {lam:g}" for lam in [given.get("lam")] if lam)]))
        runs.append(cache(name, trace, model, method, forms.in_form(form, uncertainty), POINTS, **options))
    runs = forms.merged(ours["runs"], runs, "method") if ours else runs
    return {"problem": problem, "runs": runs, **display_bounds(model, uncertainty)}


def tables(result: Result) -> str:
    budget = result["limits"]["budget"]
    rows = [
        [
            f"{run['lam']:g}",
            f"{run['answer'][0]:.2f}",
            f"{run['answer'][1]:.2f}",
            yes_no(run["feasible"]),
            f"{_late_distance(run, budget):.2f}",
        ]
        for run in result["lambdas"]
    ]
    answers = [
        [
            PROBLEMS[w["problem"]],
            style.look(run["method"]).name,
            f"{run['answer'][0]:.2f}",
            f"{run['answer'][1]:.2f}",
            yes_no(run["feasible"]),
            f"{run['evaluations']:,}",
        ]
        for w in result["problems"]
        for run in w["runs"]
    ]
    header = ["problem", "method", "reward", "constraint", "feasible", "evaluations"]
    return (
        late_iterates.RULES
        + "\n\nWhat each method hands out at its default settings.\n\n"
        + markdown(header, answers, left=2)
        + f"\n\n{late_iterates.table([*result['problems'], result['garnet']])}"
        + "\n\nRNPG on river-swim: the policy handed out, and the mean distance of the last tenth of the curve from "
        "the budget.\n\n" + markdown(["λ", "reward", f"cost (≤ {budget:g})", "feasible", "late distance"], rows, left=1)
    )


def _late_distance(run: dict[str, Any], budget: float) -> float:
    last = run["evaluation"][-1]
    late = [c for c, t in zip(run["constraint"], run["evaluation"], strict=True) if t > 0.9 * last]
    return sum(abs(c - budget) for c in late) / len(late)


def figures(result: Result) -> dict[str, Figure]:
    garnet = result["garnet"]
    alone = _problem_panels([garnet], result["iterations"], f"{PROBLEMS['garnet']}, λ = {garnet['lam']:g}")
    return {
        "curves": _problem_panels(result["problems"], result["iterations"]),
        "garnet": alone,
        "lambda": _lambdas(result),
    }


def _problem_panels(problems: list[dict[str, Any]], iterations: int, title: str = "") -> Figure:
    """Reward above, constraint below; side by side if there is one problem only."""
    count, alone = len(problems), len(problems) == 1
    fig = style.figure(7.2, 3.0) if alone else style.figure(2.4 * count + 0.4, 4.5)
    axes_grid = fig.subplots(1, 2, squeeze=False).T if alone else fig.subplots(2, count, sharex=True, squeeze=False)
    for column, problem in enumerate(problems):
        floor = problem["floor"]
        top, bottom = axes_grid[0, column], axes_grid[1, column]
        time = "robust evaluations"
        style.panel(
            top,
            title or PROBLEMS[problem["problem"]],
            time if alone else "",
            "worst-case reward" if column == 0 else "",
        )
        style.panel(bottom, "", time, "worst-case cost" if column == 0 else "")
        if floor:
            bottom.set_ylabel("worst-case utility", fontsize=8.5, color=INK)
        for run in problem["runs"]:
            look = style.look(run["method"])
            oscillating = _turns(run["objective"]) > POINTS // 4  # thin, and behind the other lines
            width: Any = dict(linewidth=0.7, alpha=0.7, zorder=1) if oscillating else dict(linewidth=1.3)
            for axes, name in ((top, "objective"), (bottom, "constraint")):
                axes.plot(run["evaluation"], run[name], **look.line(**width))
                if run["evaluations"] < iterations:
                    end: Any = dict(marker=look.marker, color=look.colour, markersize=5, zorder=5)
                    axes.plot(run["evaluation"][-1], run[name][-1], **end)
        style.level(top, problem["best"], f"bound {problem['best']:.1f}", style.BOUND)
        style.level(bottom, problem["budget"], f"{'floor' if floor else 'budget'} {problem['budget']:g}", below=floor)
        top.margins(y=0.12)
        bottom.margins(y=0.12)
        for axes in (top, bottom):
            _time_axis(axes, iterations)
    style.legend(fig, [run["method"] for run in problems[0]["runs"]])
    return fig


def _turns(values: list[float]) -> int:
    """How often a curve turns around by more than a tenth of its range."""
    steps = np.diff(values)
    large = np.abs(steps) > 0.1 * (max(values) - min(values))
    return int(np.count_nonzero(large[1:] & large[:-1] & (steps[1:] * steps[:-1] < 0)))


def _lambdas(result: Result) -> Figure:
    fig = style.figure(7.2, 3.0)
    left, right = fig.subplots(1, 2, sharex=True)
    style.panel(left, "RNPG on river-swim", "robust evaluations", "worst-case reward")
    style.panel(right, "", "robust evaluations", "worst-case cost")
    for run, shade in zip(result["lambdas"], SHADES, strict=True):
        for axes, name in ((left, "objective"), (right, "constraint")):
            axes.plot(run["evaluation"], run[name], color=shade, linewidth=0.5, alpha=0.45)
            best = run[f"best_{name}"]
            axes.plot(run["evaluation"], best, color=shade, linewidth=1.7, label=f"λ = {run['lam']:g}")
    style.level(left, result["limits"]["best"], f"bound {result['limits']['best']:.1f}", style.BOUND)
    style.level(right, result["limits"]["budget"], f"budget {result['limits']['budget']:g}")
    left.margins(y=0.12)
    right.margins(y=0.12)
    _time_axis(left, result["iterations"])
    handles, labels = left.get_legend_handles_labels()
    style.note(fig, "Thick: the best policy so far by the surrogate; thin: the present one.")
    place: Any = dict(loc="outside right center", frameon=False, fontsize=8.5, labelcolor=INK)
    fig.legend(handles[::-1], labels[::-1], **place)
    return fig


def _time_axis(axes: Axes, iterations: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1, 1.05 * iterations)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")


def claims(result: Result) -> list[Claim]:
    runs = result["lambdas"]
    rewards, costs = [run["answer"][0] for run in runs], [run["answer"][1] for run in runs]
    feasible = [run["feasible"] for run in runs]
    rising = rewards[-1] > rewards[0]
    slack = [w for w in result["problems"] if all(_is_slack(run["constraint"], w) for run in w["runs"])]
    names = ", ".join(PROBLEMS[w["problem"]] for w in slack) or "none"
    fifty = [next(r for r in w["runs"] if r["method"] == "rnpg")["feasible"] for w in result["problems"]]
    found = [
        Claim(
            "A larger λ lowers both the value and the cost of RNPG's policy",
            verdict(
                rewards[-1] < rewards[0] and costs[-1] < costs[0], rewards[-1] < rewards[0] or costs[-1] < costs[0]
            ),
            f"reward {rewards[0]:.2f} at λ = {LAMBDAS[0]:g} and {rewards[-1]:.2f} at {LAMBDAS[-1]:g}, cost {costs[0]:.2f} and "
            f"{costs[-1]:.2f}; a larger λ is {'less' if rising else 'more'} cautious",
        ),
        Claim(
            "λ = 50 gives RNPG a feasible policy on every problem, without tuning",
            verdict(all(fifty), any(fifty)),
            f"feasible on {sum(fifty)} of {len(fifty)}; on river-swim with {sum(feasible)} of {len(feasible)} values of λ",
        ),
        Claim(
            "The constraint matters on every problem",
            verdict(not slack, len(slack) < len(result["problems"])),
            f"no method ever comes near it, at γ .99 and under the KL penalty, on: {names}",
        ),
    ]
    return found + late_iterates.claims(result["problems"], result["garnet"])


def _is_slack(constraint: list[float], problem: dict[str, Any]) -> bool:
    """The whole curve stays at least a quarter of the budget away from it."""
    share = [value / problem["budget"] for value in constraint]
    return min(share) > 1.25 if problem["floor"] else max(share) < 0.75


def _answers(result: Result) -> forms.Answers:
    found: forms.Answers = {
        (late_iterates.problem_label(w), style.look(run["method"]).name): forms.pair(run["answer"], run["feasible"])
        for w in (*result["problems"], result["garnet"])
        for run in w["runs"]
    }
    river = PROBLEMS["river_swim"]
    for run in result["lambdas"]:
        found[f"{river}, λ = {run['lam']:g}", style.look("rnpg").name] = forms.pair(run["answer"], run["feasible"])
    return found


SECTION = forms.in_forms(
    Section(
        "curves",
        "Learning curves and the effect of λ",
        "Every evaluated policy, γ .99, the paper's KL penalty, default settings, from the uniform policy. RSQP's curve ends "
        "where it stops (diamond). The horizontal axis is logarithmic.",
        "tabular",
        {
            "quick": {"problems": ["river_swim", "frozen_lake"], "iterations": 150, "garnet_lambda": 30.0},
            "full": {"problems": list(PROBLEMS), "iterations": 1000, "garnet_lambda": 30.0},
        },
        compute,
        tables,
        figures,
        claims,
    ),
    compute,
    ["problem", "method"],
    _answers,
)
