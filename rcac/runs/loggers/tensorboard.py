"""TensorBoard events, written with TensorBoard's own file format and nothing else (no torch, no TensorFlow)."""

import io
import re
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from PIL import Image
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom_scalar
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from rcac.runs.loggers import Logger, RunInfo

Summary, Metadata = summary_pb2.Summary, summary_pb2.SummaryMetadata
# Series of a return or cost in the unit of its budget, the best known first.
MEASURED = ("episode", "best", "worst_case")
Charts = dict[str, list[str]]  # patterns of tags by titles


def charts(names: Iterable[str], labels: Sequence[str]) -> dict[str, Charts]:
    """The charts of a run by category: its result, with each cost beside its budget in one unit, and its course.

    `names` are the metrics of its first step, `labels` those of its terms. A chart shows the metrics of every run that
    match its patterns, so that titles and patterns differ where units do.
    """
    names = sorted(names)
    way, series = "", "(/.*)?$"
    if "return/worst_case" in names:
        way, series = " in the worst case", "/(best|worst_case)$"
    elif "return/estimate" in names:
        way, series = " of an episode", "/(episode|worst_context)$"

    result: Charts = {}
    if any(name.startswith("return/") for name in names):
        result[f"return{way}"] = [f"return{series}", "trial/return$"]
    estimates: Charts = {}
    for key in (name.removeprefix("budget/") for name in names if re.fullmatch(r"budget/[^/]+", name)):
        label = labels[int(key)] if key.isdecimal() and int(key) < len(labels) else f"cost {key}"
        own = re.escape(key)
        result[f"{label}{way}, and its budget"] = [
            f"(cost|utility)/{own}{series}",
            f"trial/cost/{own}$",
            f"budget/{own}$",
        ]
        if f"budget/{key}/discounted" in names:  # what the algorithm compares
            estimated = [f"cost/{own}/estimate$", f"budget/{own}/discounted$"]
            estimates[f"{label}, estimated and discounted, and its budget"] = estimated
    worst = sorted({name.rpartition("/")[2] for name in names if re.fullmatch(r"adversary/[^/]+/worst/[^/]+", name)})
    course = {
        "what is improved: 0 the return, 1 and on a cost": ["switch/index$"],
        "multipliers": [r"(switch|policy)/multiplier/"],
        **estimates,
        "adversaries: concentration": ["adversary/[^/]+/concentration$"],
        **{f"adversaries: {name}": [f"adversary/[^/]+/worst/{re.escape(name)}$"] for name in worst},
        "policy: KL divergence of an update": ["policy/kl$"],
        "policy: entropy": ["policy/entropy$"],
        "time: steps per second": ["time/steps_per_second$"],
    }

    course = {title: tags for title, tags in course.items() if any(re.match(t, name) for t in tags for name in names)}
    return {name: found for name, found in (("result", result), ("course", course)) if found}


class TensorBoard(Logger):
    """Everything in the run's own folder, so that it belongs to one run."""

    def __init__(self, run: RunInfo) -> None:
        self._run, self._seen, self._position = run, set[str](), 0
        self._writer = EventFileWriter(str(run.folder), flush_secs=5)
        if run.resume_from is not None:  # readers drop what an interrupted run wrote from here on
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=run.resume_from + 1, session_log=start))
        self._excepthook, threading.excepthook = threading.excepthook, self._quiet

    def _quiet(self, failure: Any) -> None:
        """The writer's thread hands a full disk to us on the next call, and prints a traceback besides."""
        if not type(failure.thread).__module__.startswith("tensorboard."):
            self._excepthook(failure)

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        if not self._seen:
            self._lay_out(charts(metrics, self._run.labels))
        self._seen.update(metrics)
        self._position = position
        self._add([Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()], position)

    def images(self, position: int, images: dict[str, np.ndarray]) -> None:
        values = []
        for name, image in images.items():
            content = io.BytesIO()
            Image.fromarray(image).save(content, format="png")
            height, width, depth = image.shape
            encoded = {"colorspace": depth, "encoded_image_string": content.getvalue()}
            values.append(Summary.Value(tag=name, image=Summary.Image(height=height, width=width, **encoded)))
        self._add(values, position)
        self._writer.flush()

    def finish(self, summary: dict[str, Any]) -> None:
        """The hyperparameters tab; its metrics are the last values of series that are there already."""
        settings = flatten(self._run.settings)
        start = plugin_data_pb2.SessionStartInfo()
        for key, value in settings.items():
            if isinstance(value, bool):
                start.hparams[key].bool_value = value
            elif isinstance(value, int | float):
                start.hparams[key].number_value = value
            else:
                start.hparams[key].string_value = str(value)
        infos = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=tag)) for tag in self._final_tags()]
        experiment = api_pb2.Experiment(
            hparam_infos=[api_pb2.HParamInfo(name=key) for key in settings], metric_infos=infos
        )
        end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
        for tag, part in (
            (hparams.EXPERIMENT_TAG, {"experiment": experiment}),
            (hparams.SESSION_START_INFO_TAG, {"session_start_info": start}),
            (hparams.SESSION_END_INFO_TAG, {"session_end_info": end}),
        ):
            data = plugin_data_pb2.HParamsPluginData(version=hparams.PLUGIN_DATA_VERSION, **part)
            self._add([Summary.Value(tag=tag, metadata=_about(hparams.PLUGIN_NAME, data.SerializeToString()))])

    def _final_tags(self) -> list[str]:
        """One series of the return and one of each cost."""
        terms = sorted(
            {tag.rpartition("/")[0] for tag in self._seen if tag.startswith(("return/", "cost/"))}, reverse=True
        )
        found = [[f"{term}/{kind}" for kind in MEASURED if f"{term}/{kind}" in self._seen][:1] for term in terms]
        return [tag for tags in found for tag in tags]

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            threading.excepthook = self._excepthook

    def _add(self, values: list[Any], position: int | None = None) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=position, summary=Summary(value=values))
        self._writer.add_event(event)

    def _lay_out(self, found: dict[str, Charts]) -> None:
        if not found:
            return
        layout = layout_pb2.Layout()
        for name, its_charts in found.items():
            category = layout.category.add(title=name)
            for title, tags in its_charts.items():
                category.chart.add(title=title, multiline=layout_pb2.MultilineChartContent(tag=tags))
        text = TensorProto(dtype="DT_STRING", string_val=[layout.SerializeToString()])
        text.tensor_shape.SetInParent()
        about = _about(custom_scalar.PLUGIN_NAME)
        self._add([Summary.Value(tag=custom_scalar.CONFIG_SUMMARY_TAG, tensor=text, metadata=about)])


make = TensorBoard


def _about(plugin: str, content: bytes = b"") -> Any:
    return Metadata(plugin_data=Metadata.PluginData(plugin_name=plugin, content=content))


def flatten(data: dict[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}, "c": [2, 3]}` becomes `{"a.b": 1, "c.0": 2, "c.1": 3}`."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, list | tuple):
            value = {str(index): entry for index, entry in enumerate(value)}
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": entry for inner, entry in flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat
