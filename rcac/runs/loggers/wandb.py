"""Weights & Biases: `loggers: [csv, wandb]`, with the extra `rcac[wandb]`. Project, entity and mode are wandb's own
settings (WANDB_PROJECT, WANDB_MODE=offline, …); its files go into the run's folder."""

import re
from typing import Any

import numpy as np

from rcac.errors import InputError
from rcac.runs.loggers import Logger, RunInfo


class WeightsAndBiases(Logger):
    def __init__(self, run: RunInfo) -> None:
        try:
            import wandb
        except ImportError as error:
            raise InputError("wandb is not installed, pip install 'rcac[wandb]' expected") from error
        self._image = wandb.Image
        name = re.sub(r"[^\w.-]+", "-", "-".join(run.folder.parts[-3:])).strip("-")
        again: Any = {"id": name[-64:], "resume": "allow"}  # a run that is resumed goes on under the same name
        self._run = wandb.init(dir=str(run.folder), name=name, config=run.settings, reinit="create_new", **again)
        self._run.define_metric("*", step_metric="position")

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        self._run.log({"position": position, **metrics})

    def images(self, position: int, images: dict[str, np.ndarray]) -> None:
        self._run.log({"position": position, **{name: self._image(image) for name, image in images.items()}})

    def finish(self, summary: dict[str, Any]) -> None:
        self._run.summary.update(summary)

    def close(self) -> None:
        self._run.finish()


make = WeightsAndBiases
