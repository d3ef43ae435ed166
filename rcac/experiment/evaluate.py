"""How good is a trained policy? Episodes in its environment, and, where there is a model, the exact worst case.

Episodes give sums of reward and costs: plain ones against budgets on plain sums, discounted ones against a model's.
Every copy of the environment contributes a number of episodes fixed beforehand: the first ones to end would be the
short ones.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from omegaconf import MISSING, OmegaConf
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rcac.errors import InputError
from rcac.evaluation import evaluate as evaluate_exactly
from rcac.experiment import config as configuration
from rcac.experiment.build import make_uncertainty
from rcac.experiment.environments import close, make_env, make_envs, open_env
from rcac.experiment.policy import Policy, load_policy
from rcac.experiment.results import shown_path, within
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.schema import Config
from rcac.problem import RCMDP

SECONDS = 20  # at most, of a recording


@dataclass
class Settings:
    run: str = MISSING  # folder of the run
    episodes: int = 100  # to play
    copies: int = 32  # of the environment, stepped together
    seed: int = 0  # of the episodes and of the policy's draws
    deterministic: bool = False  # take the likeliest action instead of drawing one
    record: bool = False  # write a picture of an episode, episode.gif


class Row(NamedTuple):
    """One term in a person's sign."""

    term: str
    budget: float | None
    mean: float
    standard_error: float
    nominal: float | None  # exact, where there is a model
    worst_case: float | None

    @property
    def met(self) -> bool:
        return self.budget is None or within(self.term, self.mean, self.budget)


def evaluate(settings: Settings, config: Config) -> list[Row]:
    """The rows for a run's policy, in the environment and for the set that `config` has."""
    policy = load_policy(settings.run, settings.deterministic, settings.seed)
    single, problem, _ = open_env(config.env)
    single.close()
    envs = make_envs(config.env, min(settings.copies, settings.episodes))
    try:
        budgets = problem.budgets if problem else np.array(config.env.budgets or [])
        discount = problem.discount if problem else 1.0
        sums = play(envs, policy, settings.episodes, settings.seed, discount, len(budgets))
    finally:
        close(envs)
    signs = np.array([-1.0, *np.ones(len(budgets))]) if problem is None else np.asarray(problem.signs)
    sums *= signs
    labels = problem.labels() if problem else ["return", *_costs(len(budgets))]
    exact = _exact(problem, policy, config.uncertainty) if problem else [(None, None)] * len(labels)
    limits = [None, *(signs[1:] * budgets).tolist()]
    error = sums.std(axis=0, ddof=1) / np.sqrt(len(sums)) if len(sums) > 1 else np.full(len(labels), np.nan)
    return [
        Row(label, limit, float(mean), float(spread), *model)
        for label, limit, mean, spread, model in zip(labels, limits, sums.mean(axis=0), error, exact, strict=True)
    ]


def play(envs: VectorEnv, policy: Policy, episodes: int, seed: int, discount: float, costs: int) -> np.ndarray:
    """(episodes, N+1): discounted sums of −reward and costs over whole episodes, as many of each copy as of any other."""
    if envs.metadata.get("autoreset_mode") != AutoresetMode.NEXT_STEP:
        raise InputError("env.vectorization: its vector version resets within a step, sync expected")
    for name, own, other in (
        ("observations", policy.spaces.observation, envs.single_observation_space),
        ("actions", policy.spaces.action, envs.single_action_space),
    ):
        if own.shape != other.shape or type(own) is not type(other) or getattr(own, "n", 0) != getattr(other, "n", 0):
            raise InputError(f"env: its {name} are {other}, {own} expected by the policy")
    copies = envs.num_envs
    quota = np.full(copies, episodes // copies) + (np.arange(copies) < episodes % copies)
    finished: list[np.ndarray] = []
    sums, factor = np.zeros((copies, costs + 1)), np.ones(copies)
    resetting = np.zeros(copies, dtype=bool)
    start = int(np.random.SeedSequence((seed, episodes)).generate_state(1, np.uint64)[0] >> 2)
    observations, _ = envs.reset(seed=start)
    while quota.any():
        observations, rewards, terminated, truncated, infos = envs.step(policy.batch(observations))
        live = ~resetting & (quota > 0)
        step = np.column_stack([-rewards, _reported(infos, costs, copies)])
        sums[live] += factor[live, None] * step[live]
        factor[live] *= discount
        resetting = terminated | truncated
        for copy in np.flatnonzero(resetting & live):
            finished.append(sums[copy].copy())
            sums[copy], factor[copy] = 0.0, 1.0
            quota[copy] -= 1
    return np.array(finished)


def _reported(infos: dict[str, Any], costs: int, copies: int) -> np.ndarray:
    """(n, N) costs of a step, zero on the step that resets a copy."""
    given = infos.get("costs", infos.get("cost", np.zeros((copies, 0))))
    found = np.asarray(given, dtype=float).reshape(copies, -1)
    if found.shape[1] < costs:
        raise InputError(f"env.budgets: {costs} given, but the environment reports {found.shape[1]} costs")
    return found[:, :costs]


def _exact(problem: RCMDP, policy: Policy, row: dict[str, Any] | None) -> list[tuple[float, float | None]]:
    """The value of each term in the nominal model and in the worst case."""
    table = policy.probabilities(np.arange(problem.num_states))
    if policy.deterministic:
        table = np.eye(problem.num_actions)[table.argmax(axis=1)]
    signs = np.asarray(problem.signs)
    nominal = signs * evaluate_exactly(problem, table).returns
    if row is None:
        return [(float(value), None) for value in nominal]
    worst = signs * evaluate_exactly(problem, table, make_uncertainty(problem, row)).returns
    return [(float(value), float(bad)) for value, bad in zip(nominal, worst, strict=True)]


def _costs(count: int) -> list[str]:
    return [f"cost {n}" if count > 1 else "cost" for n in range(1, count + 1)]


# Pictures


def record(settings: Settings, config: Config, folder: RunFolder) -> None:
    """`episode.gif`: one episode, as the environment draws it."""
    try:
        import imageio.v3 as imageio
    except ImportError as error:
        raise InputError("record: imageio is not installed, pip install 'rcac[video]' expected") from error
    policy = load_policy(settings.run, settings.deterministic, settings.seed)
    env = make_env(config.env, render_mode="rgb_array")
    try:
        if hasattr(env.unwrapped, "policy") and hasattr(env.unwrapped, "rcmdp"):
            env.unwrapped.policy = policy.probabilities(np.arange(env.unwrapped.rcmdp.num_states))  # drawn as arrows
        observation, _ = env.reset(seed=settings.seed)
        frames, ended, rate = [_frame(env)], False, env.metadata.get("render_fps", 30)
        while not ended and len(frames) < SECONDS * rate:
            observation, _, terminated, truncated, _ = env.step(policy(observation))
            frames.append(_frame(env))
            ended = terminated or truncated
    finally:
        env.close()
    content = imageio.imwrite("<bytes>", np.stack(frames), extension=".gif", duration=1000 / rate, loop=0)
    folder.write_bytes("episode.gif", content)


def _frame(env: Any) -> np.ndarray:
    try:
        return np.asarray(env.render())
    except Exception as error:
        raise InputError(f"record: {env.spec.id} cannot be drawn ({' '.join(str(error).split())})") from error


# The command


def main(overrides: list[str]) -> int:
    settings, config, changes = read(overrides)
    folder = RunFolder.open(settings.run)
    if settings.record:
        record(settings, config, folder)
    rows = evaluate(settings, config)
    about = {"episodes": settings.episodes, "seed": settings.seed, "deterministic": settings.deterministic}
    text = io.StringIO()
    writer = csv.DictWriter(text, [*Row._fields, *about, "changes"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row._asdict(), **about, "changes": " ".join(changes)} for row in rows)
    try:
        folder.write_text("evaluation.csv", text.getvalue())
    except OSError as error:
        raise InputError(f"run {settings.run}: cannot be written ({error.strerror})") from error
    Console().print(_table(rows, settings, config))
    print(shown_path(folder.path / "evaluation.csv"))
    return 0


def read(overrides: Iterable[str]) -> tuple[Settings, Config, list[str]]:
    """Settings; the run's environment and set, as changed by `env.*` and `uncertainty…`; and these changes."""
    own = OmegaConf.structured(Settings)
    texts, changes = list(overrides), []
    for text, (key, value) in zip(texts, configuration.parse(texts), strict=True):
        if key.split(".")[0] == "uncertainty" or key.startswith("env."):
            changes.append(text)
        else:
            configuration.assign(own, key, value)
    if OmegaConf.is_missing(own, "run"):
        raise InputError("run: not given, the folder of a run expected")
    settings = Settings(**OmegaConf.to_container(own))  # type: ignore[arg-type]
    for name in ("episodes", "copies"):
        if getattr(settings, name) < 1:
            raise InputError(f"{name}: {getattr(settings, name)} given, a whole number ≥ 1 expected")
    if settings.seed < 0:
        raise InputError(f"seed: {settings.seed} given, a whole number ≥ 0 expected")
    if not Path(settings.run).is_dir():
        raise InputError(f"run: {settings.run!r} given, the folder of a run expected")
    saved = configuration.load(settings.run)
    return settings, configuration.compose(changes, {key: saved.get(key) for key in ("env", "uncertainty")}), changes


def _table(rows: list[Row], settings: Settings, config: Config) -> Table:
    table = Table(title=f"{settings.episodes} episodes of {config.env.name}", title_justify="left")
    exact = rows[0].nominal is not None
    kind = f"worst case ({config.uncertainty['name']})" if config.uncertainty else "worst case"
    for name in ("", "mean ± standard error", "budget", *(("model", kind) if exact else ())):
        table.add_column(name)
    for row in rows:
        style = "green" if row.met else "red"
        limit = Text("") if row.budget is None else Text(f"{row.budget:.6g}, {'met' if row.met else 'exceeded'}", style)
        cells = [Text(row.term), Text(f"{row.mean:.5g} ± {row.standard_error:.2g}"), limit]
        if exact:
            cells += [_value(row, row.nominal), _value(row, row.worst_case)]
        table.add_row(*cells)
    return table


def _value(row: Row, value: float | None) -> Text:
    if value is None:
        return Text("")
    bad = row.budget is not None and not within(row.term, value, row.budget)
    return Text(f"{value:.5g}", "red" if bad else "")
