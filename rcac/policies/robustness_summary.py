"""What the runs of a study say together: for each method and strength, a statistic over seeds.

Values are interquartile means with bootstrap intervals. The worst over a sweep (least return, largest cost) is taken
for each seed first. The feasible fraction is the share of a method's seeds that are within every budget; beside it
stands the share of single episodes (or random kernels) that are, though a budget is a promise about their mean.

Seeds whose values are all the same, as those of a method without chance, are no sample: they have no interval.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcac.labels import larger_is_better
from rcac.policies.robustness import RunScores
from rcac.policies.scores import TermScore
from rcac.report.statistics import Interval, interval

SERIES = {  # what of a row is followed over a sweep: words, and what is sampled for it
    "mean": ("mean of episodes", "episodes"),
    "kernels_mean": ("mean of random kernels", "kernels"),
    "kernels_worst": ("worst of random kernels", "kernels"),
    "worst_case": ("worst case", ""),
}


class Method(NamedTuple):
    algo: str
    setting: str


class Point(NamedTuple):
    """A method at one strength, or at the worst of all."""

    strength: float | None
    terms: list[Interval]  # over seeds, objective first
    feasible: int  # seeds within every budget
    share: float | None  # of episodes or kernels within every budget, mean over seeds


class MethodCurve(NamedTuple):
    method: Method
    seeds: int
    points: list[Point]  # by rising strength
    worst: Point  # over the strengths
    alike: bool  # several seeds, and the same values of all
    runs: np.ndarray  # (seeds, N+1): the mean return over the strengths, and the worst of each cost

    @property
    def spread(self) -> bool:
        return self.seeds > 1 and not self.alike


class PerturbationSweep(NamedTuple):
    """One environment under one perturbation, all methods."""

    env: str
    perturbation: str
    series: str  # words: mean of episodes, worst case, …
    sampled: str  # "episodes", "kernels" or, for one exact value, ""
    labels: list[str]  # of the terms
    budgets: list[list[float | None]]  # (N+1) × strengths
    strengths: list[float | None]
    curves: list[MethodCurve]
    discounted: bool
    units: Sequence[str] = ()  # of the costs, where the environment says so

    @property
    def constrained(self) -> bool:
        return len(self.labels) > 1


def summarise(records: Sequence[RunScores]) -> list[PerturbationSweep]:
    """In the order of the records."""
    together: dict[tuple[str, str, str, str], list[RunScores]] = {}
    for record in records:
        run, condition, rows = record
        for field, (words, _) in SERIES.items():
            beside = (
                field == "worst_case" and rows[0].kernels
            )  # what random kernels are within; sweep.radius follows it
            if getattr(rows[0], field) is not None and not beside:
                series = words if field == "mean" or not condition.uncertainty else f"{words}, {condition.uncertainty}"
                together.setdefault((run.env, condition.perturbation, series, field), []).append(record)
    return [_sweep(*key, members) for key, members in together.items()]


def _sweep(env: str, perturbation: str, series: str, field: str, records: list[RunScores]) -> PerturbationSweep:
    strengths = list(dict.fromkeys(record.condition.strength for record in records))
    first = {record.condition.strength: record.rows for record in reversed(records)}
    labels = [row.term for row in records[0].rows]
    budgets = [[first[strength][k].budget for strength in strengths] for k in range(len(labels))]
    methods: dict[Method, list[RunScores]] = {}
    for record in records:
        methods.setdefault(Method(record.run.algo, record.run.setting), []).append(record)
    curves = [_curve(method, members, field, strengths) for method, members in methods.items()]
    discounted = records[0].rows[0].discount < 1
    return PerturbationSweep(
        env, perturbation, series, SERIES[field][1], labels, budgets, strengths, curves, discounted
    )


def _curve(method: Method, records: list[RunScores], field: str, strengths: list[float | None]) -> MethodCurve:
    found = {(record.run.folder, record.condition.strength): record.rows for record in records}
    seeds = list(dict.fromkeys(record.run.folder for record in records))
    values = np.array([[[getattr(row, field) for row in found[seed, x]] for x in strengths] for seed in seeds])
    alike = len(seeds) > 1 and np.allclose(values, values[0], rtol=1e-9, atol=1e-12)
    points = [_point(strength, [found[seed, strength] for seed in seeds], field, alike) for strength in strengths]
    worst_rows = [_worst([found[seed, x] for x in strengths], field) for seed in seeds]
    worst = _point(None, worst_rows, field, alike)._replace(share=None)
    runs = np.array([[getattr(row, field) for row in rows] for rows in worst_rows], dtype=float)
    runs[:, 0] = values[:, :, 0].mean(axis=1)
    return MethodCurve(method, len(seeds), points, worst, alike, runs)


def _point(strength: float | None, seeds: list[list[TermScore]], field: str, alike: bool) -> Point:
    """`seeds` has the rows of each."""
    values = np.array([[getattr(row, field) for row in rows] for rows in seeds])  # (seeds, N+1)
    sample = values[:1] if alike else values
    met = [all(row.meets(getattr(row, field)) for row in rows) for rows in seeds]
    shares = [rows[0].within for rows in seeds]
    share = None if None in shares else float(np.mean(shares))  # type: ignore[arg-type]
    return Point(strength, [interval([column]) for column in sample.T], sum(met), share)


def _worst(rows: list[list[TermScore]], field: str) -> list[TermScore]:
    """Of one seed's rows at every strength, the worst for each term (each may be at another strength)."""
    return [
        (min if larger_is_better(terms[0].term) else max)(terms, key=lambda row: getattr(row, field))
        for terms in zip(*rows, strict=True)
    ]
