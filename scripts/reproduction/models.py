"""The paper's tables of environments and hyperparameters, read off our models and settings, beside what it prints.

Transitions come from the kernel that the solvers see, rewards, costs and hyperparameters from the configuration. In the
grids x is the row and y the column, as in the paper.
"""

from typing import Any

import numpy as np

from rcac import registry
from rcac.problem import RCMDP
from rcac.report.tables import markdown
from reproduction import forms
from reproduction.section import Claim, PieceCache, Result, Section, verdict
from reproduction.tabular import PROBLEMS, STEP_SIZES, load_problem

SWIM = ["left", "right"]  # actions a_0, a_1
MOVES = ["left", "down", "right", "up"]  # actions on a grid, in the order of the models
SIDE = 4

# As printed. River-swim: by state and action, the next states; s_0 right and s_5 left are printed with a move that
# leaves the river.
SWIM_PRINTED = {
    (0, "left"): {0: 0.9, 1: 0.1},
    **{(s, "left"): {s - 1: 0.3, s: 0.6, s + 1: 0.1} for s in range(1, 6)},
    **{(s, "right"): {s - 1: 0.1, s: 0.6, s + 1: 0.3} for s in range(5)},
    (5, "right"): {4: 0.1, 5: 0.9},
}
# Grids: a cell of each kind that the table names, the action, the next cells.
GRID_PRINTED: dict[tuple[tuple[int, int], str], dict[tuple[int, int], float]] = {
    ((0, 0), "up"): {(0, 0): 2 / 3, (1, 0): 1 / 6, (0, 1): 1 / 6},
    ((0, 1), "up"): {(0, 1): 1 / 2, (1, 1): 1 / 6, (0, 2): 1 / 6, (0, 0): 1 / 6},
    ((1, 1), "up"): {(0, 1): 1 / 2, (2, 1): 1 / 6, (1, 2): 1 / 6, (1, 0): 1 / 6},
    ((0, 0), "left"): {(0, 0): 2 / 3, (1, 0): 1 / 6, (0, 1): 1 / 6},
    ((1, 0), "left"): {(1, 0): 1 / 2, (2, 0): 1 / 6, (0, 0): 1 / 6, (1, 1): 1 / 6},
    ((1, 1), "left"): {(1, 0): 1 / 2, (2, 1): 1 / 6, (1, 2): 1 / 6, (0, 1): 1 / 6},
    ((3, 3), "down"): {(3, 3): 2 / 3, (2, 3): 1 / 6, (3, 2): 1 / 6},
    ((3, 1), "down"): {(3, 1): 1 / 2, (2, 1): 1 / 6, (3, 2): 1 / 6, (3, 0): 1 / 6},
    ((1, 1), "down"): {(2, 1): 1 / 2, (0, 1): 1 / 6, (1, 2): 1 / 6, (1, 0): 1 / 6},
    ((3, 3), "right"): {(3, 3): 2 / 3, (2, 3): 1 / 6, (3, 2): 1 / 6},
    ((1, 3), "right"): {(1, 3): 1 / 2, (2, 3): 1 / 6, (0, 3): 1 / 6, (1, 2): 1 / 6},
    ((1, 1), "right"): {(1, 0): 1 / 2, (2, 1): 1 / 6, (1, 2): 1 / 6, (0, 1): 1 / 6},  # to the left, as printed
}
PRINTED_AMOUNTS: dict[str, dict[str, tuple[float | None, float | None]]] = {  # reward, cost
    "river_swim": {
        "s0": (0.001, 0.2),
        "s1": (0, 0.035),
        "s2": (0, 0),
        "s3": (0, 0.01),
        "s4": (0.1, 0.08),
        "s5": (1, 0.9),
    },
    "frozen_lake": {"goal": (1, 0), "hole": (0, 0.3), "obstacle": (0.01, 1), "free": (0.05, 0)},
    "garbage_collector": {"goal": (1, 0.01), "garbage": (0.01, None), "blockage": (None, 1), "free": (0.001, 0.01)},
}
ROWS = ["states", "actions", "budget b", "γ", "θ = C_KL/α_kle", "RPPG's λ", "RNPG's λ", "RNPG's step α"]
PRINTED_NUMBERS = {
    "river_swim": [6, 2, 42, 0.99, 0.1 / 1e-4, 10, 50, 1e-3],
    "garnet": [15, 20, 90, 0.99, 0.05 / 1e-3, 15, 50, 1e-3],
    "frozen_lake": [15, 4, 55, 0.99, 0.02 / 1e-3, 50, 50, 1e-3],
    "garbage_collector": [15, 4, 60, 0.99, 0.02 / 1e-3, 50, 50, 1e-3],
}


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    swim, grid = load_problem("river_swim"), load_problem("frozen_lake")
    return {
        "swim": [[s, a, _next(swim, s, SWIM.index(a))] for s, a in SWIM_PRINTED],
        "grid": [[cell, a, _next(grid, cell[0] * SIDE + cell[1], MOVES.index(a))] for cell, a in GRID_PRINTED],
        "amounts": {problem: _amounts(problem) for problem in PRINTED_AMOUNTS},
        "numbers": {problem: _numbers(problem, forms.OURS) for problem in PROBLEMS},
        "preset": {problem: _numbers(problem, "paper") for problem in PROBLEMS},
    }


def _next(model: RCMDP, state: int, action: int) -> list[tuple[int, float]]:
    """Next states with their probabilities, the likely ones first."""
    row = np.asarray(model.kernel[state, action]).tolist()
    successors = sorted((s for s, p in enumerate(row) if p > 0), key=lambda s: (-round(row[s], 9), s))
    return [(s, row[s]) for s in successors]


def _amounts(problem: str) -> dict[str, list[float | None]]:
    """Reward and cost by state, or by kind of cell."""
    own = registry.rows("env")[problem]["kwargs"]
    rewards, costs = own["rewards"], own["costs"]
    if isinstance(rewards, list):
        rewards, costs = ({f"s{s}": value for s, value in enumerate(values)} for values in (rewards, costs))
    return {kind: [rewards.get(kind), costs.get(kind)] for kind in PRINTED_AMOUNTS[problem]}


def _numbers(problem: str, form: str) -> list[float]:
    """Of `ROWS`: the model's, the environment's and the methods'."""
    model, row, algos = load_problem(problem), registry.rows("env")[problem], registry.rows("algo")
    budget = float(abs(model.budgets[0]))
    rppg, rnpg = (algos[method] | forms.options(form, method, problem) for method in ("rppg", "rnpg"))
    own = [float(row["temperature"]), float(rppg["lam"]), float(rnpg["lam"]), float(rnpg["step_size"])]
    return [model.num_states, model.num_actions, budget, model.discount, *own]


# What differs from the paper


def _same(one: float | None, other: float | None) -> bool:
    return one is None or other is None or bool(np.isclose(one, other, rtol=1e-6, atol=1e-9))


def _checks(result: Result) -> list[tuple[str, bool]]:
    """Every printed entry, by name, and whether ours is the same; "-" is no entry."""
    found = []
    for s, action, own in result["swim"]:
        found.append((f"river-swim, s{s} {action}", _equal(dict(own), SWIM_PRINTED[s, action])))
    for cell, action, own in result["grid"]:
        found.append((f"frozen-lake, {tuple(cell)} {action}", _equal(dict(own), _grid_printed(cell, action))))
    for problem, kinds in result["amounts"].items():
        for kind, own in kinds.items():
            for word, ours, theirs in zip(("reward", "cost"), own, PRINTED_AMOUNTS[problem][kind], strict=True):
                if theirs is not None:
                    found.append((f"{PROBLEMS[problem]}, {word} of {kind}", _same(ours, theirs)))
    for problem, own in result["numbers"].items():
        for name, ours, theirs in zip(ROWS, own, PRINTED_NUMBERS[problem], strict=True):
            found.append((f"{PROBLEMS[problem]}, {name}", _same(ours, theirs)))
    return found


def _grid_printed(cell: list[int], action: str) -> dict[int, float]:
    """By the number of the next cell."""
    return {x * SIDE + y: p for (x, y), p in GRID_PRINTED[(cell[0], cell[1]), action].items()}


def _equal(ours: dict[int, float], theirs: dict[int, float]) -> bool:
    return ours.keys() == theirs.keys() and all(_same(ours[s], theirs[s]) for s in ours)


def claims(result: Result) -> list[Claim]:
    checks = _checks(result)
    other = [name for name, same in checks if not same]
    preset = [
        _same(ours, theirs)
        for problem, own in result["preset"].items()
        for ours, theirs in zip(own[4:], PRINTED_NUMBERS[problem][4:], strict=True)
    ]
    return [
        Claim(
            "(Ours) The models and default settings are those of the paper's tables",
            verdict(not other, 2 * len(other) <= len(checks)),
            f"{len(checks) - len(other)} of {len(checks)} printed entries are ours too; others: {'; '.join(other) or 'none'}",
        ),
        Claim(
            "(Ours) The settings of `preset=paper` are those of its tables",
            verdict(all(preset), any(preset)),
            f"{sum(preset)} of {len(preset)} printed temperatures, λ and step sizes",
        ),
    ]


# Tables


def tables(result: Result) -> str:
    parts = [
        "Transitions of river-swim. Printed rows that leave the river stay where they are here.\n\n"
        + markdown(
            ["state", "action", "next states", "as printed"],
            [
                [
                    f"s{s}",
                    action,
                    _format_successors(own, "s{}"),
                    "yes" if _equal(dict(own), SWIM_PRINTED[s, action]) else "no",
                ]
                for s, action, own in result["swim"]
            ],
            left=4,
        ),
        "Transitions on the grids, frozen-lake's and the garbage collector's: (x, y), x the row, a cell of each kind that the "
        "paper's table has. It prints the last row with (x, y−1) for a move to the right.\n\n"
        + markdown(["cell", "action", "next cells", "as printed"], [_grid_row(*row) for row in result["grid"]], left=4),
    ]
    for problem, kinds in result["amounts"].items():
        rows = []
        for kind, own in kinds.items():
            printed = PRINTED_AMOUNTS[problem][kind]
            rows.append([kind, *map(_number, own), ", ".join(map(_number, printed))])
        parts.append(f"{PROBLEMS[problem].capitalize()}.\n\n" + markdown(["", "reward", "cost", "printed"], rows))
    numbers = [
        [
            name,
            *(
                _number(own[k])
                + ("" if _same(own[k], PRINTED_NUMBERS[problem][k]) else f" ({PRINTED_NUMBERS[problem][k]:g})")
                for problem, own in result["numbers"].items()
            ),
        ]
        for k, name in enumerate(ROWS)
    ]
    parts.append(
        "Hyperparameters: our defaults, in brackets the paper's where it prints others. The best policies are found with the "
        "paper's λ. Step sizes that we tune over: "
        f"{', '.join(f'{a:g}' for a in STEP_SIZES)}.\n\n"
        + markdown(["", *(PROBLEMS[problem] for problem in result["numbers"])], numbers)
    )
    return "\n\n".join(parts)


def _grid_row(cell: list[int], action: str, own: list[tuple[int, float]]) -> list[str]:
    successors = ", ".join(f"({s // SIDE}, {s % SIDE}) {p:.3g}" for s, p in own)
    return [str(tuple(cell)), action, successors, "yes" if _equal(dict(own), _grid_printed(cell, action)) else "no"]


def _format_successors(own: list[tuple[int, float]], pattern: str) -> str:
    return ", ".join(f"{pattern.format(s)} {p:.3g}" for s, p in own)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


SECTION = Section(
    "models",
    "Appendix: the problems and their settings",
    "The paper's tables of transitions, rewards, costs and hyperparameters, from our models and configuration. Of garnet, "
    "rewards and transitions are random: the paper does not print them.",
    "tabular",
    {"quick": {}, "full": {}},
    compute,
    tables,
    lambda result: {},
    claims,
)
