"""`rcac-evaluate run=… certify=true`: a certificate for the policy of one run, over its box of parameters.

The box is the one that the run was trained against; for other runs, what `uncertainty.ranges` says, else the ranges of the
environment's file, else what it declares.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import MISSING
from rich.table import Table
from rich.text import Text

from rcac.config import compose as configuration
from rcac.errors import InputError
from rcac.policies import output, robustness
from rcac.policies.certificate import FILE, Certificate, CertificateSettings
from rcac.policies.certify import certify_env
from rcac.policies.policy import load_policy
from rcac.policies.robustness import Run
from rcac.runs.folder import CARD, RunFolder
from rcac.runs.results import shown_path

KINDS = ("true", "strict")
NOT_CERTIFIED = 4  # exit code


@dataclass
class CertifySettings(CertificateSettings):
    run: str = MISSING  # folder of one run
    certify: str = "true"  # strict: exit code 4 if a budget is not certified
    cost_ranges: list[Any] | None = None  # [low, high] of an episode for each cost; null: as the environment says
    num_envs: int = 256  # copies of the environment, stepped together
    deterministic: bool | None = None  # take the mode of the policy instead of a sample; null: as algo.deploy said


def main(settings: CertifySettings, changes: list[str], trust: bool = False) -> int:
    root = Path(settings.run).resolve()
    if not robustness.is_run(root):
        raise InputError(f"run: {settings.run!r} given, the folder of one run expected with certify")
    run = _read(root, changes, trust)
    made = _certified(run, settings)
    about = {
        "run": run.name,
        "policy_sha256": RunFolder.open(root).read_json(CARD)["sha256"],
        "policy": "deterministic" if load_policy(root, settings.deterministic).deterministic else "stochastic",
        "changes": changes,
        "num_envs": settings.num_envs,
    }
    plots = root / "plots"
    with output.writing(settings.run):
        plots.mkdir(exist_ok=True)
        made.save(root, plots, **about)
    with output.ignoring_broken_pipe():
        output.wide_console().print(certificate_table(made, f"{run.name}, {about['policy']} policy"))
        print(*made.statements(), "", sep="\n")
        print(shown_path(root / FILE), shown_path(plots / "certificate.png"), sep="\n")
    return NOT_CERTIFIED if settings.certify == "strict" and not made.certified else 0


def _read(root: Path, changes: list[str], trust: bool) -> Run:
    """The run, with uncertain parameters in the place of any other set."""
    saved, given = configuration.load(root).get("uncertainty"), configuration.parse(changes)
    if unfit := [value for key, value in given if key == "uncertainty" and value != "parameters"]:
        raise InputError(f"uncertainty: {unfit[0]} given, parameters expected with certify")
    trained = isinstance(saved, dict) and saved.get("name") == "parameters"
    anew = any(key in ("uncertainty", "uncertainty.ranges") for key, _ in given)  # nothing is left of the run's box
    [run] = robustness.find(root, ["uncertainty=parameters", *changes] if anew or not trained else changes, trust)
    return run


def _certified(run: Run, settings: CertifySettings) -> Certificate:
    env = run.config.env
    policy = load_policy(run.folder, settings.deterministic, settings.seed)
    plan = {name: getattr(settings, name) for name in CertificateSettings.__dataclass_fields__}
    with output.bar() as bar:
        task = bar.add_task("episodes", total=settings.total(len(env.limits()[0])))
        return certify_env(
            env,
            policy,
            run.config.uncertainty,
            settings.cost_ranges,
            settings.num_envs,
            played=lambda count: bar.advance(task, count),
            **plan,
        )


def certificate_table(made: Certificate, title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in (
        "",
        "budget",
        "worst context found",
        "mean there",
        "at most",
        "contexts over",
        "episodes over",
        "certified",
    ):
        table.add_column(name)
    for cost in made.costs:
        where = "\n".join(f"{name} {value:.4g}" for name, value in cost.worst_context.items())
        verdict = Text("yes", "green") if cost.certified else Text("no", "red")
        shares = [
            f"{count} of {made.contexts},\nat most {100 * share:.3g} %"
            for count, share in (
                (cost.contexts_over, cost.contexts_over_share),
                (cost.episodes_over, cost.episodes_over_share),
            )
        ]
        numbers = (f"{cost.budget:.6g}", where, f"{cost.worst_mean:.5g}", f"{cost.worst_bound:.5g}")
        table.add_row(Text(cost.label), *map(Text, numbers), *map(Text, shares), verdict, end_section=True)
    return table
