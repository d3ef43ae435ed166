"""The first run: what a robust policy is for, in two tasks, one table and one figure.

    python scripts/tour.py            about two minutes; writes runs/tour/tour.png

Each task is done twice: by a policy for the model as it is ("nominal"), and by one for a model that may be wrong ("robust").
Then both are tested in the model, and in the worst of the models that are possible.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from matplotlib.axes import Axes
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import rcac
from rcac.registry import rows
from rcac.report import style
from rcac.uncertainty import KLBall

RADIUS = 0.01  # of the KL balls around river-swim's rows
CARTPOLE = "rcac/CartPoleTradeoff-v0"
UNCERTAIN = (
    "noise_high",
    "wind",
)  # of its declared parameters, those that a training of a minute can be robust against
NOMINAL_STEPS, ROBUST_STEPS = 500_000, 1_600_000  # the robust policy needs longer
SEARCH, FRESH = 32, 256  # episodes in every context, and then at those found worst
COLOURS = {"nominal": style.BUDGET, "robust": style.BLUE}

BEFORE = """A policy must keep a cost within its budget, on a system that differs
from its model. Each task is done twice: for the model as it is (nominal), and
for one that may be wrong (robust).

1. River-swim: six islands, of which the last pays best and costs most.
   The model may be wrong by a KL divergence of .01 in every row. Solved
   exactly, in a second."""
BETWEEN = """
2. Cart-pole: it earns more left of the centre, and pays for the distance.
   Sensors may be noisier than in training, and a wind may blow. Learned from
   episodes, in a minute or two."""
AFTER = """
figure: {figure}
next:   a training with a folder, curves and checkpoints
            python scripts/train.py env=cartpole algo=rcac_npg
        what can be trained, and how
            python scripts/train.py --help"""


class Test(NamedTuple):
    """One policy of one task."""

    name: str  # nominal or robust
    trained: tuple[float, float]  # return and cost in the model it was made with
    worst: tuple[float, float]  # the least return and the largest cost in a possible model
    lost: float | None = None  # steps that an episode loses to a fall, where it loses most
    others: Sequence[tuple[float, float]] = ()  # return and cost in each of the possible models tried


class Task(NamedTuple):
    title: str
    budget: float
    most_lost: float | None  # budget on the steps lost
    tests: list[Test]

    def broken(self, test: Test) -> list[str]:
        """What is over its budget in the worst case."""
        fell = test.lost is not None and self.most_lost is not None and test.lost > self.most_lost
        return (["cost"] if test.worst[1] > self.budget else []) + (["falls"] if fell else [])


def river_swim() -> Task:
    """A table of six states, solved exactly: nothing is sampled."""
    problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
    possible = KLBall(RADIUS)
    tests = []
    for name, solution in (
        ("nominal", rcac.solve(problem, "rsqp", "nominal")),
        ("robust", rcac.solve(problem, "rsqp", possible)),
    ):
        both = [rcac.evaluate(problem, solution.policy, where).returns for where in (None, possible)]
        [trained, worst] = [(float(-returns[0]), float(returns[1])) for returns in both]
        tests.append(Test(name, trained, worst))
    return Task("River-swim", float(problem.budgets[0]), None, tests)


def cartpole(steps: Sequence[int], seed: int) -> Task:
    """A cart-pole that earns more to the left, and pays for being away from the centre: learned from episodes."""
    row = rows("env")["cartpole_tradeoff"]
    box = {name: row["ranges"][name] for name in UNCERTAIN}
    contexts = [dict(zip(box, values, strict=True)) for values in product(*map(_three, box.values()))]
    noise = row["kwargs"]["noise_high"]
    tests = []
    for name, uncertainty, total in (("nominal", "nominal", steps[0]), ("robust", box, steps[1])):
        print(f"   training the {name} policy, {total:,} steps …", flush=True)
        policy = rcac.train(
            CARTPOLE, algo="rcac_sqp", uncertainty=uncertainty, total_steps=total, num_envs=128, seed=seed
        ).policy

        def play(context: Mapping[str, float], episodes: int, number: int, policy: Any = policy) -> np.ndarray:
            """Mean return, cost, and steps lost."""
            found = rcac.evaluate_policy(policy, CARTPOLE, episodes, seed=seed + number, num_envs=episodes, **context)
            return np.array([found.returns.mean(), *found.costs.mean(axis=0)])

        found = np.array([play(context, SEARCH, 1) for context in contexts])  # (9, 3)
        ends = (found[:, 0].argmin(), found[:, 1].argmax(), found[:, 2].argmax())
        # again, on other episodes: the largest of many means is too large by chance
        worst = [float(play(contexts[end], FRESH, 2)[k]) for k, end in enumerate(ends)]
        trained = play({"noise_high": noise}, FRESH, 3)
        others = [(float(earned), float(cost)) for earned, cost, _ in found]
        tests.append(Test(name, (float(trained[0]), float(trained[1])), (worst[0], worst[1]), worst[2], others))
    return Task("Cart-pole", float(row["budgets"][0]), float(row["failure_budget"]), tests)


def _three(ends: Sequence[float]) -> list[float]:
    """Both ends of a range, and its middle."""
    low, high = ends
    return [low, (low + high) / 2, high]


def table(tasks: Sequence[Task]) -> Table:
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("")
    for heading in ("\nreturn", "\ncost", "worst\nreturn", "worst\ncost", "steps\nlost"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("within budget in\nthe worst case?", no_wrap=True)
    for task in tasks:
        falls = "" if task.most_lost is None else f"{task.most_lost:g}"
        shown.add_row(f"[bold]{task.title}[/bold], budget", "", "", "", f"{task.budget:g}", falls)
        for test in task.tests:
            numbers = [f"{value:.1f}" for value in (*test.trained, *test.worst)]
            lost = "" if test.lost is None else f"{test.lost:.1f}"
            broken = task.broken(test)
            verdict = f"[red]no: {', '.join(broken)}" if broken else "[green]yes"
            shown.add_row(f"  {test.name} policy", *numbers, lost, verdict, end_section=test is task.tests[-1])
    return shown


def picture(tasks: Sequence[Task], folder: Path) -> None:
    shown = style.figure(9.0, 3.9)
    for axes, task in zip(shown.subplots(1, len(tasks)), tasks, strict=True):
        style.panel(axes, task.title, "return", "cost")
        for test in task.tests:
            _path(axes, test)
        style.level(axes, task.budget, f"budget {task.budget:g}", style.INK)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
        axes.margins(0.1, 0.2)
    style.note(
        shown,
        "Rings: as trained. Diamonds: the least return and the largest cost in the worst case. Small dots: each context "
        "tried (noise × wind). Above the line the budget is broken.",
    )
    folder.mkdir(parents=True, exist_ok=True)
    style.save(shown, folder, "tour")


def _path(axes: Axes, test: Test) -> None:
    colour = COLOURS[test.name]
    if test.others:
        axes.plot(*zip(*test.others, strict=True), ".", color=colour, alpha=0.35, markersize=5)
    axes.annotate("", test.worst, test.trained, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.2})
    axes.plot(*test.trained, "o", color=colour, markerfacecolor="white", markersize=7)
    axes.plot(*test.worst, "D", color=colour, markersize=6, label=f"{test.name} policy")


def conclusion(tasks: Sequence[Task]) -> str:
    """In words, whatever came out."""
    lines = []
    for task in tasks:
        nominal, robust = task.tests
        kept, broke = not task.broken(robust), bool(task.broken(nominal))
        price = nominal.trained[0] - robust.trained[0]
        if broke and kept:
            words = (
                f"only the robust policy keeps its budget in the worst case,\n  for {price:.1f} less return as trained"
            )
        elif broke:
            words = "neither policy keeps its budget in the worst case;\n  more steps may help (--steps)"
        else:
            words = "both policies keep their budget in the worst case" if kept else "only the nominal policy keeps it"
        lines.append(f"{task.title}: {words}.")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--steps", type=int, nargs=2, default=(NOMINAL_STEPS, ROBUST_STEPS), metavar=("NOMINAL", "ROBUST")
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/tour"))
    given = parser.parse_args(argv)
    print(BEFORE, flush=True)
    first = river_swim()
    print(BETWEEN, flush=True)
    tasks = [first, cartpole(given.steps, given.seed)]
    picture(tasks, given.folder)
    print()
    Console().print(table(tasks))
    print(conclusion(tasks))
    print(AFTER.format(figure=given.folder / "tour.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
