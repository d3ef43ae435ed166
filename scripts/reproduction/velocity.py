"""MuJoCo bodies under a speed limit: return and cost of every method at its defaults, within the budget or not.

A run is a training at one seed and the test episodes of the policy handed out, acting both ways: as it is deployed
(sampled) and by its mode.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcac.config.schema import Env
from rcac.policies.episodes import play
from rcac.policies.policy import load_policy
from rcac.report import style
from rcac.report.tables import markdown
from rcac.runs.build import make_envs
from reproduction import deep
from reproduction.section import Claim, Interrupted, PieceCache, Result, Section, verdict, yes_no

BUDGET, NUM_ENVS = 25.0, 10
TASKS = {"hopper_velocity": "Hopper", "half_cheetah_velocity": "HalfCheetah", "walker2d_velocity": "Walker2d"}
ALGORITHMS = ["rcac", "rcac_npg", "rcac_sqp", "ppo_lagrangian", "cpo"]
OURS, OTHERS = ["rcac", "rcac_npg", "rcac_sqp"], ["ppo_lagrangian", "cpo"]
FIRST_SEED = 100  # seeds below it may be looked at while defaults are chosen
WITHIN_RULE = (
    f"a run is within its budget where the mean cost of its test episodes, less two standard errors, is at most {BUDGET:g}; the "
    "claim holds if every run of RCAC, RCAC-NPG and RCAC-SQP is, in part if the mean over seeds of each method and task is"
)
REACHED = {"half_cheetah_velocity": 2000.0, "hopper_velocity": 1000.0}  # by RCAC-SQP, asked before it was measured
HALF_THE_LIMIT = 0.7402 / 2  # m/s, of Hopper's
REACHED_RULE = (
    "the claim holds if RCAC-SQP's mean return over seeds is at least 2000 on HalfCheetah and 1000 on Hopper, and every one of its "
    "Hoppers moves at more than half the speed limit (by its return a step less 1 for being up: energy only lowers it), in part if "
    "one of the three is so"
)
PUBLISHED = {  # return and cost, ± what is printed beside them
    "ppo_lagrangian": {
        "hopper_velocity": "961.92 ± 752.87 at 13.96 ± 19.33",
        "half_cheetah_velocity": "2946.15 ± 306.35 at 3.44 ± 4.77",
        "walker2d_velocity": "2982.27 ± 681.55 at 13.49 ± 14.55",
    },
    "cpo": {
        "hopper_velocity": "1713.71 ± 18.26 at 13.40 ± 5.82",
        "half_cheetah_velocity": "2786.48 ± 173.45 at 4.70 ± 6.72",
        "walker2d_velocity": "2074.76 ± 962.45 at 21.90 ± 9.41",
    },
}
PUBLISHED_BY = (
    "Published for these tasks, after ten times as many steps (1e7), in Safety-Gymnasium's version of them: OmniSafe's benchmark "
    "of on-policy algorithms (PPOLag and CPO, five seeds)"
)
RETURN_RULE = "the claim holds if RCAC-SQP's mean return over seeds is at least that of PPO-Lagrangian and of CPO on every task, in part if on one"


def compute(settings: dict[str, Any], cache: PieceCache) -> Result:
    specs = [
        deep.TrainingSpec(task, algo, FIRST_SEED + k)
        for k in range(settings["seeds"])  # so that what is there when it is stopped has all methods
        for task in settings["tasks"]
        for algo in settings["algorithms"]
    ]
    runs = cache.compute_all({spec.label: partial(run, spec, settings, cache.folder) for spec in specs})
    return {"runs": runs, **{key: settings[key] for key in ("tasks", "algorithms", "steps", "episodes")}}


def run(spec: deep.TrainingSpec, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    config = deep.compose_spec(spec, settings, folder / "runs")
    done = deep.train_spec(spec, config)
    tests = {
        name: _test(config.env, done.folder, deterministic, spec.seed, settings["episodes"])
        for name, deterministic in (("stochastic", False), ("deterministic", True))
    }
    found = {
        "env": spec.env,
        "algo": spec.algo,
        "seed": spec.seed,
        "seconds": float(done.summary["run"]["wall_time"]),
        **tests,
    }
    if done.outcome.exit_code:  # the request to stop came as the training ended
        raise Interrupted(found)
    return found


def _test(env: Env, folder: Path, deterministic: bool, seed: int, episodes: int) -> dict[str, list[float]]:
    envs = make_envs(env, min(NUM_ENVS, episodes))
    try:
        policy = load_policy(folder, deterministic, seed)
        played = play(envs, policy, episodes, deep.TEST_SEED + seed, 1.0, 1)
    finally:
        envs.close()
    returns, costs = -played.sums[:, 0], played.sums[:, 1]
    return {
        "returns": returns.round(4).tolist(),
        "costs": costs.round(4).tolist(),
        "lengths": played.lengths.astype(float).tolist(),
    }


# Summaries


def of(result: Result, task: str, algo: str) -> list[dict[str, Any]]:
    return [run for run in result["runs"] if (run["env"], run["algo"]) == (task, algo)]


def means(runs: Sequence[dict[str, Any]], way: str = "stochastic") -> np.ndarray:
    """(seeds, 2) mean return and cost of each run's test episodes."""
    return np.array([[np.mean(run[way]["returns"]), np.mean(run[way]["costs"])] for run in runs])


def within(costs: Sequence[float]) -> bool:
    """By the rule above; one episode has no standard error."""
    error = float(np.std(costs, ddof=1)) / np.sqrt(len(costs)) if len(costs) > 1 else 0.0
    return bool(np.mean(costs) - 2 * error <= BUDGET)


def tables(result: Result) -> str:
    parts = [
        f"- *Within budget*: {WITHIN_RULE}.\n- *Return*: {RETURN_RULE}.\n- *Reached*: {REACHED_RULE}.",
        f"{result['steps']:,} steps for each training, {result['episodes']} test episodes for each policy. Means over seeds, with "
        "every seed in brackets; “mode”: the same policies without sampling.",
    ]
    header = ["method", "seeds", "return", "cost", "runs within budget", "mode: return", "mode: cost", "minutes"]
    for task in result["tasks"]:
        rows = []
        for algo in result["algorithms"]:
            runs = of(result, task, algo)
            sampled, mode = means(runs), means(runs, "deterministic")
            held = sum(within(run["stochastic"]["costs"]) for run in runs)
            minutes = np.mean([run["seconds"] for run in runs]) / 60
            cells = [_each(x, digits) for x, digits in zip((*sampled.T, *mode.T), (0, 1, 0, 1), strict=True)]
            count = f"{held} of {len(runs)}"
            rows.append([style.look(algo).name, str(len(runs)), *cells[:2], count, *cells[2:], f"{minutes:.1f}"])
        parts.append(f"{TASKS[task]}\n\n" + markdown(header, rows))
    parts.append(_published(result["tasks"]))
    return "\n\n".join(parts)


def _published(tasks: Sequence[str]) -> str:
    rows = [[style.look(algo).name, *(row[t] for t in tasks)] for algo, row in PUBLISHED.items()]
    return f"{PUBLISHED_BY}:\n\n" + markdown(["method", *(f"{TASKS[t]}: return at cost" for t in tasks)], rows)


def _each(values: np.ndarray, digits: int) -> str:
    text = f"{values.mean():.{digits}f}"
    return text if len(values) == 1 else f"{text} ({', '.join(f'{x:.{digits}f}' for x in values)})"


def speed(run: dict[str, Any]) -> float:
    """A Hopper's mean speed in m/s, at least: it earns its speed, and 1 for each step upright, less what its motors take."""
    test = run["stochastic"]
    return float(np.sum(test["returns"]) / np.sum(test["lengths"])) - 1.0


def figures(result: Result) -> dict[str, Figure]:
    fig = style.figure(9.4, 3.1)
    for axes, task in zip(fig.subplots(1, len(result["tasks"]), squeeze=False)[0], result["tasks"], strict=True):
        style.panel(axes, TASKS[task], "mean cost", "mean return")
        for algo in result["algorithms"]:
            values, look = means(of(result, task, algo)), style.look(algo)
            axes.plot(values[:, 1], values[:, 0], linestyle="none", marker=look.marker, color=look.colour)
        axes.axvline(BUDGET, color=style.BOUND, linewidth=0.8)
    style.legend(fig, result["algorithms"], markers=True)
    style.note(
        fig, f"Points: one seed each, mean over {result['episodes']} test episodes. Line: the budget of {BUDGET:g}."
    )
    return {"velocity": fig}


def claims(result: Result) -> list[Claim]:
    ours = [algo for algo in OURS if algo in result["algorithms"]]
    held = {
        algo: [within(r["stochastic"]["costs"]) for t in result["tasks"] for r in of(result, t, algo)] for algo in ours
    }
    average = all(means(of(result, t, algo))[:, 1].mean() <= BUDGET for t in result["tasks"] for algo in ours)
    counts = ", ".join(f"{style.look(algo).name} {sum(x)} of {len(x)} runs" for algo, x in held.items())
    found = [
        Claim(
            "RCAC, RCAC-NPG and RCAC-SQP stay within the budget on MuJoCo at their defaults",
            verdict(all(all(x) for x in held.values()), average),
            f"within it: {counts}; by the mean over seeds everywhere: {yes_no(average)}",
        )
    ]
    others = [algo for algo in OTHERS if algo in result["algorithms"]]
    if "rcac_sqp" in ours and others:
        returns = {
            t: {algo: float(means(of(result, t, algo))[:, 0].mean()) for algo in ("rcac_sqp", *others)}
            for t in result["tasks"]
        }
        wins = [all(row["rcac_sqp"] >= row[algo] for algo in others) for row in returns.values()]
        text = "; ".join(
            f"{TASKS[t]}: " + ", ".join(f"{style.look(algo).name} {x:.0f}" for algo, x in row.items())
            for t, row in returns.items()
        )
        found.append(
            Claim(
                "RCAC-SQP earns at least as much as PPO-Lagrangian and CPO",
                verdict(all(wins), any(wins)),
                f"mean returns: {text} (costs are in the tables)",
            )
        )
    asked = [t for t in REACHED if t in result["tasks"]]
    if "rcac_sqp" in ours and asked:
        reached = {t: float(means(of(result, t, "rcac_sqp"))[:, 0].mean()) for t in asked}
        checks = [reached[t] >= REACHED[t] for t in asked]
        text = "; ".join(f"{TASKS[t]} {x:.0f}" for t, x in reached.items())
        if "hopper_velocity" in asked:
            slowest = min(speed(run) for run in of(result, "hopper_velocity", "rcac_sqp"))
            checks.append(slowest > HALF_THE_LIMIT)
            text += f"; the slowest Hopper moves at {slowest:.2f} m/s or more"
        found.append(
            Claim("RCAC-SQP learns to run and to hop under a speed limit", verdict(all(checks), any(checks)), text)
        )
    return found


SECTION = Section(
    "velocity",
    "MuJoCo under a speed limit",
    "`env=hopper_velocity`, `half_cheetah_velocity`, `walker2d_velocity` (extra `mujoco`): Gymnasium's bodies, cost 1 at each step above a "
    "speed, budget 25 per episode of 1000 steps. Every method at its defaults, on seeds from 100 on, which played no part in "
    "choosing them. The quick version trains two methods on two tasks, one seed, 200,000 steps each.",
    "deep",
    {
        "quick": {
            "tasks": ["hopper_velocity", "half_cheetah_velocity"],
            "algorithms": ["rcac_npg", "rcac_sqp"],
            "seeds": 1,
            "steps": 200_000,
            "episodes": 10,
            "changes": [],
        },
        "full": {
            "tasks": list(TASKS),
            "algorithms": ALGORITHMS,
            "seeds": 5,
            "steps": 1_000_000,
            "episodes": 50,
            "changes": [],
        },
    },
    compute,
    tables,
    figures,
    claims,
    ("seeds", "tasks", "algorithms"),
)
