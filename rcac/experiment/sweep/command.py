"""`rcac-train -m`: a run for every combination of the values given, many at a time, in one folder.

Hydra expands the values, and one of its launchers finds the processes. The same command has the same folder, and does
what is missing there; a job that was interrupted goes on from its checkpoint.
"""

import hashlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from rich.console import Console

from rcac.errors import InputError
from rcac.experiment import config as configuration
from rcac.experiment.results import shown_path
from rcac.experiment.runfolder import RunFolder
from rcac.experiment.signals import StopRequest
from rcac.experiment.sweep.check import check
from rcac.experiment.sweep.folder import FINISHED, INFEASIBLE, MISSING, End, Job, SweepFolder, settings
from rcac.experiment.sweep.supervise import Sweep, carry_out
from rcac.experiment.sweep.view import SweepView, complain, result_table
from rcac.experiment.sweep.worker import compose_launcher

EXTRAS = {"submitit_local": "slurm", "submitit_slurm": "slurm", "ray": "ray", "ray_aws": "ray"}
WIDTH = 160  # of the table, where there is no terminal that has one


def main(texts: Sequence[str]) -> int:
    """The command, without its `-m`. 0: every job is finished; 3: but for those that are infeasible."""
    sweep = read(texts)
    folder = sweep.folder
    check([job for job in sweep.jobs if not folder.done(job.key)])
    try:
        folder.jobs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"runs folder {folder.path}: cannot be written ({error.strerror}: {error.filename})"
        ) from error
    with RunFolder(folder.path) as home, StopRequest() as stop:
        home.lock()
        ends = {job.key: end for job in sweep.jobs if (end := folder.done(job.key))}
        said = None
        try:
            if len(ends) < len(sweep.jobs):
                console = Console(stderr=True)
                with SweepView(folder.path, len(sweep.jobs), len(ends), sweep.progress, console) as view:
                    said = carry_out(sweep, ends, view.ended, stop)
        finally:
            folder.write(sweep.jobs, ends)
    rows = [(job, ends.get(job.key, End("", MISSING))) for job in sweep.jobs]
    if sweep.progress:
        console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
        console.print(result_table(folder.path, rows))
    complain(rows, told=stop.received is not None, launcher=said)
    print(shown_path(folder.path))
    unfinished = {end.outcome for _, end in rows} - {FINISHED}
    if unfinished == {INFEASIBLE}:
        return 3
    return stop.exit_code or 1 if unfinished else 0


def read(texts: Sequence[str]) -> Sweep:
    """Every job and the launcher; nothing is written."""
    parser, name = OverridesParser.create(), None
    overrides: list[Override] = []
    options: list[str] = []
    for text in texts:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise InputError(f"{text}: not understood ({str(error).splitlines()[0]}), key=value expected") from error
        key = override.key_or_group.replace("/", ".")
        if key == "resume":
            raise InputError("resume: given with -m, which takes up by itself what was interrupted")
        if key.split(".")[0] == "hydra":
            options.append(_option(text))
        elif key == "sweep":
            name = _name(text)
        else:
            overrides.append(override)
    jobs = _expanded(overrides)
    first = jobs[0].config
    folder = SweepFolder(Path(first.runs).resolve() / "sweeps" / (name or _usual_name(overrides)))
    jobs = [job._replace(config=replace(job.config, runs=str(folder.path), progress=False)) for job in jobs]
    return Sweep(folder, jobs, _launcher(options, folder), first.progress)


# Jobs


def _expanded(overrides: list[Override]) -> list[Job]:
    """One job for each combination; a configuration that comes twice is one job."""
    swept = [override.get_key_element() for override in overrides if override.is_sweep_override()]
    try:
        [combinations] = BasicSweeper.split_arguments(overrides, None)
    except (HydraException, ValueError) as error:
        raise InputError(f"{', '.join(swept)}: values like 1,2 or range(3) expected ({error})") from error
    if not combinations:
        raise InputError(f"{', '.join(swept)}: no values given, at least one like 1,2 or range(3) expected")
    fixed = [override for override in overrides if not override.is_sweep_override()]
    given = {f"{o.get_key_element()}={o.get_value_element_as_str()}": str(o.input_line) for o in fixed}
    jobs: dict[str, Job] = {}
    homes = set()
    for combination in combinations:
        texts = [given.get(text, text) for text in combination]  # without the escapes that Hydra adds
        try:
            config = configuration.compose(texts)
        except InputError as error:
            raise InputError(f"job {' '.join(texts)}: {error}") from error
        label = " ".join(text for text in texts if text.split("=")[0] in swept) or " ".join(texts)
        key = _digest(settings(config.plain()), 16)
        jobs.setdefault(key, Job(texts, label, key, config))
        homes.add(config.runs)
    if len(homes) > 1:
        raise InputError(f"runs: {', '.join(sorted(homes))} given, one folder for all jobs expected")
    return list(jobs.values())


def _digest(data: Any, length: int) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:length]


def _usual_name(overrides: list[Override]) -> str:
    """The environment, what is varied, and a digest of the command: `cartpole-algo-seed-1f2e3d4c`."""
    telling = [override for override in overrides if override.key_or_group not in ("runs", "progress")]
    words = [str(o.value()) for o in telling if o.key_or_group == "env" and not o.is_sweep_override()]
    words += [o.key_or_group for o in telling if o.is_sweep_override()]
    readable = re.sub(r"[^\w.]+", "-", "-".join(words))[:60].strip("-.")
    return f"{readable}-{_digest(sorted(str(o.input_line) for o in telling), 8)}"


def _name(text: str) -> str:
    [(_, value)] = configuration.parse([text])
    if not re.fullmatch(r"\w[\w.+=-]*", str(value)):
        raise InputError(f"sweep: {value!r} given, a name of letters, digits and . _ + = - expected")
    return str(value)


# The launcher


def _option(text: str) -> str:
    """`hydra/launcher=…`, `hydra.launcher.key=…` or `+hydra.launcher.key=…` (a key that a launcher leaves open, like
    Ray's `ray.init.num_cpus`): nothing else of Hydra's own, and nothing that names code."""
    [(key, _)] = configuration.parse([text.lstrip("+")])
    if key != "hydra.launcher" and not key.startswith("hydra.launcher."):
        raise InputError(f"{key}: given, hydra/launcher or a key of hydra.launcher expected")
    return text


def _launcher(options: list[str], folder: SweepFolder) -> list[str]:
    """The options, with the launcher first."""
    parsed = configuration.parse(text.lstrip("+") for text in options)
    chosen = str(dict(parsed).get("hydra.launcher", "joblib"))
    Plugins.instance()  # registers what is installed
    installed = [name.removesuffix(".yaml") for name in ConfigStore.instance().list("hydra/launcher")]
    if chosen not in installed:
        if chosen in EXTRAS:
            line = f"{chosen} is not installed, pip install 'rcac[{EXTRAS[chosen]}]' expected"
        else:
            line = f"{chosen!r} given, one of {', '.join(sorted({*installed, *EXTRAS}))} expected"
        raise InputError(f"hydra/launcher: {line}")
    keys = [text for text, (key, _) in zip(options, parsed, strict=True) if key != "hydra.launcher"]
    options = [f"hydra/launcher={chosen}", *keys]
    try:
        compose_launcher(options, folder.jobs)
    except HydraException as error:
        raise InputError(f"hydra.launcher: {' '.join(f'{error} {error.__cause__ or str()}'.split())}") from error
    return options
