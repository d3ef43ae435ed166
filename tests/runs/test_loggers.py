"""Loggers: the table keeps every number whatever happens; the others read back what was written, or are given up."""

import csv
import errno
import io
import os
import re
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from rcac import registry
from rcac.errors import InputError
from rcac.learner import Step
from rcac.runs.loggers import Logger, Loggers, MemoryLogger, RunInfo
from rcac.runs.loggers.csv import Table, read_metrics
from rcac.runs.loggers.tensorboard import charts, flatten


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open()))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.csv"


# The table


def test_rows_are_on_disk_at_once_and_exact(path):
    table = Table(path)
    values = [0.1, 1 / 3, -1e-300, float("inf"), float("nan"), np.float32(0.1), 7]
    for position, value in enumerate(values):
        table.scalars(position, {"return/a": value, "cost/b": -value})
        assert len(rows(path)) == position + 1
    read = read_metrics(path)
    assert list(read) == ["position", "wall_time", "return/a", "cost/b"]
    assert read["position"].dtype == np.int64
    np.testing.assert_array_equal(read["position"], range(7))
    np.testing.assert_array_equal(read["return/a"], np.array([float(value) for value in values]))
    assert (np.diff(read["wall_time"]) >= 0).all()


def test_new_metrics_widen_the_table(path):
    table = Table(path)
    table.scalars(1, {"a/x": 1.0})
    table.scalars(2, {"a/x": 2.0, "b/y, z": 3.0})
    table.scalars(3, {"b/y, z": 4.0})
    table.scalars(4, {'c/"w"': 5.0, "a/x": 6.0})
    read = read_metrics(path)
    np.testing.assert_array_equal(read["a/x"], [1, 2, np.nan, 6])
    np.testing.assert_array_equal(read["b/y, z"], [np.nan, 3, 4, np.nan])
    np.testing.assert_array_equal(read['c/"w"'], [np.nan, np.nan, np.nan, 5])
    assert os.listdir(path.parent) == ["metrics.csv"]


def test_a_reserved_name_is_refused(path):
    with pytest.raises(InputError, match="metric 'wall_time'"):
        Table(path).scalars(1, {"wall_time": 1.0})


def fill(table: Table, start: int, stop: int) -> None:
    for position in range(start, stop):
        table.scalars(position, {"a/x": position / 7, **({"b/late": float(position)} if position >= 5 else {})})


def without_time(path: Path) -> list[list[str]]:
    return [row[:1] + row[2:] for row in csv.reader(path.open())]


@pytest.mark.parametrize(("reached", "resumed"), [(9, 6), (9, 3), (4, 3), (9, 8), (9, 0)])
def test_resumed_equals_uninterrupted(tmp_path, reached, resumed):
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    fill(Table(whole), 1, 12)
    fill(Table(broken), 1, reached + 1)
    with broken.open("a") as file:
        file.write("10,0.1,0.12")  # half a row, of a process that was killed
    fill(Table(broken, resumed), resumed + 1, 12)
    assert without_time(broken) == without_time(whole)


def test_wall_time_goes_on_after_a_pause(path):
    path.write_text("position,wall_time,a/x\n1,100.5,0.0\n2,200.25,0.0\n3,300.0,0.0\n")
    Table(path, 2).scalars(3, {"a/x": 1.0})
    np.testing.assert_allclose(read_metrics(path)["wall_time"], [100.5, 200.25, 200.25], atol=0.5)


def test_a_table_that_was_deleted_starts_anew(path):
    Table(path, 5).scalars(6, {"a/x": 1.0})
    np.testing.assert_array_equal(read_metrics(path)["position"], [6])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"header \[\] found"),
        ("a,b\n", r"header \['a', 'b'\] found"),
        ("position,wall_time,a\n1,2,3\n1,2\n", "row 3 is not 3 cells"),
        ("position,wall_time,a\nx,2,3\n", "row 2 is not 3 cells that begin with a position"),
        (f"position,wall_time,a\n{'9' * 30},2,3\n", "row 2 is not 3 cells that begin with a position"),
        ("position,wall_time,a\n1,2,3\n2,long,3\n", "row 3 has a cell that is not a number"),
        ("position,wall_time,a\n1,,3\n", "row 2 has a cell that is not a number"),
        (f"position,wall_time,{'a' * 200_000}\n", "not a table"),
    ],
)
def test_a_foreign_table_is_refused(path, text, message):
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_metrics(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_metrics(path.parent / "none.csv")


def test_a_full_disk_leaves_whole_rows(path, monkeypatch):
    table = Table(path)
    fill(table, 1, 4)
    before, real = path.read_bytes(), os.write

    def half(descriptor, content):
        if len(content) <= 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, content[: len(content) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match=r"No space left.*metrics\.csv"):
            fill(table, 4, 5)
    assert path.read_bytes() == before
    fill(table, 4, 6)
    np.testing.assert_array_equal(read_metrics(path)["position"], [1, 2, 3, 4, 5])


# All of them, as a run has them


class Place:
    """A learner as far as loggers look at it."""

    def __init__(self) -> None:
        self.position, self.finished = 0, True

    def summary(self):
        return {"best": 1.5}

    def images(self):
        return {}


def write(loggers: Loggers, positions: range, values=None) -> None:
    learner = Place()
    for learner.position in positions:
        loggers.on_step(learner, Step((values or numbers)(learner.position), (), ""))


def open_loggers(folder: Path, resume_from: int | None = None, names=("csv", "tensorboard"), **options) -> Loggers:
    info = RunInfo(folder, ["return", "cost"], options.pop("settings", {}), resume_from)
    return Loggers.open(names, info, **options)


def read_events(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return events


def numbers(position: int) -> dict[str, float]:
    return {"return/episode": position / 4, "cost/1/episode": position / 2, "budget/1": 6.0}


PICTURE = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)


def test_tensorboard_reads_back(tmp_path):
    settings = {"env": {"name": "toy"}, "lr": 0.5, "sizes": [64, 32], "none": None}
    loggers = open_loggers(tmp_path, settings=settings, draw=lambda: {"policy/grid": PICTURE}, images_every=100)
    write(loggers, range(5, 50, 5))
    end = Place()
    end.position = 45
    loggers.on_end(end, None)
    loggers.close()
    assert loggers.failed == []
    events = read_events(tmp_path)
    for name in numbers(0):
        assert [event.step for event in events.Scalars(name)] == list(range(5, 50, 5))
        assert [event.value for event in events.Scalars(name)] == [numbers(p)[name] for p in range(5, 50, 5)]
    assert set(events.Tags()["scalars"]) == set(numbers(0))  # and nothing that has one point only
    [image] = events.Images("policy/grid")
    assert (image.step, image.height, image.width) == (45, 5, 7)
    from PIL import Image

    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(image.encoded_image_string))), PICTURE)

    [event] = events.Tensors("custom_scalars__config__")
    [category] = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0]).category
    _, chart = category.chart
    assert chart.title == "cost, and its budget"
    assert {name for name in numbers(0) if any(re.match(tag, name) for tag in chart.multiline.tag)} == {
        "cost/1/episode",
        "budget/1",
    }

    # Hyperparameters and final metrics belong to this run, and there is no other.
    plugin = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(content)
        for tag, content in events.PluginTagToContent("hparams").items()
    }
    start = plugin["_hparams_/session_start_info"].session_start_info.hparams
    assert start["env.name"].string_value == "toy"
    assert start["lr"].number_value == 0.5
    assert start["sizes.1"].number_value == 32
    tags = [info.name.tag for info in plugin["_hparams_/experiment"].experiment.metric_infos]
    assert tags == ["return/episode", "cost/1/episode"]
    every = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    every.Reload()
    assert list(every.Runs()) == ["."]


def test_tensorboard_forgets_what_the_resumed_run_repeats(tmp_path):
    loggers = open_loggers(tmp_path)
    write(loggers, range(1, 10), lambda position: {"return/value": 100.0 + position})
    loggers.close()
    loggers = open_loggers(tmp_path, resume_from=6)
    write(loggers, range(7, 12), lambda position: {"return/value": 200.0 + position})
    loggers.close()
    events = read_events(tmp_path).Scalars("return/value")
    assert [event.step for event in events] == list(range(1, 12))
    assert [event.value for event in events] == [100.0 + p for p in range(1, 7)] + [200.0 + p for p in range(7, 12)]


@pytest.mark.parametrize("harm", ["truncate", "delete"])
def test_harmed_events_harm_nothing_else(tmp_path, harm):
    loggers = open_loggers(tmp_path)
    write(loggers, range(1, 10))
    loggers.close()
    [events] = tmp_path.glob("events.*")
    if harm == "truncate":
        os.truncate(events, events.stat().st_size * 2 // 3)
    else:
        events.unlink()
    loggers = open_loggers(tmp_path, resume_from=9)
    write(loggers, range(10, 15))
    loggers.close()
    assert loggers.failed == []
    read = read_metrics(tmp_path / "metrics.csv")
    np.testing.assert_array_equal(read["position"], range(1, 15))
    np.testing.assert_array_equal(read["return/episode"], np.arange(1, 15) / 4)
    assert [event.step for event in read_events(tmp_path).Scalars("cost/1/episode")][-5:] == [10, 11, 12, 13, 14]


def test_events_that_cannot_be_written_cost_only_the_events(tmp_path, monkeypatch):
    """The disk is full for TensorBoard's file: one line, no traceback of its thread, and the table goes on."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    tracebacks = []
    monkeypatch.setattr(threading, "excepthook", hook := tracebacks.append)
    loggers = open_loggers(tmp_path)
    write(loggers, range(1, 2))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", full)
    write(loggers, range(2, 200))
    loggers.close()
    assert loggers.failed == ["logger tensorboard is off: [Errno 28] No space left on device"]
    np.testing.assert_array_equal(read_metrics(tmp_path / "metrics.csv")["position"], range(1, 200))
    assert tracebacks == []
    assert threading.excepthook is hook


def test_a_logger_that_cannot_be_made_costs_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # not installed
    loggers = open_loggers(tmp_path, names=("wandb", "csv"), draw=dict)
    write(loggers, range(1, 2))
    loggers.close()
    assert loggers.failed == ["logger wandb is off: wandb is not installed, pip install 'rcac[wandb]' expected"]
    assert len(rows(tmp_path / "metrics.csv")) == 1


@pytest.mark.parametrize("text", ["foreign\n", "", "position,wall_time,a\n1,long,2\n"])
def test_a_damaged_table_is_set_aside_when_a_run_goes_on(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    loggers = open_loggers(tmp_path, resume_from=3)
    write(loggers, range(4, 6))
    loggers.close()
    (line,) = loggers.failed
    assert line.endswith("it is metrics.csv.damaged now, and a new table begins")
    assert (tmp_path / "metrics.csv.damaged").read_text() == text
    np.testing.assert_array_equal(read_metrics(tmp_path / "metrics.csv")["position"], [4, 5])


def test_a_table_damaged_while_training_is_set_aside_when_it_is_widened(path):
    lines: list[str] = []
    table = Table(path, warn=lines.append)
    table.scalars(1, {"a/x": 1.0})
    path.write_text("garbage")
    table.scalars(2, {"a/x": 2.0, "b/y": 3.0})
    table.close()
    assert len(lines) == 1
    np.testing.assert_array_equal(read_metrics(path)["b/y"], [3.0])


def test_a_logger_that_cannot_be_made_closes_the_others(tmp_path, monkeypatch):
    hook, threads = threading.excepthook, threading.active_count()
    monkeypatch.setattr(Table, "_rewrite", lambda table, rows: 1 / 0)
    (tmp_path / "metrics.csv").write_text("position,wall_time\n")
    with pytest.raises(ZeroDivisionError):
        open_loggers(tmp_path, resume_from=3)
    assert (threading.excepthook, threading.active_count()) == (hook, threads)


def test_a_registered_logger_sees_everything_and_one_that_fails_is_given_up(tmp_path):
    seen: list = []

    class Mine(Logger):
        def __init__(self, run):
            seen.append(run.folder)

        def scalars(self, position, metrics):
            seen.append((position, metrics["cost/1/episode"]))
            if position == 3:
                raise RuntimeError("the server\nis gone")

        def close(self):
            seen.append("closed")

    name = "mine_of_test_loggers"
    registry.register_logger(name)(Mine)
    loggers = open_loggers(tmp_path, names=("csv", name))
    write(loggers, range(1, 6))
    loggers.close()
    assert seen == [tmp_path, (1, 0.5), (2, 1.0), (3, 1.5), "closed"]
    assert loggers.failed == [f"logger {name} is off: the server is gone"]
    assert len(rows(tmp_path / "metrics.csv")) == 5


def test_memory_holds_what_the_table_holds(path):
    table, memory = Table(path), MemoryLogger()
    for logger in (table, memory):
        logger.scalars(1, {"a/x": 1.0})
        logger.scalars(2, {"b/y": 2.0})
    read, kept = read_metrics(path), memory.columns()
    assert list(read) == list(kept)
    for name in ("position", "a/x", "b/y"):
        np.testing.assert_array_equal(read[name], kept[name])
        assert read[name].dtype == kept[name].dtype
    assert list(MemoryLogger().columns()) == ["position", "wall_time"]


def wandb_history(file: Path) -> list[dict[str, str]]:
    """The rows in a file of wandb's: LevelDB's log format (blocks of 32 KiB; crc, length, type) after 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, place, part, found = file.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        if (1 << 15) - place % (1 << 15) < 7:  # no room for a header in this block
            place += (1 << 15) - place % (1 << 15)
            continue
        length, kind = struct.unpack("<HB", content[place + 4 : place + 7])
        part += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record.FromString(part)
            if record.HasField("history"):
                found.append({item.key or "/".join(item.nested_key): item.value_json for item in record.history.item})
            part = b""
    return found


def test_wandb_offline(tmp_path, monkeypatch):
    """Its own file holds what was written; nothing goes over a network."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    pictures = {"draw": lambda: {"policy/grid": PICTURE}, "images_every": 100}
    loggers = open_loggers(tmp_path, names=("wandb",), settings={"lr": 0.5}, **pictures)
    write(loggers, range(1, 4))
    end = Place()
    end.position = 3
    loggers.on_end(end, None)
    loggers.close()
    assert loggers.failed == []
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 600  # a process of wandb's writes the file
    while len(rows := wandb_history(file)) < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [(row["position"], float(row["cost/1/episode"])) for row in rows[:3]] == [("1", 0.5), ("2", 1.0), ("3", 1.5)]
    assert any(key.startswith("policy/grid") for key in rows[3])


# Charts


def shown(first: list[str], later: list[str] = (), labels=("return", "cost")) -> dict[str, list[str]]:
    """What each chart shows, found as TensorBoard does, by matching patterns from the beginning of a tag."""
    found = {title: tags for category in charts(first, labels).values() for title, tags in category.items()}
    names = [*first, *later]
    return {title: [n for n in names if any(re.match(tag, n) for tag in tags)] for title, tags in found.items()}


def test_a_deep_chart_has_a_cost_and_its_budget_in_one_unit():
    first = ["return/estimate", "cost/1/estimate", "budget/1", "budget/1/discounted", "switch/index"]
    later = [
        "return/episode",
        "cost/1/episode",
        "cost/1/discounted",
        "cost/1/worst_context",
        "cost/1/worst_context_excess",
    ]
    later += ["cost/10/episode", "cost/1x", "trial/return", "trial/cost/1"]
    assert shown(first, later, ["return", "fuel"]) == {
        "return of an episode": ["return/episode", "trial/return"],
        "fuel of an episode, and its budget": ["budget/1", "cost/1/episode", "cost/1/worst_context", "trial/cost/1"],
        "what is improved: 0 the return, 1 and on a cost": ["switch/index"],
        "fuel, estimated and discounted, and its budget": ["cost/1/estimate", "budget/1/discounted"],
    }


def test_a_tabular_chart_has_the_worst_case_and_the_best():
    first = ["return/worst_case", "return/best", "cost/1/worst_case", "cost/1/best", "cost/2/best", "budget/1"]
    assert shown(first, ["critic/1/loss"]) == {
        "return in the worst case": ["return/worst_case", "return/best"],
        "cost in the worst case, and its budget": ["cost/1/worst_case", "cost/1/best", "budget/1"],
    }


def test_adversaries_share_a_chart_for_each_parameter():
    first = [f"adversary/{n}/{name}" for name in ("concentration", "worst/wind", "worst/mass") for n in (1, 2)]
    assert shown(first) == {
        "adversaries: concentration": first[:2],
        "adversaries: wind": first[2:4],
        "adversaries: mass": first[4:],
    }


def test_charts_of_other_learners():
    assert shown(["budget/a.b"], ["cost/a.b", "cost/axb"])["cost a.b, and its budget"] == ["budget/a.b", "cost/a.b"]
    assert charts(["cost/b", "loss"], []) == {}


def test_flatten():
    assert flatten({"a": {"b": 1, "c": [2, {"d": 3}]}, "e": None}) == {
        "a.b": 1,
        "a.c.0": 2,
        "a.c.1.d": 3,
        "e": None,
    }
