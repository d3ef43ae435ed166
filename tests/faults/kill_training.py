"""Train the toy learner in a run's folder; kill it at random moments and resume it, until it arrives.

kill_training.py FOLDER          prints how often it was killed
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from toy_learner import ToyLearner, train_toy

import rcac.runs.loggers.tensorboard  # noqa: F401  here once, and not again in every process that is killed
from rcac.runs import checkpoint
from rcac.runs.folder import RunFolder
from rcac.runs.loggers.csv import read_metrics

EVERY = 10


def train(path: Path) -> None:
    learner = ToyLearner(total=60)
    learner.pause = 0.01  # 0.6 s in all, several lives long
    train_toy(learner, RunFolder.open(path), checkpoint_every=EVERY, resume=checkpoint.latest(path) is not None)


def main() -> None:
    path = Path(sys.argv[1])
    draw = random.Random(0)
    for kills in range(300):
        child = os.fork()
        if child == 0:
            train(path)
            os._exit(0)
        # Short lives at first, so that there are kills enough; then longer ones, so that it arrives on a slow machine.
        time.sleep(draw.uniform(0.02, 0.15 + 0.02 * kills))
        if os.waitpid(child, os.WNOHANG) == (child, 0):
            print(json.dumps({"kills": kills}))
            return
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        latest = checkpoint.latest(path)
        if latest is not None and (path / "metrics.csv").exists():
            rows = read_metrics(path / "metrics.csv")["position"]
            assert len(rows) == 0 or rows[-1] - int(latest.name) <= EVERY, (rows[-1], latest.name)
    sys.exit("it never arrived")


if __name__ == "__main__":
    main()
