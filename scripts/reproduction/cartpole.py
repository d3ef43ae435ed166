"""Noisy CartPole: six actor-critics, each tuned alike, trained and tested at δ = .04, and tested at other strengths."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac.report import style
from rcac.report.statistics import interval
from rcac.report.tables import markdown
from reproduction import cac_variants, deep
from reproduction.perturbed import AS_TRAINED, seed_costs
from reproduction.section import BUDGET_RULE, Claim, PieceCache, Result, Section, at_most, decide, verdict
from reproduction.tuning import EFFORT, format_setting, tune, tuning_table

ENV = "cartpole"
MIN_RETURN = 490.0  # mean return
ALIKE = ["cac", "rcac", "rcac_npg", "robust_crpo_deep"]
ALIKE_RULE = (
    "of CAC, RCAC, RCAC-NPG and robust CRPO, interquartile means over seeds of the last fifth of training, all returns are "
    "at least nine tenths of the largest, and all costs within a tenth of the budget of each other, while EPIRC-PGS returns "
    "less than nine tenths; in part if returns or costs are alike"
)
RULES = f"""\
The rules behind the verdicts stand in the code. A claim about seeds holds if it is so on every seed, in part if on some.

- *The robust actor-critics*, RCAC, RCAC-NPG and RCAC-SQP, return enough within the budget: a seed's mean return is at least {MIN_RETURN:g}, its mean cost at most {deep.BUDGET:g}.
- *CAC* breaks the budget: {cac_variants.RULE}. RCAC trained without noise is reported as well, because it shows the cause: if it breaks the budget too, the missing noise is the cause, not the missing norm. (Fixed after a run of 5 seeds had been seen.)
- *Robust CRPO* breaks the budget: {BUDGET_RULE}
- *All but EPIRC-PGS perform alike in training*: {ALIKE_RULE}.
- *EPIRC-PGS* does not converge and is slow: less than half of RCAC-NPG's return, and at least 3 times its seconds; in part if one of the two; undecided if the interval of its return crosses the half, and that could tip it."""
PAPER_OWN = ["rcac", "rcac_npg"]  # shown alone in a figure of the paper
PRINTED = {  # return, cost, seconds
    "cac": (495.23, 294.62, 6815.89),
    "rcac": (494.81, 177.84, 5975.65),
    "rcac_npg": (495.0, 197.99, 7175.31),
    "robust_crpo_deep": (488.07, 213.47, 4275.67),
    "epirc_pgs_deep": (114.8, 53.79, 24029.01),
}


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    tests = deep.perturbation_tests("noise", "noise_high", settings["noise"])
    tuned = tune(ENV, settings["algorithms"], settings, cache)
    wanted = [(algo, ()) for algo in tuned] + [(algo, (cac_variants.WITHOUT_NOISE,)) for algo in settings["clean"]]
    groups = {
        (algo, more): [
            deep.TrainingSpec(ENV, algo, seed, (*tuned[algo]["best"], *more)) for seed in deep.seeds(settings)
        ]
        for algo, more in wanted
    }
    found = deep.train_and_test(groups, tests, settings, cache)
    about = {key: settings[key] for key in ("steps", "episodes", "tuning_steps", "tuning_seeds")}
    return {
        "tuned": tuned,
        "methods": {algo: found[algo, ()] for algo in tuned},
        "clean": {algo: found[algo, (cac_variants.WITHOUT_NOISE,)] for algo in settings["clean"]},
        **about,
    }


def _meets_target(run: dict[str, Any]) -> bool:
    value, cost = deep.mean_scores(run, "noise", deep.TRAINED)
    return value >= MIN_RETURN and cost <= deep.BUDGET


def tables(result: Result) -> str:
    rows = []
    for algo, runs in result["methods"].items():
        value, cost = deep.over_seeds(runs, "noise", deep.TRAINED)
        by_seed = np.array([deep.mean_scores(run, "noise", deep.TRAINED) for run in runs])
        seconds = interval([[run["seconds"] for run in runs]]).estimate
        printed = PRINTED.get(algo)
        rows.append(
            [
                style.look(algo).name,
                format_setting(result["tuned"][algo]["best"]),
                deep.format_interval(value),
                deep.format_interval(cost),
                f"{by_seed[:, 0].min():.1f}",
                f"{by_seed[:, 1].max():.1f}",
                f"{sum(_meets_target(run) for run in runs)} of {len(runs)}",
                f"{seconds:.0f}",
                "–" if printed is None else f"{printed[0]:g}, {printed[1]:g}, {printed[2]:,.0f} s",
            ]
        )
    header = ["method", "setting", "return", "cost (≤ 200)", "worst seed's return", "worst seed's cost"]
    header += [f"seeds with ≥ {MIN_RETURN:g} and ≤ {deep.BUDGET:g}", "seconds", "the paper's return, cost, time"]
    some = next(iter(result["methods"].values()))
    measured = (
        f"{len(some)} seeds × {result['steps']:,} environment steps, every method with its own tuned setting; "
        f"{result['episodes']} test episodes each at δ .04. Interquartile means over seeds with 95 % bootstrap intervals."
    )
    clean = [cac_variants.table(result["methods"], result["clean"])] if result["clean"] else []
    return "\n\n".join([RULES, measured, markdown(header, rows, left=2), *clean, tuning_table(result)])


def figures(result: Result) -> dict[str, Figure]:
    methods, found = result["methods"], {}
    found["cartpole_training"] = _training(methods)
    if all(algo in methods for algo in PAPER_OWN):
        found["cartpole_own"] = _training({algo: methods[algo] for algo in PAPER_OWN})
    found["cartpole_test"] = _test(methods)
    found["cartpole_noise"] = _noise(result)
    return found


def _training(methods: dict[str, Any]) -> Figure:
    fig = style.figure(7.4, 3.1)
    left, right = fig.subplots(1, 2)
    style.panel(left, "training, δ .04", "environment steps", "return of recent episodes")
    style.panel(right, "", "environment steps", "cost of recent episodes, Σ|x| (m)")
    for algo, runs in methods.items():
        deep.draw_training((left, right), runs, algo)
    style.level(right, deep.BUDGET, f"budget {deep.BUDGET:g}")
    for axes in (left, right):
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}k")
        axes.set_ylim(bottom=0)
    style.legend(fig, list(methods), rows=2 if len(methods) > 4 else 1)
    style.note(fig, deep.training_note(methods))
    return fig


def _test(methods: dict[str, Any]) -> Figure:
    fig = style.figure(7.4, 3.1)
    left, right = fig.subplots(1, 2, sharex=True)
    style.panel(left, "test, δ .04, all seeds", "test episodes, sorted", "return of an episode")
    style.panel(right, "", "test episodes, sorted", "cost of an episode, Σ|x| (m)")
    for algo, runs in methods.items():
        for axes, name in ((left, "returns"), (right, "costs")):
            values = [
                t[name] for run in runs for t in run["tests"] if (t["kind"], t["strength"]) == ("noise", deep.TRAINED)
            ]
            pooled = np.sort(np.concatenate(values))
            axes.plot(
                100 * (np.arange(len(pooled)) + 0.5) / len(pooled), pooled, **style.look(algo).line(linewidth=1.3)
            )
    style.level(right, deep.BUDGET, f"budget {deep.BUDGET:g}, on the mean", left=True)
    for axes in (left, right):
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0f} %")
        axes.set_xlim(0, 100)
        axes.set_ylim(bottom=0)
    style.legend(fig, list(methods), rows=2)
    style.note(fig, "Every test episode of all seeds, from the least to the largest.")
    return fig


def _noise(result: Result) -> Figure:
    methods = result["methods"]
    curves = methods | {f"{algo}_clean": runs for algo, runs in result["clean"].items()}
    fig = style.figure(7.8, 3.4)
    left, right = fig.subplots(1, 2, sharex=True)
    style.panel(left, "trained at δ .04 unless named, tested at others", "noise δ on the observation", "mean return")
    style.panel(right, "", "noise δ on the observation", "mean cost, Σ|x| (m)")
    for algo, runs in curves.items():
        deep.draw_sweep((left, right), runs, algo, "noise")
    style.level(right, deep.BUDGET, f"budget {deep.BUDGET:g}", left=True)
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    style.legend(fig, list(curves), markers=True, rows=2)
    style.note(fig, f"{deep.sweep_note(curves, result['episodes'])}{_coinciding_note(methods)}")
    return fig


def _coinciding_note(methods: dict[str, Any]) -> str:
    """Which lines of the left panel lie upon each other, if more than two do."""
    same = deep.coinciding(methods, "noise")
    if len(same) < 3:
        return ""
    names = (
        f"all {len(same)} that were" if len(same) == len(methods) else f"{', '.join(style.look(m).name for m in same)},"
    )
    return f" Left, {names} trained at δ .04 coincide: their returns are within 1 % of each other."


def claims(result: Result) -> list[Claim]:
    methods = result["methods"]
    good = {algo: [_meets_target(run) for run in methods[algo]] for algo in deep.ROBUST if algo in methods}
    costs = {algo: seed_costs(runs, AS_TRAINED) for algo, runs in methods.items()}
    values = {algo: deep.over_seeds(runs, "noise", deep.TRAINED) for algo, runs in methods.items()}
    seconds = {algo: interval([[run["seconds"] for run in runs]]).estimate for algo, runs in methods.items()}
    found = []

    def format_seeds(algo: str) -> str:
        return f"{style.look(algo).name} {values[algo][0].estimate:.1f} at a cost of {costs[algo]}"

    if good:
        on_every_seed = [ok for oks in good.values() for ok in oks]
        found.append(
            Claim(
                f"The robust actor-critics return at least {MIN_RETURN:g} within the budget, on every seed",
                verdict(all(on_every_seed), any(on_every_seed)),
                "; ".join(format_seeds(algo) for algo in good),
            )
        )
    if "cac" in methods and "cac" in result["clean"]:
        found.append(cac_variants.claim(methods, result["clean"]))
    if (algo := "robust_crpo_deep") in methods:
        words = "Robust CRPO breaks the budget slightly in the test"
        found.append(Claim(words, decide([costs[algo].breaks]), format_seeds(algo)))
    if all(algo in methods for algo in [*ALIKE, "epirc_pgs_deep"]):
        found.append(_alike(methods))
    if "epirc_pgs_deep" in methods and "rcac_npg" in methods:
        low = at_most(*values["epirc_pgs_deep"][0][1:], 0.5 * values["rcac_npg"][0].estimate)
        times = seconds["epirc_pgs_deep"] / seconds["rcac_npg"]
        found.append(
            Claim(
                "EPIRC-PGS does not converge, and takes about 4 times as long",
                decide([low, times >= 3]),
                f"{format_seeds('epirc_pgs_deep')}; {times:.1f} times RCAC-NPG's time for as many steps",
            )
        )
    return found


def _alike(methods: dict[str, Any]) -> Claim:
    """The verdict by `ALIKE_RULE`."""
    scores = {algo: tuple(x.estimate for x in deep.late_training(methods[algo])) for algo in [*ALIKE, "epirc_pgs_deep"]}
    values, costs = ([scores[algo][k] for algo in ALIKE] for k in (0, 1))
    same = min(values) >= 0.9 * max(values), max(costs) - min(costs) <= 0.1 * deep.BUDGET
    apart = scores["epirc_pgs_deep"][0] < 0.9 * max(values)
    scores_text = ", ".join(f"{style.look(m).name} {value:.0f} at {cost:.0f}" for m, (value, cost) in scores.items())
    return Claim(
        "In training all but EPIRC-PGS perform alike in return and cost",
        verdict(all(same) and apart, any(same)),
        f"return and cost of recent episodes over the last fifth of training: {scores_text}",
    )


CLEAN = ["cac", "rcac"]
NOISE = [0.0, 0.02, 0.04, 0.06, 0.08, 0.1]

SECTION = Section(
    "cartpole",
    "Noisy CartPole",
    "Noise on the observation, uniform in [0, δ], δ .04 in training and test. The cost of an episode is the sum of |x| over "
    "at most 500 steps, the budget 200. Every method is tuned alike first. Policies act as trained, drawing their "
    "actions. Seconds are of training, one thread.",
    "deep",
    {
        "quick": {
            "algorithms": deep.ALGORITHMS,
            "clean": CLEAN,  # of these, trained without noise as well
            "seeds": 1,
            "steps": 30_000,
            "episodes": 20,
            "noise": [0.0, 0.04, 0.1],
            **EFFORT["quick"],
            "changes": [],
        },
        "full": {
            "algorithms": deep.ALGORITHMS,
            "clean": CLEAN,  # of these, trained without noise as well
            "seeds": 5,
            "steps": 1_000_000,
            "episodes": 100,
            "noise": NOISE,
            **EFFORT["full"],
            "changes": [],
        },
    },
    compute,
    tables,
    figures,
    claims,
)
