"""Train the toy learner as a program does: the run's folder on the first line, the outcome on the last, an exit code.

    train.py new|resume FOLDER OPTIONS

Options, in JSON: total, size, checkpoint_every, wait_at (position at which a step says "waiting" and ends when a signal
has come), sleep_at (likewise, but it then says "told" and sleeps on), limit_at ([position, bytes]: from there on no file may be larger, which is how a disk that fills up looks).
"""

import json
import resource
import signal
import sys
import time
from functools import partial

from toy_learner import ToyLearner, train_toy

from rcac.errors import InputError
from rcac.runs.folder import RunFolder
from rcac.runs.loop import TrainingStopped


def wait(sleepy: bool) -> None:
    print("waiting", flush=True)
    while not signal.getsignal(signal.SIGINT).__self__.received:  # the handler is a method of StopRequest
        time.sleep(0.01)
    if sleepy:
        print("told", flush=True)
        time.sleep(3600)


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may have it ignored
    mode, where, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    learner = ToyLearner(total=options.get("total", 60), size=options.get("size", 4))
    for name, sleepy in (("wait_at", False), ("sleep_at", True)):
        learner.at[options.get(name, -1)] = partial(wait, sleepy)
    try:
        folder = RunFolder.create(where, "toy", "descent", 0) if mode == "new" else RunFolder.open(where)
        print(folder.path, flush=True)
        if "limit_at" in options:
            position, limit = options["limit_at"]
            learner.at[position] = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if position == 0:
                learner.at[0]()
        every = options.get("checkpoint_every", 10)
        outcome = train_toy(learner, folder, checkpoint_every=every, resume=mode == "resume").outcome
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except TrainingStopped as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(json.dumps(outcome._asdict()), flush=True)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
