"""TensorBoard events, written with TensorBoard's own file format and nothing else (no torch, no TensorFlow)."""

import io
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np


def layout(names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Charts that put each cost beside its budget, for TensorBoard's custom scalars: patterns of tags, by titles.

    `cost/<key>` and `cost/<key>/…` go with `budget/<key>`, unless `budget/<key>/…` says more exactly which is theirs.
    Tags are patterns, so metrics that come later find their chart.
    """
    keys = [name.removeprefix("budget/") for name in names if name.startswith("budget/")]
    charts = {}
    for key in keys:
        closer = "|".join(re.escape(other.removeprefix(key)) for other in keys if other.startswith(f"{key}/"))
        elsewhere = f"(?!({closer})(/|$))" if closer else ""
        costs = f"(cost|utility)/{re.escape(key)}{elsewhere}(/.*)?$"
        charts[key] = [costs, f"budget/{re.escape(key)}$"]
    return {"cost and budget": charts} if charts else {}


class Board:
    """TensorBoard events in the run's own folder, so that everything belongs to one run."""

    def __init__(self, folder: Path, resume_from: int | None = None) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._metadata = summary_pb2.SummaryMetadata
        self._laid_out = False
        self._writer = EventFileWriter(str(folder), flush_secs=5)
        if resume_from is not None:  # readers drop what an interrupted run wrote from here on
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(self._event(wall_time=time.time(), step=resume_from + 1, session_log=start))
        self._excepthook, threading.excepthook = threading.excepthook, self._quiet

    def _quiet(self, failure: Any) -> None:
        """The writer's thread hands a full disk to us on the next call, and prints a traceback besides."""
        if not type(failure.thread).__module__.startswith("tensorboard."):
            self._excepthook(failure)

    def _add(self, values: list[Any], position: int | None = None) -> None:
        event = self._event(wall_time=time.time(), step=position, summary=self._summary(value=values))
        self._writer.add_event(event)

    def scalars(self, position: int, metrics: dict[str, float]) -> None:
        if not self._laid_out:
            self._laid_out = True
            self._lay_out(layout(metrics))
        self._add([self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()], position)

    def _lay_out(self, charts: dict[str, dict[str, list[str]]]) -> None:
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.custom_scalar import layout_pb2, metadata

        if not charts:
            return
        made = layout_pb2.Layout()
        for title, group in charts.items():
            category = made.category.add(title=title)
            for name, tags in group.items():
                category.chart.add(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags))
        text = TensorProto(dtype="DT_STRING", string_val=[made.SerializeToString()])
        text.tensor_shape.SetInParent()
        about = self._about(metadata.PLUGIN_NAME)
        self._add([self._summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, tensor=text, metadata=about)])

    def _about(self, plugin: str, content: bytes = b"") -> Any:
        return self._metadata(plugin_data=self._metadata.PluginData(plugin_name=plugin, content=content))

    def images(self, position: int, images: dict[str, np.ndarray]) -> None:
        from PIL import Image

        values = []
        for name, image in images.items():  # (H, W, 3) uint8
            content = io.BytesIO()
            Image.fromarray(image).save(content, format="png")
            height, width, colours = image.shape
            picture = self._summary.Image(
                height=height, width=width, colorspace=colours, encoded_image_string=content.getvalue()
            )
            values.append(self._summary.Value(tag=name, image=picture))
        self._add(values, position)
        self._writer.flush()

    def hyperparameters(self, position: int, values: dict[str, Any], final: dict[str, float]) -> None:
        """The hyperparameters tab, in this run (and not in one of its own, as torch's writer has it)."""
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        self.scalars(position, final)
        experiment = api_pb2.Experiment()
        start = plugin_data_pb2.SessionStartInfo()
        for key, value in values.items():
            if isinstance(value, bool):
                start.hparams[key].bool_value, kind = value, api_pb2.DATA_TYPE_BOOL
            elif isinstance(value, int | float):
                start.hparams[key].number_value, kind = value, api_pb2.DATA_TYPE_FLOAT64
            else:
                start.hparams[key].string_value, kind = str(value), api_pb2.DATA_TYPE_STRING
            experiment.hparam_infos.add(name=key, type=kind)
        for tag in final:
            experiment.metric_infos.add(name=api_pb2.MetricName(tag=tag))
        end = plugin_data_pb2.SessionEndInfo(status=api_pb2.STATUS_SUCCESS)
        for tag, part in (
            (metadata.EXPERIMENT_TAG, {"experiment": experiment}),
            (metadata.SESSION_START_INFO_TAG, {"session_start_info": start}),
            (metadata.SESSION_END_INFO_TAG, {"session_end_info": end}),
        ):
            data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **part)
            about = self._about(metadata.PLUGIN_NAME, data.SerializeToString())
            self._add([self._summary.Value(tag=tag, metadata=about)])

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            threading.excepthook = self._excepthook
