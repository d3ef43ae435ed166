"""A sweep on a real Ray cluster: two nodes on this machine's loopback, one of which is killed in the middle."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fragile_package import TINY, install

from rcac.runs.loggers.csv import read_metrics

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).parents[2] / "scripts" / "train.py"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Two nodes with a processor each, which find what this process finds."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    monkeypatch.syspath_prepend(install(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    nodes = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes.second = nodes.add_node(num_cpus=1)
    yield nodes
    nodes.shutdown()


def start(text: str, cluster) -> subprocess.Popen:
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), "-m", *text.split(), "hydra/launcher=ray"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def wait_for(event, process: subprocess.Popen) -> None:
    while not event():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_node_is_killed_in_the_middle(cluster):
    """Its jobs are done again, from their checkpoints: nothing is lost, nothing done twice."""
    home = Path.cwd()
    (home / "wait").touch()
    process = start(f"{TINY} seed=range(4) algo.iterations=30 hydra.sweep.dir=mine", cluster)

    def running() -> int:
        return sum(path.read_bytes().count(b"\n") > 5 for path in home.glob("mine/*/*/*/metrics.csv"))

    wait_for(lambda: running() == 2, process)  # one on each node
    launch = (home / "mine" / ".jobs" / "launch").read_text()
    cluster.remove_node(cluster.second, allow_graceful=False)
    path = home / "mine" / ".jobs" / "launch"
    wait_for(lambda: path.is_file() and path.read_text() != launch, process)  # launched again
    (home / "wait").unlink()
    out, err = process.communicate()
    assert (process.returncode, out.splitlines()[-1]) == (0, "mine"), err
    rows = json.loads((home / "mine" / "sweep.json").read_text())["jobs"]
    assert [row["outcome"] for row in rows] == ["finished"] * 4
    folders = sorted(home.glob("mine/river_swim/rnpg/*"))
    assert len({row["folder"] for row in rows}) == len(folders) == 4
    for folder in folders:
        assert read_metrics(folder / "metrics.csv")["position"].tolist() == list(range(1, 31))
