"""Assumption 2 of the paper, on which its rate rests: some β < 1 has γ p(s'|s,a) ≤ β p0(s'|s,a) for all p in the set.

    β = γ · max over s, a, s' of  max { q(s') : q in 𝒫(s,a) } / p0(s'|s,a)

The inner maximum is the set's own answer for the values H·1[s'], H = 1/(1−γ). A KL penalty admits every q at a price; what it
can answer for values in [0, H] are tilts, and of these that one has the most at s', so β is over what the evaluator can return.
As 𝒫 holds p0, β ≥ γ; and β < 1 asks that no probability grows by more than 1/γ, which is 1 % at γ .99.
"""

from typing import Any

import numpy as np

from rcac.problem import RCMDP
from rcac.report.tables import markdown
from rcac.uncertainty.base import Uncertainty
from reproduction import other_sets
from reproduction.section import Claim, decide
from reproduction.tabular import PROBLEMS, SETS, load_problem, make_uncertainty

RECTANGULAR = {name: other_sets.OTHER_SETS[name] for name in ("total_variation", "chi_square", "wasserstein")}


def beta(model: RCMDP, uncertainty: Uncertainty) -> float:
    """The least β of the assumption; ∞ where the set leaves the nominal support."""
    states = model.num_states
    worst = uncertainty.sweep(np.eye(states) / (1 - model.discount), model.rows)
    most = np.stack([worst.dense(k, states)[:, k] for k in range(states)], axis=1)  # (S·A, S)
    nominal = model.rows.matrix().toarray()
    ratios = np.divide(most, nominal, out=np.where(most > 0, np.inf, 0.0), where=nominal > 0)
    return float(model.discount * ratios.max())


def compute() -> list[dict[str, Any]]:
    """For every problem and set; no number where β is infinite."""
    found = []
    for problem in PROBLEMS:
        model = load_problem(problem)
        sets = {name: make_uncertainty(name, problem) for name in SETS}
        if problem != "garnet":  # whose states have no distance
            sets |= {name: other_sets.make(name, model) for name in RECTANGULAR}
        for name, uncertain in sets.items():
            value = beta(model, uncertain)
            found.append({"problem": problem, "set": name, "beta": value if np.isfinite(value) else None})
    return found


def applies(row: dict[str, Any]) -> bool:
    return row["beta"] is not None and row["beta"] < 1


def table(rows: list[dict[str, Any]]) -> str:
    names, by = SETS | RECTANGULAR, {(row["problem"], row["set"]): row for row in rows}

    def shown(problem: str, name: str) -> str:
        row = by.get((problem, name))
        return "" if row is None else "∞" if row["beta"] is None else f"{row['beta']:.3f}"

    cells = [[words, *(shown(problem, name) for name in names)] for problem, words in PROBLEMS.items()]
    return (
        "β of the paper's Assumption 2; its theorems apply where it is below 1. ∞: the set leaves the nominal support.\n\n"
        + markdown(["problem", *names.values()], cells, left=1)
    )


def claim(rows: list[dict[str, Any]]) -> Claim:
    own = [row for row in rows if row["set"] in SETS]
    least = min((row for row in own if row["beta"] is not None), key=lambda row: row["beta"])
    return Claim(
        "The rate theorems apply to the paper's problems: a β below 1 exists, as its Assumption 2 wants",
        decide([applies(row) for row in own]),
        f"β is below 1 for {sum(map(applies, own))} of {len(own)} problems and sets; the least is {least['beta']:.3f}, on "
        f"{PROBLEMS[least['problem']]} with the {SETS[least['set']]}",
    )
