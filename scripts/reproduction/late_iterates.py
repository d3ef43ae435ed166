"""Late iterates of the learning curves: which policies break the budget, and how much the late ones still change.

The end of a run is the last 30 % of its policies. A best feasible policy says nothing about it, as runs may start within
their budget.
"""

from typing import Any

from rcac.report import style
from rcac.report.tables import markdown
from reproduction.section import Claim, verdict, yes_no
from reproduction.tabular import LATE_FRACTION, PROBLEMS

PAPER_METHODS = ["rnpg", "rppg", "epirc_pgs"]  # methods of the paper's figures
MIN_CHANGE = 1e-4  # of the bound or the budget: changes that differ by less are equal
LATE_RULE = (
    f"a method ends up infeasible if its last policy breaks the budget and so does more than half of the last {100 * LATE_FRACTION:g} % of "
    "its policies; the claim holds if EPIRC-PGS and RPPG do and RNPG does not, in part if one of them does and RNPG does not"
)
STABLE_RULE = (
    f"over the last {100 * LATE_FRACTION:g} % of the policies, the mean change from one to the next, of the reward in per cent of the "
    "bound or of the constraint in per cent of the budget, whichever is larger; RNPG is more stable than another where its "
    f"change is smaller by more than {100 * MIN_CHANGE:g} points; the claim holds if that is so for both on every problem, in part if in half "
    "of these comparisons"
)
RULES = f"""\
The rules behind the verdicts stand in the code.

- *End up infeasible*: {LATE_RULE}.
- *More stable*: {STABLE_RULE}. (A standard deviation was tried first, and given up after a quick run of 150 iterations had been seen, as it counts steady progress as instability; by it the claim failed there, by this rule it holds in part.)
- *At every iteration*, *throughout*: of all policies of a run, none breaks the budget; in part if what is claimed is so for some of the methods named."""


def table(problems: list[dict[str, Any]]) -> str:
    rows = [
        [
            problem_label(w),
            style.look(run["method"]).name,
            f"{100 * run['late_iterates']['infeasible']:.1f} %",
            f"{100 * run['late_iterates']['late_infeasible']:.1f} %",
            yes_no(not run["late_iterates"]["last_infeasible"]),
            f"{100 * _change(run, w):.3g} %",
        ]
        for w in problems
        for run in w["runs"]
    ]
    words = [
        "problem",
        "method",
        "infeasible",
        f"of the last {100 * LATE_FRACTION:g} %",
        "last one feasible",
        "late change",
    ]
    about = "Every policy on the way: how many break the budget, and how much the late ones still change.\n\n"
    return about + markdown(words, rows, left=2)


def problem_label(problem: dict[str, Any]) -> str:
    return PROBLEMS[problem["problem"]] + (f", λ = {problem['lam']:g}" if "lam" in problem else "")


def _change(run: dict[str, Any], problem: dict[str, Any]) -> float:
    """Mean from one late policy to the next, as a share of the bound or of the budget."""
    objective, constraint = run["late_iterates"]["change"]
    return max(objective / abs(problem["best"]), constraint / abs(problem["budget"]))


def claims(problems: list[dict[str, Any]], garnet: dict[str, Any]) -> list[Claim]:
    by_name = {w["problem"]: w for w in problems}
    found = [_ends_infeasible(by_name["river_swim"])] if "river_swim" in by_name else []
    found.append(_stable(problems))
    found.append(_always_feasible([*(w for w in problems if w["problem"] == "garnet"), garnet]))
    return found + ([_garbage_collector(by_name["garbage_collector"])] if "garbage_collector" in by_name else [])


def _late_stats(problem: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of the paper's methods."""
    return {run["method"]: run["late_iterates"] for run in problem["runs"] if run["method"] in PAPER_METHODS}


def _ends_infeasible(problem: dict[str, Any]) -> Claim:
    """The verdict by `ENDING_RULE`."""
    late = _late_stats(problem)
    out = {m: e["last_infeasible"] and e["late_infeasible"] > 0.5 for m, e in late.items()}
    rivals = [out[m] for m in PAPER_METHODS[1:]]
    summary = "; ".join(
        f"{style.look(m).name} {100 * e['late_infeasible']:.0f} %, the last one {'infeasible' if e['last_infeasible'] else 'feasible'}"
        for m, e in late.items()
    )
    return Claim(
        "On river-swim EPIRC-PGS and RPPG end up infeasible, RNPG does not",
        verdict(not out["rnpg"] and all(rivals), not out["rnpg"] and any(rivals)),
        f"infeasible among the last {100 * LATE_FRACTION:g} % of the policies: {summary}. The best feasible policy of each run, which all of "
        "them meet, is another matter: see the best policies",
    )


def _stable(problems: list[dict[str, Any]]) -> Claim:
    """The verdict by `STABLE_RULE`."""
    won, summaries = [], []
    for problem in problems:
        changes = {run["method"]: _change(run, problem) for run in problem["runs"] if run["method"] in PAPER_METHODS}
        won += [changes["rnpg"] < changes[rival] - MIN_CHANGE for rival in PAPER_METHODS[1:]]
        numbers = ", ".join(f"{style.look(m).name} {100 * change:.2g} %" for m, change in changes.items())
        summaries.append(f"{PROBLEMS[problem['problem']]}: {numbers}")
    return Claim(
        "RNPG is more stable than RPPG and EPIRC-PGS",
        verdict(all(won), 2 * sum(won) >= len(won)),
        f"its late change from policy to policy is the smaller one in {sum(won)} of {len(won)} comparisons; {'; '.join(summaries)}",
    )


def _always_feasible(problems: list[dict[str, Any]]) -> Claim:
    shares = {m: max(_late_stats(w)[m]["infeasible"] for w in problems) for m in PAPER_METHODS}
    clean = [share == 0 for share in shares.values()]
    first = [w["runs"][0]["constraint"][0] for w in problems]
    outside = any(value < w["budget"] for value, w in zip(first, problems, strict=True))  # a utility
    begin = "; the first policy breaks it already" if outside else ""
    return Claim(
        "On garnet RNPG, RPPG and EPIRC-PGS are feasible at every iteration",
        verdict(all(clean), any(clean)),
        f"policies that break the budget: {_format_shares(shares)} ({' and '.join(problem_label(w) for w in problems)}){begin}",
    )


def _garbage_collector(problem: dict[str, Any]) -> Claim:
    shares = {m: stats["infeasible"] for m, stats in _late_stats(problem).items()}
    breaks, obey = shares["epirc_pgs"] > 0, [shares[m] == 0 for m in ("rnpg", "rppg")]
    return Claim(
        "On the garbage collector EPIRC-PGS violates the constraint, RPPG and RNPG obey it throughout",
        verdict(breaks and all(obey), breaks or all(obey)),
        f"policies that break the budget: {_format_shares(shares)}",
    )


def _format_shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{style.look(m).name} {100 * share:.1f} %" for m, share in shares.items())
