"""What is wrong with any job of a sweep, found before the first one runs."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rcac.errors import InputError
from rcac.experiment.build import check_model, make_settings, make_uncertainty
from rcac.experiment.environments import open_env
from rcac.experiment.sweep.folder import Job


def check(jobs: Iterable[Job]) -> None:
    """Refuse the first job whose settings, environment or set cannot be used. What jobs share is looked at once."""
    jobs = list(jobs)
    for job in _different(jobs, lambda job: job.config.algo):
        with _named(job):
            make_settings(job.config.algo)
    for first in _different(jobs, lambda job: asdict(job.config.env)):
        with _named(first):
            single, problem, _ = open_env(first.config.env)
        with contextlib.closing(single):
            here = [job for job in jobs if job.config.env == first.config.env]
            for job in _different(here, lambda job: job.config.uncertainty):
                if job.config.uncertainty is not None:  # else a deep method
                    with _named(job):
                        make_uncertainty(check_model(job.config, problem), job.config.uncertainty)


def _different(jobs: Iterable[Job], part: Any) -> list[Job]:
    """The first job with each value of a part of its configuration."""
    found: dict[str, Job] = {}
    for job in jobs:
        found.setdefault(json.dumps(part(job), sort_keys=True), job)
    return list(found.values())


@contextlib.contextmanager
def _named(job: Job) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"job {' '.join(job.overrides)}: {error}") from error
