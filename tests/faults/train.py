"""Train the toy learner as a program does: the run's folder on the first line, the outcome on the last, an exit code.

    train.py new|resume FOLDER OPTIONS

Options, in JSON: total, size, pause (seconds per step), checkpoint_every, sleep_at (position at which a step takes a
minute), limit_at ([position, bytes]: from there on no file may be larger, which is how a disk that fills up looks).
"""

import json
import resource
import signal
import sys
import time

from toy_learner import ToyLearner, train_toy

from rcac.errors import InputError
from rcac.runs.folder import RunFolder
from rcac.runs.loop import TrainingStopped


def main() -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell may have it ignored
    mode, where, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    learner = ToyLearner(total=options.get("total", 60), size=options.get("size", 4))
    learner.pause = options.get("pause", 0.0)
    learner.at[options.get("sleep_at", -1)] = lambda: (print("asleep", flush=True), time.sleep(60))
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
