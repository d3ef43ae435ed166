"""How fast RNPG's gap closes, against what the theory promises; RSQP beside it.

The theory has costs c_0 ≥ 0, so c_0 = 1 − r here. With H = 1/(1−γ), T iterations and step α = m (1−γ)/√(T S), m = 1:

    ξ known, λ = 2H/min{ξ, 1}       λ (Φ(π̂) − min Φ)                 ≤ ε  after T = O(ε⁻²), so the gap falls as T^(−1/2)
    ξ = 0,   λ = 2H/ε               max{J_0(π̂) − J_0*, J_1(π̂) − b}   ≤ ε  after T = O(ε⁻⁴), so the gap falls as T^(−1/4)

The proofs end in φ(T) = √S log A / ((1−β) (1−γ) √T) ≥ Φ(π̂) − min Φ, where β ≥ γ, as the set holds the nominal kernel.
So the gaps are at most λ φ(T), and max{λ φ(T), φ(T) + H/λ}; β = γ is the least that this can be.

For the second, ε = 10 T^(−1/4) sets λ. min Φ is the φ at which the least J_0 with J_1 ≤ b − ξ + φ is λφ; that and J_0*
are RSQP's. Since the theory's step is small, the multiple m of it that does best at one T is shown as well.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

from rcac.problem import RCMDP
from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.plots import INK
from rcac.tabular.solve import solve
from rcac.uncertainty.base import Uncertainty
from reproduction import assumption
from reproduction.section import Claim, PieceCache, Result, Section, verdict
from reproduction.tabular import SETS, load_problem, make_uncertainty

SLACK = 1.0  # the known ξ
MULTIPLES = [10.0**k for k in range(6)]
VARIANTS = {"known": "ξ known, λ = 2H/ξ", "unknown": "ξ = 0, λ = 2H/ε"}
PROMISED = {"known": -0.5, "unknown": -0.25}


def positive_costs() -> RCMDP:
    """River-swim with c_0 = 1 − r ≥ 0."""
    model = load_problem("river_swim")
    return replace(model, costs=np.concatenate([model.costs[:1] + 1.0, model.costs[1:]]))


def least_surrogate(model: RCMDP, uncertainty: Uncertainty, lam: float, slack: float) -> float:
    """min over π of max{ J_0/λ, J_1 − b + ξ }, by bisection on the budget."""

    def excess(phi: float) -> float:
        relaxed = replace(model, budgets=model.budgets - slack + phi)
        return float(solve(relaxed, "rsqp", uncertainty).returns[0]) / lam - phi

    return brentq(excess, 0.0, 1 / ((1 - model.discount) * lam), xtol=1e-9)


def surrogate_lam(variant: str, iterations: int, horizon: float) -> float:
    """λ of a variant; that of the second follows T."""
    return 2 * horizon / (min(SLACK, 1.0) if variant == "known" else 10 * iterations**-0.25)


def bound(variant: str, iterations: int, model: RCMDP) -> float:
    """What the theory allows the gap to be, at the least β there can be."""
    horizon = 1 / (1 - model.discount)
    lam = surrogate_lam(variant, iterations, horizon)
    phi = np.sqrt(model.num_states / iterations) * np.log(model.num_actions) * horizon**2
    return float(lam * phi if variant == "known" else max(lam * phi, phi + horizon / lam))


def informative_from(variant: str, model: RCMDP) -> float:
    """The T from which the bound is below 1/(1−γ), beyond which no two rewards differ; λ φ falls as a power of T."""
    return float((bound(variant, 1, model) * (1 - model.discount)) ** (-1 / PROMISED[variant]))


class Gaps:
    """The gap of either variant after T iterations."""

    def __init__(self, model: RCMDP, uncertainty: Uncertainty) -> None:
        self.model, self.uncertainty = model, uncertainty
        self.horizon = 1 / (1 - model.discount)
        self.optimum = float(solve(model, "rsqp", uncertainty).returns[0])
        self.lam = surrogate_lam("known", 1, self.horizon)
        self.least = least_surrogate(model, uncertainty, self.lam, SLACK)

    def series(self, variant: str, pairs: list[tuple[int, float]]) -> list[float]:
        """For every pair of iterations and multiple of the theory's step."""
        return [self.after(variant, iterations, multiple) for iterations, multiple in pairs]

    def after(self, variant: str, iterations: int, multiple: float) -> float:
        alpha = multiple / (self.horizon * np.sqrt(iterations * self.model.num_states))
        return {"known": self._known, "unknown": self._unknown}[variant](iterations, alpha)

    def _known(self, iterations: int, alpha: float) -> float:
        objective, excess = self._run(iterations, alpha, self.lam, SLACK)
        return self.lam * (max(objective / self.lam, excess + SLACK) - self.least)

    def _unknown(self, iterations: int, alpha: float) -> float:
        lam = surrogate_lam("unknown", iterations, self.horizon)
        objective, excess = self._run(iterations, alpha, lam, 0.0)
        return max(objective - self.optimum, excess)

    def _run(self, iterations: int, alpha: float, lam: float, slack: float) -> tuple[float, float]:
        options: Any = dict(iterations=iterations, step_size=alpha, lam=lam, slack=slack)
        found = solve(self.model, "rnpg", self.uncertainty, **options)
        return float(found.returns[0]), float(found.returns[1] - self.model.budgets[0])

    def rsqp_gaps(self) -> list[float | None]:
        """RSQP's gap to its own last value after each evaluation; None before the first feasible policy."""
        returns = solve(self.model, "rsqp", self.uncertainty).history["returns"]
        values = np.where(returns[:, 1] <= self.model.budgets[0], returns[:, 0] - self.optimum, np.inf)
        return [gap if np.isfinite(gap) else None for gap in np.minimum.accumulate(values).tolist()]


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    model, sets, counts = positive_costs(), [], settings["iterations"]
    for kind in settings["sets"]:
        gaps, curves = Gaps(model, make_uncertainty(kind, "river_swim")), {}
        for variant in VARIANTS:
            label, pairs = f"{kind}, {variant}", [(settings["tune_at"], multiple) for multiple in MULTIPLES]
            tried = cache(f"{label}, multiples", gaps.series, variant, pairs)
            for name, multiple in (("theory", 1.0), ("tuned", MULTIPLES[int(np.argmin(tried))])):
                values = cache(f"{label}, {name}", gaps.series, variant, [(count, multiple) for count in counts])
                curves[f"{variant} {name}"] = {"multiple": multiple, "gaps": values, "slope": slope(counts, values)}
        sets.append({"set": kind, "curves": curves, "rsqp": gaps.rsqp_gaps(), "optimum": gaps.optimum})
    betas = cache("assumption", assumption.compute)
    return {"sets": sets, "iterations": counts, "tune_at": settings["tune_at"], "assumption": betas}


def slope(counts: list[int], gaps: list[float], after: int = 100) -> float:
    """Of log gap over log T, by least squares, from T = `after` on."""
    times, values = np.log(counts), np.log(np.maximum(gaps, 1e-12))
    late = np.array(counts) >= after
    return float(np.polyfit(times[late], values[late], 1)[0])


def tables(result: Result) -> str:
    rows = []
    for group in result["sets"]:
        for variant, words in VARIANTS.items():
            for name in ("theory", "tuned"):
                curve = group["curves"][f"{variant} {name}"]
                step = "the theory's" if name == "theory" else f"{curve['multiple']:g} times"
                gaps = [f"{gap:.3g}" for gap in curve["gaps"]]
                rates = [f"{curve['slope']:.2f}", f"{PROMISED[variant]:g}"]
                rows.append([SETS[group["set"]], words, step, *gaps, *rates])
    header = ["set", "variant", "step", *(f"T = {count:,}" for count in result["iterations"]), "slope", "promised"]
    rsqp_rows = [
        [SETS[group["set"]], *("–" if gap is None else f"{gap:.1e}" for gap in group["rsqp"])]
        for group in result["sets"]
    ]
    longest = max(len(row) for row in rsqp_rows)
    rsqp_rows = [row + [""] * (longest - len(row)) for row in rsqp_rows]
    return (
        "RNPG's gap in reward after T iterations; the slope is that of log gap over log T from T = 100 on. A step m times "
        f"the theory's is the best of m = 1, 10, …, 100,000 at T = {result['tune_at']:,}.\n\n"
        + markdown(header, rows, left=3)
        + "\n\nRSQP's gap to where it stops, by evaluation (–: not feasible yet).\n\n"
        + markdown(["set", *(str(k) for k in range(1, longest))], rsqp_rows)
        + f"\n\n{assumption.table(result['assumption'])}"
    )


LOWEST = 1e-2  # end of the vertical axis
STYLES = {"known": ("#009E73", "o"), "unknown": ("#E69F00", "s")}


def figures(result: Result) -> dict[str, Figure]:
    count = len(result["sets"])
    fig = style.figure(3.9 * count + 0.4, 3.9)
    panels = fig.subplots(1, count, sharey=True, squeeze=False)[0]
    times = np.array(result["iterations"], dtype=float)
    for column, (axes, group) in enumerate(zip(panels, result["sets"], strict=True)):
        y = "gap (discounted reward)" if column == 0 else ""
        style.panel(axes, f"river-swim, {SETS[group['set']]}", "iterations T (robust evaluations)", y)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for variant, (colour, marker) in STYLES.items():
            for name, dash in (("theory", ":"), ("tuned", "-")):
                curve = group["curves"][f"{variant} {name}"]
                label = f"RNPG, {VARIANTS[variant]}, " + ("the theory's step" if name == "theory" else "tuned step")
                axes.plot(
                    times,
                    np.maximum(curve["gaps"], LOWEST),
                    dash,
                    color=colour,
                    marker=marker,
                    markersize=4,
                    label=label,
                )
        rsqp_points = [(k, max(gap, LOWEST)) for k, gap in enumerate(group["rsqp"], start=1) if gap is not None]
        look = style.look("rsqp")
        axes.plot(
            *zip(*rsqp_points, strict=True),
            marker=look.marker,
            markersize=4,
            label="RSQP",
            clip_on=False,
            **look.line(),
        )
        start = group["curves"]["known tuned"]["gaps"][0]
        for rate, words in ((-0.25, "$T^{-1/4}$"), (-0.5, "$T^{-1/2}$")):
            guide = 1.6 * start * (times / times[0]) ** rate
            axes.plot(times, guide, color=style.FAINT, linewidth=0.8)
            at: Any = dict(textcoords="offset points", fontsize=7.5, color=style.BOUND, va="center", ha="left")
            axes.annotate(words, (times[-1], guide[-1]), (3, 0), annotation_clip=False, **at)
        axes.set_ylim(LOWEST, 100)
    lowest = f"Gaps below {LOWEST:g} are drawn at {LOWEST:g}: see the table for RSQP's."
    style.note(fig, f"{lowest} Grey: slopes for comparison, not the bounds, which are far above.")
    handles, labels = panels[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return {"rate": fig}


def claims(result: Result) -> list[Claim]:
    found = [assumption.claim(result["assumption"])]
    for variant, words in VARIANTS.items():
        theory = [group["curves"][f"{variant} theory"] for group in result["sets"]]
        tuned = [group["curves"][f"{variant} tuned"] for group in result["sets"]]
        promised = PROMISED[variant]
        fast = [curve["slope"] <= promised for curve in theory]
        fast_tuned = [curve["slope"] <= promised for curve in tuned]
        last = result["iterations"][-1]
        found.append(_bounded(variant, result))
        evidence = "; ".join(
            f"{SETS[g['set']]}: slope {a['slope']:.2f} with the theory's step (gap {a['gaps'][-1]:.3g} at T = {last:,}), "
            f"{b['slope']:.2f} with {b['multiple']:g} times it (gap {b['gaps'][-1]:.3g})"
            for g, a, b in zip(result["sets"], theory, tuned, strict=True)
        )
        found.append(
            Claim(
                f"RNPG's gap falls at least as fast as T^({promised:g}), {words}",
                verdict(all(fast), any(fast) or any(fast_tuned)),
                evidence
                + ". The theorem is an upper bound: a gap that falls more slowly below it does not contradict it. Why a gap "
                "stays although the step moves was not tested: the theory assumes a policy that is best at every state at "
                "once, and there may be none",
            )
        )
    return found


def _bounded(variant: str, result: Result) -> Claim:
    """With the theory's step, at every T of every set."""
    model, counts = positive_costs(), result["iterations"]
    gaps = [group["curves"][f"{variant} theory"]["gaps"] for group in result["sets"]]
    within = [gap <= bound(variant, t, model) for own in gaps for t, gap in zip(counts, own, strict=True)]
    return Claim(
        f"RNPG's gap stays below the bound of the theorem (with β = γ), {VARIANTS[variant]}",
        verdict(all(within), any(within)),
        f"with the theory's step the gap is {max(map(max, gaps)):.3g} at most; the bound is {bound(variant, counts[-1], model):,.0f} "
        f"at T = {counts[-1]:,}, while no two rewards differ by more than 1/(1−γ) = {1 / (1 - model.discount):.0f}: it is vacuous until T is "
        f"about {informative_from(variant, model):.0e}, so that it holds means little. {_applicability(result)}",
    )


def _applicability(result: Result) -> str:
    """Whether the theorem says anything about the sets that are measured here."""
    betas = {row["set"]: row for row in result["assumption"] if row["problem"] == "river_swim"}
    own = [betas[group["set"]] for group in result["sets"]]
    shown = ", ".join(f"{SETS[row['set']]} {row['beta']:.3f}" for row in own)
    if all(map(assumption.applies, own)):
        return f"The theorem applies: β is below 1 ({shown})"
    return f"The theorem {'applies to some of them only' if any(map(assumption.applies, own)) else 'does not apply'}: it wants β < 1, and here β is {shown}; the bound is taken at β = γ, the least there can be"


SECTION = Section(
    "rate",
    "Convergence against theory",
    "River-swim at γ .99 with c_0 = 1 − r ≥ 0, as the theory has it, and a known slack ξ of 1. For known ξ the gap is that "
    "of the surrogate times λ; for ξ = 0 it is the larger of shortfall and violation. The references are RSQP's.",
    "tabular",
    {
        "quick": {"sets": ["kl_penalty"], "iterations": [10, 30, 100, 300, 1000], "tune_at": 300},
        "full": {"sets": list(SETS), "iterations": [10, 30, 100, 300, 1000, 3000, 10_000, 30_000], "tune_at": 1000},
    },
    compute,
    tables,
    figures,
    claims,
)
