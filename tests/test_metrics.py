"""Metrics: the table keeps every number whatever happens; TensorBoard reads back what was written."""

import csv
import errno
import io
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from rcac.errors import InputError
from rcac.experiment import metrics as module
from rcac.experiment.board import layout
from rcac.experiment.metrics import MetricsWriter, Table, flatten, read_metrics


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
        table.append(position, {"return/a": value, "cost/b": -value})
        assert len(rows(path)) == position + 1
    read = read_metrics(path)
    assert list(read) == ["position", "wall_time", "return/a", "cost/b"]
    assert read["position"].dtype == np.int64
    np.testing.assert_array_equal(read["position"], range(7))
    np.testing.assert_array_equal(read["return/a"], np.array([float(value) for value in values]))
    assert (np.diff(read["wall_time"]) >= 0).all()


def test_new_metrics_widen_the_table(path):
    table = Table(path)
    table.append(1, {"a/x": 1.0})
    table.append(2, {"a/x": 2.0, "b/y, z": 3.0})
    table.append(3, {"b/y, z": 4.0})
    table.append(4, {'c/"w"': 5.0, "a/x": 6.0})
    read = read_metrics(path)
    np.testing.assert_array_equal(read["a/x"], [1, 2, np.nan, 6])
    np.testing.assert_array_equal(read["b/y, z"], [np.nan, 3, 4, np.nan])
    np.testing.assert_array_equal(read['c/"w"'], [np.nan, np.nan, np.nan, 5])
    assert os.listdir(path.parent) == ["metrics.csv"]


def test_a_reserved_name_is_refused(path):
    with pytest.raises(InputError, match="metric 'wall_time'"):
        Table(path).append(1, {"wall_time": 1.0})


def fill(table: Table, start: int, stop: int) -> None:
    for position in range(start, stop):
        table.append(position, {"a/x": position / 7, **({"b/late": float(position)} if position >= 5 else {})})


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
    Table(path, 2).append(3, {"a/x": 1.0})
    np.testing.assert_allclose(read_metrics(path)["wall_time"], [100.5, 200.25, 200.25], atol=0.5)


def test_a_table_that_was_deleted_starts_anew(path):
    Table(path, 5).append(6, {"a/x": 1.0})
    np.testing.assert_array_equal(read_metrics(path)["position"], [6])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"header \[\] found"),
        ("a,b\n", r"header \['a', 'b'\] found"),
        ("position,wall_time,a\n1,2,3\n1,2\n", "row 3 is not 3 cells"),
        ("position,wall_time,a\nx,2,3\n", "row 2 is not 3 cells that begin with a position"),
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


# The board


def read_board(folder: Path) -> EventAccumulator:
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    board.Reload()
    return board


def numbers(position: int) -> dict[str, float]:
    return {"return/value": position / 4, "cost/sum": position / 2, "budget/sum": 6.0}


def test_board_reads_back(tmp_path):
    picture = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    with MetricsWriter(tmp_path) as writer:
        for position in range(0, 50, 5):
            writer.write(position, numbers(position))
        writer.images(45, {"policy/grid": picture})
        final = {"best": 1.5, "feasible": True, "bounds": {"gap": 0.25, "none": float("inf")}, "text": "x"}
        writer.hyperparameters(45, {"env": {"name": "toy"}, "lr": 0.5, "sizes": [64, 32], "none": None}, final)
    assert writer.board_error is None
    board = read_board(tmp_path)
    for name in numbers(0):
        events = board.Scalars(name)
        assert [event.step for event in events] == list(range(0, 50, 5))
        assert [event.value for event in events] == [numbers(event.step)[name] for event in events]
    [image] = board.Images("policy/grid")
    assert (image.step, image.height, image.width) == (45, 5, 7)
    from PIL import Image

    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(image.encoded_image_string))), picture)

    [event] = board.Tensors("custom_scalars__config__")
    [category] = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0]).category
    assert [list(chart.multiline.tag) for chart in category.chart] == [["(cost|utility)/sum(/.*)?$", "budget/sum$"]]

    # Hyperparameters and final metrics belong to this run, and there is no other.
    plugin = {
        tag: plugin_data_pb2.HParamsPluginData.FromString(content)
        for tag, content in board.PluginTagToContent("hparams").items()
    }
    start = plugin["_hparams_/session_start_info"].session_start_info.hparams
    assert start["env.name"].string_value == "toy"
    assert start["lr"].number_value == 0.5
    assert start["sizes.1"].number_value == 32
    tags = [info.name.tag for info in plugin["_hparams_/experiment"].experiment.metric_infos]
    assert tags == ["final/best", "final/feasible", "final/bounds/gap"]
    assert [board.Scalars(tag)[-1].value for tag in tags] == [1.5, 1.0, 0.25]
    every = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    every.Reload()
    assert list(every.Runs()) == ["."]


def test_board_forgets_what_the_resumed_run_repeats(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for position in range(1, 10):
            writer.write(position, {"return/value": 100.0 + position})
    with MetricsWriter(tmp_path, resume_from=6) as writer:
        for position in range(7, 12):
            writer.write(position, {"return/value": 200.0 + position})
    events = read_board(tmp_path).Scalars("return/value")
    assert [event.step for event in events] == list(range(1, 12))
    assert [event.value for event in events] == [100.0 + p for p in range(1, 7)] + [200.0 + p for p in range(7, 12)]


@pytest.mark.parametrize("harm", ["truncate", "delete"])
def test_a_harmed_board_harms_nothing_else(tmp_path, harm):
    with MetricsWriter(tmp_path) as writer:
        for position in range(1, 10):
            writer.write(position, numbers(position))
    [events] = tmp_path.glob("events.*")
    if harm == "truncate":
        os.truncate(events, events.stat().st_size * 2 // 3)
    else:
        events.unlink()
    with MetricsWriter(tmp_path, resume_from=9) as writer:
        for position in range(10, 15):
            writer.write(position, numbers(position))
    assert writer.board_error is None
    read = read_metrics(tmp_path / "metrics.csv")
    np.testing.assert_array_equal(read["position"], range(1, 15))
    np.testing.assert_array_equal(read["return/value"], np.arange(1, 15) / 4)
    assert [event.step for event in read_board(tmp_path).Scalars("cost/sum")][-5:] == [10, 11, 12, 13, 14]


def test_a_board_that_cannot_be_written_costs_only_the_board(tmp_path, monkeypatch):
    tracebacks = []
    monkeypatch.setattr(threading, "excepthook", hook := tracebacks.append)
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, numbers(1))

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(writer._board._writer._general_file_writer, "write", full)
        for position in range(2, 200):
            writer.write(position, numbers(position))
    assert writer.board_error == "TensorBoard is off: [Errno 28] No space left on device"
    np.testing.assert_array_equal(read_metrics(tmp_path / "metrics.csv")["position"], range(1, 200))
    assert tracebacks == []  # none from the writer's thread
    assert threading.excepthook is hook


def test_without_a_board_there_is_still_a_table(tmp_path, monkeypatch):
    def missing(*_):
        raise ImportError("no module named tensorboard")

    monkeypatch.setattr(module, "Board", missing)
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, numbers(1))
        writer.images(1, {})
    assert writer.board_error == "TensorBoard is off: no module named tensorboard"
    assert len(rows(tmp_path / "metrics.csv")) == 1


def charts(budgets: list[str], names: list[str]) -> dict[str, list[str]]:
    """What each chart shows, found as TensorBoard does, by matching patterns from the beginning of a tag."""
    [(title, found)] = layout(budgets).items()
    assert title == "cost and budget"
    return {key: [n for n in names if any(re.match(tag, n) for tag in tags)] for key, tags in found.items()}


def test_layout_puts_each_cost_beside_its_budget():
    budgets = ["budget/1", "budget/1/discounted", "budget/10"]
    names = ["return/a", "cost/1", "cost/1/episode", "cost/1/discounted", "cost/1/discounted/worst", "cost/10/episode"]
    names += ["utility/10", "critic/1/loss", "cost/100", "cost/1x"]
    assert charts(budgets, budgets + names) == {
        "1": ["budget/1", "cost/1", "cost/1/episode"],
        "1/discounted": ["budget/1/discounted", "cost/1/discounted", "cost/1/discounted/worst"],
        "10": ["budget/10", "cost/10/episode", "utility/10"],
    }
    assert charts(["budget/a.b"], ["cost/a.b", "cost/axb"]) == {"a.b": ["cost/a.b"]}
    assert layout(["return/a", "cost/b"]) == {}


def test_flatten():
    assert flatten({"a": {"b": 1, "c": [2, {"d": 3}]}, "e": None}, ".") == {
        "a.b": 1,
        "a.c.0": 2,
        "a.c.1.d": 3,
        "e": None,
    }


def test_a_table_that_cannot_be_taken_up_closes_the_board(tmp_path):
    (tmp_path / "metrics.csv").write_text("foreign\n")
    hook, threads = threading.excepthook, threading.active_count()
    with pytest.raises(InputError, match="header"):
        MetricsWriter(tmp_path, resume_from=3)
    assert (threading.excepthook, threading.active_count()) == (hook, threads)
