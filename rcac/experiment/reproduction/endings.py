"""How the runs of the learning curves go and end: which policies break the budget, and how much the late ones move.

The end of a run is the last 30 % of its policies. A best feasible policy says nothing about it, as runs may start within
their budget.
"""

from typing import Any

from rcac.experiment import style
from rcac.experiment.reproduction.section import Claim, markdown, verdict, yes
from rcac.experiment.reproduction.tabular import LATE, WORLDS

PAPERS = ["rnpg", "rppg", "epirc_pgs"]  # methods of the paper's figures
STILL = 1e-4  # of the bound or the budget: changes that differ by less are equal
ENDING_RULE = (
    f"a method ends up infeasible if its last policy breaks the budget and so does more than half of the last {100 * LATE:g} % of "
    "its policies; the claim holds if EPIRC-PGS and RPPG do and RNPG does not, in part if one of them does and RNPG does not"
)
STABLE_RULE = (
    f"over the last {100 * LATE:g} % of the policies, the mean change from one to the next, of the reward in per cent of the "
    "bound or of the constraint in per cent of the budget, whichever is larger; RNPG is more stable than another where its "
    f"change is smaller by more than {100 * STILL:g} points; the claim holds if that is so for both on every problem, in part if in half "
    "of these comparisons"
)
RULES = f"""\
The rules behind the verdicts stand in the code.

- *End up infeasible*: {ENDING_RULE}.
- *More stable*: {STABLE_RULE}. (A standard deviation was tried first, and given up after a quick run of 150 iterations had been seen, as it counts steady progress as unrest; by it the claim failed there, by this rule it holds in part.)
- *At every iteration*, *throughout*: of all policies of a run, none breaks the budget; in part if what is claimed is so for some of the methods named."""


def table(worlds: list[dict[str, Any]]) -> str:
    rows = [
        [
            _named(w),
            style.look(run["method"]).name,
            f"{100 * run['ending']['infeasible']:.1f} %",
            f"{100 * run['ending']['late_infeasible']:.1f} %",
            yes(not run["ending"]["last_infeasible"]),
            f"{100 * _change(run, w):.3g} %",
        ]
        for w in worlds
        for run in w["runs"]
    ]
    words = ["problem", "method", "infeasible", f"of the last {100 * LATE:g} %", "last one feasible", "late change"]
    about = "Every policy on the way: how many break the budget, and how much the late ones still move.\n\n"
    return about + markdown(words, rows, left=2)


def _named(world: dict[str, Any]) -> str:
    return WORLDS[world["world"]] + (f", λ = {world['lam']:g}" if "lam" in world else "")


def _change(run: dict[str, Any], world: dict[str, Any]) -> float:
    """Mean from one late policy to the next, as a share of the bound or of the budget."""
    objective, constraint = run["ending"]["change"]
    return max(objective / abs(world["best"]), constraint / abs(world["budget"]))


def claims(worlds: list[dict[str, Any]], garnet: dict[str, Any]) -> list[Claim]:
    by_name = {w["world"]: w for w in worlds}
    found = [_ends_up(by_name["river_swim"])] if "river_swim" in by_name else []
    found.append(_stable(worlds))
    found.append(_always_feasible([*(w for w in worlds if w["world"] == "garnet"), garnet]))
    return found + ([_garbage(by_name["garbage_collector"])] if "garbage_collector" in by_name else [])


def _endings(world: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of the paper's methods."""
    return {run["method"]: run["ending"] for run in world["runs"] if run["method"] in PAPERS}


def _ends_up(world: dict[str, Any]) -> Claim:
    """The verdict by `ENDING_RULE`."""
    endings = _endings(world)
    out = {m: e["last_infeasible"] and e["late_infeasible"] > 0.5 for m, e in endings.items()}
    rivals = [out[m] for m in PAPERS[1:]]
    told = "; ".join(
        f"{style.look(m).name} {100 * e['late_infeasible']:.0f} %, the last one {'infeasible' if e['last_infeasible'] else 'feasible'}"
        for m, e in endings.items()
    )
    return Claim(
        "On river-swim EPIRC-PGS and RPPG end up infeasible, RNPG does not",
        verdict(not out["rnpg"] and all(rivals), not out["rnpg"] and any(rivals)),
        f"infeasible among the last {100 * LATE:g} % of the policies: {told}. The best feasible policy of each run, which all of "
        "them meet, is another matter: see the best policies",
    )


def _stable(worlds: list[dict[str, Any]]) -> Claim:
    """The verdict by `STABLE_RULE`."""
    won, told = [], []
    for world in worlds:
        changes = {run["method"]: _change(run, world) for run in world["runs"] if run["method"] in PAPERS}
        won += [changes["rnpg"] < changes[rival] - STILL for rival in PAPERS[1:]]
        numbers = ", ".join(f"{style.look(m).name} {100 * change:.2g} %" for m, change in changes.items())
        told.append(f"{WORLDS[world['world']]}: {numbers}")
    return Claim(
        "RNPG is more stable than RPPG and EPIRC-PGS",
        verdict(all(won), 2 * sum(won) >= len(won)),
        f"its late change from policy to policy is the smaller one in {sum(won)} of {len(won)} comparisons; {'; '.join(told)}",
    )


def _always_feasible(worlds: list[dict[str, Any]]) -> Claim:
    shares = {m: max(_endings(w)[m]["infeasible"] for w in worlds) for m in PAPERS}
    clean = [share == 0 for share in shares.values()]
    first = [w["runs"][0]["constraint"][0] for w in worlds]
    outside = any(value < w["budget"] for value, w in zip(first, worlds, strict=True))  # a utility
    begin = "; the uniform policy, where all begin, breaks it already" if outside else ""
    return Claim(
        "On garnet RNPG, RPPG and EPIRC-PGS are feasible at every iteration",
        verdict(all(clean), any(clean)),
        f"policies that break the budget: {_told_shares(shares)} ({' and '.join(_named(w) for w in worlds)}){begin}",
    )


def _garbage(world: dict[str, Any]) -> Claim:
    shares = {m: ending["infeasible"] for m, ending in _endings(world).items()}
    breaks, obey = shares["epirc_pgs"] > 0, [shares[m] == 0 for m in ("rnpg", "rppg")]
    return Claim(
        "On the garbage collector EPIRC-PGS violates the constraint, RPPG and RNPG obey it throughout",
        verdict(breaks and all(obey), breaks or all(obey)),
        f"policies that break the budget: {_told_shares(shares)}",
    )


def _told_shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{style.look(m).name} {100 * share:.1f} %" for m, share in shares.items())
