"""The trade-off cart-pole against ranges of its parameters: what an adversary for every cost holds, and what it costs.

A run is a training at one seed and tests of the policy handed out: on a full grid of the box, at points inside that no
training saw, on wider boxes, and under perturbations of kinds that were never trained on.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper
from matplotlib.figure import Figure

from rcac.config.schema import Env
from rcac.contexts import Parameters
from rcac.policies.certify import Player
from rcac.policies.policy import load_policy
from rcac.report import style
from rcac.report.statistics import interval
from rcac.report.tables import markdown
from rcac.runs.build import make_envs
from reproduction import deep
from reproduction.section import Claim, Interrupted, PieceCache, Result, Section, verdict

ENV, BUDGET, LOST = "cartpole_tradeoff", 200.0, 10.0
RANGES = {"noise_high": (0.0, 0.1), "wind": (-2.0, 2.0), "length": (0.5, 2.0, "log")}
FIRST_SEED = 200  # seeds below it may be looked at while methods and settings are chosen
LEAST_RETURN = 600.0
CHANGES = ["algo.num_envs=128", "algo.history=4"]  # of every method
WIDER = {"1.25 times as wide": 1.25, "1.5 times as wide": 1.5}
SINE = "wind like a sine"  # 2 N at its height, 100 steps to a wave
KINDS: dict[str, dict[str, float]] = {  # never trained on, each with the rest as in the environment
    "an action in twenty flipped": {"action_flip": 0.05},
    "a pole of twice the mass": {"mass": 2.0},
    "a push of 0.7": {"force": 0.7},
    **{f"actions {delay} late": {"action_delay": float(delay)} for delay in (1, 2, 3)},  # steps
    SINE: {},
}


STILL, HALF = Parameters({"wind": (0.0, 0.0)}), np.full((1, 1), 0.5)  # where a kind is tested: as the environment is


class Method(NamedTuple):
    name: str
    algo: str
    changes: tuple[str, ...]
    colour: str
    marker: str


ADVERSARY, MEAN = ("uncertainty=parameters",), ("uncertainty=parameters", "uncertainty.risk=mean")
METHODS = {
    "robust_sqp": Method("RCAC-SQP, adversaries", "rcac_sqp", ADVERSARY, "#0072B2", "D"),
    "robust_npg": Method("RCAC-NPG, adversaries", "rcac_npg", ADVERSARY, "#009E73", "o"),
    "randomised": Method("RCAC-SQP, randomised", "rcac_sqp", MEAN, "#56B4E9", "v"),
    "randomised_15": Method("… with a slack of 15", "rcac_sqp", (*MEAN, "algo.slack=15"), "#56B4E9", "<"),
    "randomised_30": Method("… with a slack of 30", "rcac_sqp", (*MEAN, "algo.slack=30"), "#56B4E9", ">"),
    "ppo_lagrangian": Method("PPO-Lagrangian, randomised", "ppo_lagrangian", MEAN, "#CC79A7", "^"),
    "cac": Method("CAC", "cac", (), "#444444", "X"),
    "rcac": Method("RCAC, IPM norm", "rcac", (), "#E69F00", "s"),
    "rcac_npg": Method("RCAC-NPG, IPM norm", "rcac_npg", (), "#E69F00", "p"),
    "rcac_sqp": Method("RCAC-SQP, IPM norm", "rcac_sqp", (), "#E69F00", "d"),
    "slack_30": Method("… with a slack of 30", "rcac_sqp", ("algo.slack=30",), "#E69F00", "P"),
}
HELD_RULE = (
    f"a run holds its budget if the mean cost at every context of the grid, less two standard errors, is at most {BUDGET:g}; the claim "
    f"holds if nine of ten runs do, no context of any run has more than {LOST:g} steps lost on average (less two standard errors), "
    f"and the mean return over grid and runs is at least {LEAST_RETURN:g}; in part if half of the runs hold their budget"
)
BETTER_RULE = (
    "the claim holds if no other method of which half of the runs hold their budget by the rule above has an interval of returns "
    "above that of RCAC-SQP with adversaries; in part never"
)


def box() -> Parameters:
    return Parameters(RANGES)


def grid(sides: int, dimension: int) -> np.ndarray:
    """(sides^d, d) of the unit cube, ends included."""
    axes = np.meshgrid(*[np.linspace(0.0, 1.0, sides)] * dimension, indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, dimension)


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    specs = [
        (key, deep.TrainingSpec(ENV, METHODS[key].algo, FIRST_SEED + k, METHODS[key].changes))
        for k in range(settings["seeds"])
        for key in settings["methods"]
    ]
    runs = cache.compute_all({spec.label: partial(_run, key, spec, settings, cache.folder) for key, spec in specs})
    return {"runs": runs, **{key: settings[key] for key in ("methods", "steps", "sides", "points", "episodes")}}


def _run(key: str, spec: deep.TrainingSpec, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    config = deep.compose_spec(spec, settings, folder / "runs")
    done = deep.train_spec(spec, config)
    inside, episodes = box(), settings["episodes"]
    tests = {}
    for way, deterministic in (("stochastic", False), ("deterministic", True)):
        policy = load_policy(done.folder, deterministic, spec.seed)

        def test(where: Parameters, points: np.ndarray, env: Env = config.env, policy: Any = policy) -> dict[str, Any]:
            return _test(env, policy, where, points, episodes, deep.TEST_SEED + spec.seed)

        found = {
            "grid": test(inside, grid(settings["sides"], inside.dimension)),
            "held out": test(inside, inside.points(settings["points"], seed=deep.TEST_SEED)),
        }
        for name, factor in WIDER.items():
            wider = _possible(inside.widened(factor))
            found[name] = test(wider, np.concatenate([wider.corners(), wider.points(settings["points"], seed=1)]))
        for name, kwargs in KINDS.items():
            other = changed(config.env, kwargs)
            found[name] = _test(other, policy, STILL, HALF, episodes, deep.TEST_SEED + spec.seed, name == SINE)
        tests[way] = found
    about = {"method": key, "seed": spec.seed, "seconds": float(done.summary["run"]["wall_time"]), "tests": tests}
    if done.outcome.exit_code:  # the request to stop came as the training ended
        raise Interrupted(about)
    return about


def _possible(wider: Parameters) -> Parameters:
    """Noise cannot be less than none."""
    low, high, _ = wider.ranges["noise_high"]
    return Parameters({**wider.as_dict()["ranges"], "noise_high": (max(0.0, low), high)})


def changed(env: Env, kwargs: Mapping[str, float]) -> Env:
    """As a kind of perturbation asks; delays are those of a wrapper."""
    return replace(env, kwargs={**env.kwargs, **kwargs}, wrapper="perturbed" if "action_delay" in kwargs else None)


class SineWind(VectorWrapper):
    """A cart-pole in a wind that comes and goes, the same for all environments; it begins anew with `reset`."""

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self.env.reset(**how)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        cart: Any = self.env.unwrapped
        cart.perturbation = replace(cart.perturbation, wind=2.0 * np.sin(2 * np.pi * self.steps / 100))
        self.steps += 1
        return self.env.step(actions)


def _test(
    env: Env, policy: Any, where: Parameters, points: np.ndarray, episodes: int, seed: int, sine: bool = False
) -> dict[str, Any]:
    """For each context: means of return, cost and steps lost, and their standard errors (M, 3)."""
    envs: VectorEnv = make_envs(env, min(512, len(points) * episodes))
    envs = SineWind(envs) if sine else envs
    try:
        sums = Player(envs, policy, where, 2).sums(points, episodes, seed) * [-1.0, 1.0, 1.0]  # (M, e, 3)
    finally:
        envs.close()
    errors = sums.std(axis=1, ddof=1) / np.sqrt(episodes) if episodes > 1 else np.zeros(sums[:, 0].shape)
    return {"means": sums.mean(axis=1).round(3).tolist(), "errors": errors.round(3).tolist()}


# Summaries


class Tested(NamedTuple):
    """One run in a family of contexts."""

    mean_return: float
    worst_cost: float
    worst_lost: float
    holds_cost: bool  # by the rule above
    holds_lost: bool


def scored(run: Mapping[str, Any], name: str, way: str = "stochastic") -> Tested:
    means, errors = (np.array(run["tests"][way][name][key]) for key in ("means", "errors"))
    lower = means - 2 * errors
    return Tested(
        float(means[:, 0].mean()),
        float(means[:, 1].max()),
        float(means[:, 2].max()),
        bool((lower[:, 1] <= BUDGET).all()),
        bool((lower[:, 2] <= LOST).all()),
    )


def of(result: Result, key: str) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if run["method"] == key]


def tables(result: Result) -> str:
    contexts = result["sides"] ** len(RANGES)
    parts = [
        f"- *Held*: {HELD_RULE}.\n- *Better*: {BETTER_RULE}.",
        f"{result['steps']:,} steps for each training. Grid: {contexts} contexts × {result['episodes']} episodes; held out: "
        f"{result['points']} points inside. Interquartile means over seeds, with intervals; the worst context of each run.",
    ]
    for way in ("stochastic", "deterministic"):
        header = ["method", "seeds", "mean return", "worst cost", "worst steps lost", "runs within budget", "minutes"]
        rows = []
        for key in result["methods"]:
            runs = of(result, key)
            scores = [scored(run, "grid", way) for run in runs]
            cells = [deep.format_interval(interval([np.array(x)])) for x in list(zip(*scores, strict=True))[:3]]
            held = f"{sum(s.holds_cost for s in scores)} of {len(runs)}"
            minutes = np.mean([run["seconds"] for run in runs]) / 60
            rows.append([METHODS[key].name, str(len(runs)), *cells, held, f"{minutes:.1f}"])
        parts.append(f"On the grid, {way} policies\n\n" + markdown(header, rows))
    names = ["held out", *WIDER, *KINDS]
    rows = []
    for key in result["methods"]:
        cells = []
        for name in names:
            scores = [scored(run, name) for run in of(result, key)]
            cost, lost = (interval([np.array([s[k] for s in scores])]).estimate for k in (1, 2))
            cells.append(f"{cost:.0f}, {lost:.0f}")
        rows.append([METHODS[key].name, *cells])
    parts.append(
        "Elsewhere: cost and steps lost, at the worst of each family's contexts\n\n" + markdown(["", *names], rows)
    )
    rows = [
        [METHODS[run["method"]].name, str(run["seed"]), *(f"{x:.1f}" for x in scored(run, "grid")[:3])]
        for key in result["methods"]
        for run in of(result, key)
    ]
    parts.append(
        "Every seed, on the grid\n\n" + markdown(["method", "seed", "mean return", "worst cost", "worst lost"], rows)
    )
    return "\n\n".join(parts)


def figures(result: Result) -> dict[str, Figure]:
    fig = style.figure(7.4, 4.2)
    axes = fig.subplots()
    style.panel(axes, "Trade-off cart-pole, box of noise, wind and length", "cost in the worst context", "mean return")
    for key in result["methods"]:
        scores, method = [scored(run, "grid") for run in of(result, key)], METHODS[key]
        x, y = [s.worst_cost for s in scores], [s.mean_return for s in scores]
        axes.plot(x, y, linestyle="none", marker=method.marker, color=method.colour, label=method.name, markersize=5)
    axes.axvline(BUDGET, color=style.BUDGET, linewidth=0.9, linestyle="--")
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    style.note(fig, f"Points: one seed each. Dashed: the budget of {BUDGET:g}. Left and up is better.")
    return {"robust": fig}


def claims(result: Result) -> list[Claim]:
    scores = {key: [scored(run, "grid") for run in of(result, key)] for key in result["methods"]}
    found = []
    if ours := scores.get("robust_sqp"):
        share = np.mean([s.holds_cost for s in ours])
        lost, value = all(s.holds_lost for s in ours), float(np.mean([s.mean_return for s in ours]))
        found.append(
            Claim(
                "RCAC-SQP with adversaries holds its budget in every context of the box, standing, and earns",
                verdict(bool(share >= 0.9) and lost and value >= LEAST_RETURN, bool(share >= 0.5)),
                f"budget held by {share:.0%} of {len(ours)} runs, steps lost by {np.mean([s.holds_lost for s in ours]):.0%}; "
                f"mean return {value:.1f}, worst costs {_list(s.worst_cost for s in ours)}, worst steps lost "
                f"{_list(s.worst_lost for s in ours)}",
            )
        )
        others = {
            key: own
            for key, own in scores.items()
            if key != "robust_sqp" and np.mean([s.holds_cost and s.holds_lost for s in own]) >= 0.5
        }
        top = interval([np.array([s.mean_return for s in ours])]).high
        above = [key for key, own in others.items() if interval([np.array([s.mean_return for s in own])]).low > top]
        names = ", ".join(METHODS[key].name for key in others) or "none"
        evidence = (
            f"others that hold them: {names}; earning more: {', '.join(METHODS[key].name for key in above) or 'none'}"
        )
        if len(scores) > 1:  # else there is none to compare with
            claim = "No other method that holds its budgets over the box earns more"
            found.append(Claim(claim, verdict(not above, False), evidence))
    return found


def _list(values: Any) -> str:
    return ", ".join(f"{x:.0f}" for x in values)


SECTION = Section(
    "robust",
    "Robust against ranges of parameters",
    "`env=cartpole_tradeoff uncertainty=parameters`: observation noise up to .1, wind of ±2 N, a pole of half to twice the length; budget "
    "200 on the cost and at most 10 steps lost. Every method sees the last four observations and has 128 environments. Beside "
    "training against an adversary for each cost: randomisation with constraints on the mean, with slacks, and methods that train "
    "at the nominal model. Seeds from 200 on, which played no part in choosing anything.",
    "deep",
    {
        "quick": {
            "methods": ["robust_sqp", "randomised", "rcac_sqp"],
            "seeds": 1,
            "steps": 300_000,
            "sides": 3,
            "points": 8,
            "episodes": 4,
            "changes": CHANGES,
        },
        "full": {
            "methods": list(METHODS),
            "seeds": 10,
            "steps": 10_000_000,
            "sides": 5,
            "points": 64,
            "episodes": 32,
            "changes": CHANGES,
        },
    },
    compute,
    tables,
    figures,
    claims,
    ("seeds", "methods"),
)
