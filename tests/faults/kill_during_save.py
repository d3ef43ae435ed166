"""Kill a process that saves checkpoints without pause, COUNT times, at random moments; look at what is left each time.

kill_during_save.py FOLDER COUNT          prints kills, checkpoints saved, and how many kills fell inside a save
"""

import json
import mmap
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

import numpy as np

from rcac.learner import State
from rcac.runs.checkpoint import load, load_latest, save

IDENTITY = {"env": "toy"}


def state_at(position: int) -> State:
    return State({"w": np.full(20_000, position, dtype=np.float64)}, {"position": position})


def save_for_ever(folder: Path, position: int, shared: mmap.mmap) -> None:
    while True:
        position += 1
        shared[8:16] = struct.pack("q", position)  # begun
        save(folder, position, state_at(position), identity=IDENTITY, keep=2, score=float(-position))
        shared[:8] = struct.pack("q", position)  # done


def main() -> None:
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    shared = mmap.mmap(-1, 16)
    save(folder, 0, state_at(0), identity=IDENTITY, keep=2, score=0.0)
    inside = position = 0
    for _ in range(count):
        shared[:] = struct.pack("qq", position, position)
        child = os.fork()
        if child == 0:
            save_for_ever(folder, position, shared)
        target = position + random.randint(1, 3)
        while struct.unpack("qq", shared[:])[1] < target:  # until that save has begun, and then a moment
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done, begun = struct.unpack("qq", shared[:])
        inside += begun > done
        for path in (folder / "checkpoints").glob("0*"):
            load(path, IDENTITY)  # every one that can be seen is whole
        loaded = load_latest(folder, IDENTITY)
        assert loaded.skipped == [], loaded.skipped
        assert loaded.position in (done, begun), (loaded.position, done, begun)
        assert loaded.state.data == {"position": loaded.position}
        assert (loaded.state.tensors["w"] == loaded.position).all()
        assert (folder / "checkpoints" / f"{0:012d}").is_dir(), "the best one was lost"
        position = loaded.position
    save(folder, position + 1, state_at(position + 1), identity=IDENTITY, keep=2, score=None)
    left = sorted(os.listdir(folder / "checkpoints"))
    assert left == [f"{p:012d}" for p in (0, position, position + 1)], left
    print(json.dumps({"kills": count, "saved": position, "inside": inside}))


if __name__ == "__main__":
    main()
