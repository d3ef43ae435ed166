"""The command `rcac-evaluate`: how good are trained policies, as they were trained and under perturbations?

One run as it is gets a small table. Several runs, or sweeps of perturbations, get tables over seeds (terminal and
`evaluation.md`) and figures. All scores are in `evaluation.csv`. An evaluation replaces the earlier one of its folder.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import OmegaConf
from rich.console import Console

from rcac.config import compose as configuration
from rcac.errors import InputError
from rcac.policies import certify_command, output, perturbations, robustness, robustness_tables
from rcac.policies.policy import load_policy
from rcac.policies.robustness import Run, RunScores
from rcac.policies.robustness_summary import PerturbationSweep, summarise
from rcac.policies.scores import EvaluationSettings
from rcac.runs.config import Config
from rcac.runs.environments import close, make_env
from rcac.runs.folder import RunFolder, replace_file
from rcac.runs.results import shown_path

__all__ = ["EvaluationSettings", "main"]

SECONDS = 20  # at most, of a recording
TABLE, REPORT = "evaluation.csv", "evaluation.md"


# The command


class Arguments(NamedTuple):
    settings: EvaluationSettings | certify_command.CertifySettings
    changes: list[str]  # of the runs' environments and sets
    sweeps: dict[str, list[float]]  # strengths of each perturbation


def main(overrides: list[str]) -> int:
    settings, changes, sweeps = read(text for text in overrides if text != "--trust")
    trust = "--trust" in overrides
    if isinstance(settings, certify_command.CertifySettings):
        return certify_command.main(settings, changes, trust)
    root = Path(settings.run).resolve()
    runs = robustness.find(root, changes, trust=trust)
    alone = robustness.is_run(root)
    if settings.record:
        if not alone:
            raise InputError("record: true given, the folder of one run expected as run")
        record(settings, runs[0].config, RunFolder.open(root))
    records = _scored(robustness.plan(runs, sweeps), settings)
    study = _study(records, settings) if sweeps or not alone else None
    plots = root / ("plots" if alone else "evaluation_plots")
    with output.writing(settings.run):
        _remove_earlier(root, plots)
        replace_file(root / TABLE, _csv(records, settings, changes).encode())
        if study:
            _write(study, root, plots)
    with output.ignoring_broken_pipe():
        if study:
            _show(study)
            print(shown_path(root / REPORT), shown_path(plots), sep="\n")
        else:
            config = records[0].run.config
            kind = config.uncertainty["name"] if config.uncertainty else None
            Console().print(robustness_tables.run_table(records[0].rows, config.env.name, kind))
        print(shown_path(root / TABLE))
    return 0


def _remove_earlier(root: Path, plots: Path) -> None:
    """What an earlier evaluation wrote; a run's other figures stay."""
    for path in (root / REPORT, *plots.glob("evaluation_*.png"), *plots.glob("evaluation_*.pdf")):
        path.unlink(missing_ok=True)


def _scored(jobs: list[tuple[Run, perturbations.Condition]], settings: EvaluationSettings) -> list[RunScores]:
    records = []
    with output.bar() as bar:
        task = bar.add_task("", total=len(jobs))
        for run, condition in jobs:
            bar.update(task, description=f"{run.name} {condition.label}")
            records.append(robustness.measure(run, condition, settings))
            bar.advance(task)
    return records


def _csv(records: list[RunScores], settings: EvaluationSettings, changes: list[str]) -> str:
    """A line for each run, condition and term."""
    about = {"seed": settings.seed, "deterministic": settings.deterministic, "changes": " ".join(changes)}
    lines: list[dict[str, Any]] = []
    for run, condition, rows in records:
        who = {"env": run.env, "algo": run.algo, "setting": run.setting, "run": run.name, "training_seed": run.seed}
        where = {"perturbation": condition.perturbation, "strength": condition.strength, "set": condition.uncertainty}
        lines += [{**who, **where, **row._asdict(), **about} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


class Study(NamedTuple):
    """Several runs or conditions together."""

    sweeps: list[PerturbationSweep]
    about: str  # how it was measured


def _study(records: list[RunScores], settings: EvaluationSettings) -> Study:
    configs = {record.run.env: record.run.config for record in records}
    units = {env: perturbations.cost_units(config) for env, config in configs.items()}
    sweeps = [sweep._replace(units=units[sweep.env]) for sweep in summarise(records)]
    kinds = {"episodes": settings.episodes, "kernels": settings.kernels}
    sampled = [f"{count} {kind}" for kind, count in kinds.items() if any(sweep.sampled == kind for sweep in sweeps)]
    return Study(sweeps, f"{' and '.join(sampled)} for each run and strength." if sampled else "Exact values.")


def _write(study: Study, root: Path, plots: Path) -> None:
    from rcac.policies.robustness_plots import draw

    replace_file(root / REPORT, robustness_tables.report(*study).encode())
    plots.mkdir(exist_ok=True)
    draw(study.sweeps, plots)


def _show(study: Study) -> None:
    console = output.wide_console()
    for sweep in study.sweeps:
        console.print(robustness_tables.sweep_table(sweep))
    print(f"{study.about} {robustness_tables.NOTE}")


def read(overrides: Iterable[str]) -> Arguments:
    """What is asked for, checked as far as it can be without the runs."""
    texts = list(overrides)
    sweeps = perturbations.parse_all(text for text in texts if text.startswith(perturbations.PREFIX))
    texts = [text for text in texts if not text.startswith(perturbations.PREFIX)]
    assignments = configuration.parse(texts)
    certify = _certify([value for key, value in assignments if key == "certify"])
    if certify and sweeps:
        raise InputError(f"certify: {certify} given with sweep.{min(sweeps)}, one or the other expected")
    kind = certify_command.CertifySettings if certify else EvaluationSettings
    own, changes = OmegaConf.structured(kind), []
    for text, (key, value) in zip(texts, assignments, strict=True):
        if key.split(".")[0] == "uncertainty" or key.startswith("env."):
            changes.append(text)
        elif key != "certify":
            configuration.assign(own, key, value)
    if OmegaConf.is_missing(own, "run"):
        raise InputError("run: not given, the folder of a run expected")
    values: Any = OmegaConf.to_container(own)
    settings = (
        certify_command.CertifySettings(**{**values, "certify": certify}) if certify else EvaluationSettings(**values)
    )
    settings.check()
    if not Path(settings.run).is_dir():
        raise InputError(f"run: {settings.run!r} given, the folder of a run expected")
    return Arguments(settings, changes, sweeps)


def _certify(given: list[Any]) -> str | None:
    """`true` or `strict`; None if no certificate is wanted."""
    value = given[-1] if given else False
    if value is False:
        return None
    if value is not True and value not in certify_command.KINDS:
        raise InputError(f"certify: {value!r} given, true, strict or false expected")
    return "true" if value is True else str(value)


# Pictures


def record(settings: EvaluationSettings, config: Config, folder: RunFolder) -> None:
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
        close(env)
    content = imageio.imwrite("<bytes>", np.stack(frames), extension=".gif", duration=1000 / rate, loop=0)
    folder.write_bytes("episode.gif", content)


def _frame(env: Any) -> np.ndarray:
    try:
        return np.asarray(env.render())
    except Exception as error:
        raise InputError(f"record: {env.spec.id} cannot be drawn ({' '.join(str(error).split())})") from error
