"""The jobs of a sweep: what each combination of values stands for, and what is wrong with any, before the first runs."""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Glob, Override
from hydra.errors import HydraException

from rcac.config import compose as configuration
from rcac.config import source
from rcac.config.schema import Config
from rcac.config.sweep.folder import job_key
from rcac.errors import InputError
from rcac.runs.build import check_model, make_settings, make_uncertainty
from rcac.runs.environments import open_env


class Job(NamedTuple):
    """One of a sweep's runs."""

    overrides: list[str]
    label: str  # those overrides that differ from job to job
    key: str  # the same for the same configuration
    config: Config


def expand(overrides: list[Override], folders: list[str], *, sample: bool = False) -> list[Job]:
    """A job for each combination; a configuration that comes twice is one job. A `sample` is the first value of each."""
    texts = {  # of the same key, the last one counts; a sample of a continuous range is the default
        o.get_key_element(): _texts(o, folders, sample) for o in overrides if not (sample and o.is_interval_sweep())
    }
    swept = {text for o in overrides if o.is_sweep_override() for text in texts.get(o.get_key_element(), [])}
    jobs: dict[str, Job] = {}
    homes: set[str] = set()
    for combination in itertools.product(*texts.values()):
        given = list(combination)
        with named(given):
            config = configuration.compose(given, folders=folders)
        label = " ".join(text for text in given if text in swept) or " ".join(given)
        homes.add(config.runs)
        jobs.setdefault(job_key(config), Job(given, label, job_key(config), config))
    if len(homes) > 1:
        raise InputError(f"runs: {', '.join(sorted(homes))} given, one folder for all jobs expected")
    return list(jobs.values())


def _texts(override: Override, folders: list[str], sample: bool) -> list[str]:
    key, value = override.get_key_element(), override.value()
    if not override.is_sweep_override():
        return [str(override.input_line)]
    try:
        if isinstance(value, Glob):
            values: Iterable[str] = value.filter(_options(override.key_or_group, folders))
        else:
            values = list(override.sweep_string_iterator())
        found = [f"{key}={text}" for text in values]
    except (HydraException, ValueError, TypeError) as error:
        raise InputError(f"{key}: values like 1,2 or range(3) expected ({error})") from error
    if not found:
        raise InputError(f"{key}: no values given, at least one like 1,2 or range(3) expected")
    return found[:1] if sample else found


def _options(group: str, folders: list[str]) -> list[str]:
    """What a group has to choose from."""
    with source.hydra_here():
        loader = GlobalHydra.instance().config_loader()
        return loader.get_group_options(group, ObjectType.CONFIG, "train", configuration.search(folders))


def check(jobs: Iterable[Job]) -> None:
    """Refuse the first job whose settings, environment or set cannot be used. What jobs share is looked at once."""
    jobs = list(jobs)
    for job in _different(jobs, lambda job: job.config.algo):
        with named(job.overrides):
            make_settings(job.config.algo)
    for first in _different(jobs, lambda job: asdict(job.config.env)):
        with named(first.overrides):
            single, problem, _ = open_env(first.config.env)
        with contextlib.closing(single):
            here = [job for job in jobs if job.config.env == first.config.env]
            for job in _different(here, lambda job: job.config.uncertainty):
                if job.config.uncertainty is not None:  # else a deep method
                    with named(job.overrides):
                        make_uncertainty(check_model(job.config, problem), job.config.uncertainty)


def _different(jobs: Iterable[Job], part: Callable[[Job], Any]) -> list[Job]:
    """The first job with each value of a part of its configuration."""
    found: dict[str, Job] = {}
    for job in jobs:
        found.setdefault(json.dumps(part(job), sort_keys=True), job)
    return list(found.values())


@contextlib.contextmanager
def named(overrides: list[str]) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"job {' '.join(overrides)}: {error}") from error
