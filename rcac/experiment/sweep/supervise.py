"""Have a sweep's jobs done, and follow them."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rcac.experiment.signals import StopRequest
from rcac.experiment.sweep.folder import End, Job, SweepFolder

SECONDS = 0.1  # between two looks at what has ended
LAUNCH = "from rcac.experiment.sweep.worker import launch; launch()"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Sweep(NamedTuple):
    folder: SweepFolder
    jobs: list[Job]
    options: list[str]  # of the launcher: overrides of Hydra's
    progress: bool  # whether it is to be shown


def carry_out(sweep: Sweep, ends: dict[str, End], tell: Callable[[Job, End], None], stop: StopRequest) -> str | None:
    """Do the jobs that are not in `ends`, and put them there, one by one. What the launcher said if it failed.

    Once asked to stop, running jobs leave a checkpoint, and none begins. Their processes are in a session of their
    own, so that a terminal's Ctrl-C reaches them this way only.
    """
    folder, launch = sweep.folder, secrets.token_hex(8)
    missing = {job.key: job for job in sweep.jobs if job.key not in ends}
    for job in missing.values():
        folder.add(job)
    folder.begin(launch)
    with (folder.jobs / "launcher.log").open("w+b") as log:
        request = {"folder": str(folder.path), "launch": launch, "options": sweep.options, "jobs": list(missing)}
        process = _start(request, log)
        try:
            while True:
                # asked before the look at what has ended, which then misses nothing; a launcher may end before its jobs
                over = process.poll() is not None and not any(map(folder.running, missing))
                if stop.received:
                    folder.dismiss()
                for key in list(missing):
                    if (end := folder.end(key)) and end.launch == launch:
                        ends[key] = end
                        folder.write(sweep.jobs, ends)
                        tell(missing.pop(key), end)
                if over:
                    break
                time.sleep(SECONDS)
        except BaseException:  # Ctrl-C for the second time
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            folder.dismiss()
            process.wait()
        log.seek(0)
        lines = log.read().decode(errors="replace").split("\n")
    words = next((line for line in reversed(lines) if line.strip()), f"exit code {process.returncode}")
    return " ".join(words.split()) if process.returncode else None


def _start(request: dict[str, Any], log: Any) -> subprocess.Popen:
    """The launcher's process. It and the workers find what we find, and compute with one thread each unless told."""
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    ours = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.STDOUT,
        env={**dict.fromkeys(THREADS, threads), **os.environ, **ours},
        start_new_session=True,
    )
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # type: ignore[union-attr]
        pipe.write(json.dumps(request).encode())
    return process
