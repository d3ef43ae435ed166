"""What every job needs, loaded once in a worker: a job's process is a copy of one that has imported this."""

import tensorboard.summary.writer.event_file_writer  # noqa: F401
from hydra.core.plugins import Plugins

import rcac.experiment.plots
import rcac.experiment.sweep.worker
import rcac.experiment.train
import rcac.tabular.multistart
import rcac.tabular.solve
import rcac.uncertainty.named  # noqa: F401
from rcac import registry

Plugins.instance()
for group in ("env", "algo", "uncertainty"):
    registry.rows(group)
