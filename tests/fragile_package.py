"""A package that offers a set to which accidents happen, in jobs of a sweep: its worst cases are the nominal ones, until
a file named like the run's number says what is to happen to the process."""

from pathlib import Path

FRAGILE = """
import multiprocessing, os, signal, time
from pathlib import Path
import numpy as np
from rcac.errors import InputError
from rcac.runs import plots
from rcac.runs.families import tabular
from rcac.uncertainty.base import Uncertainty
from rcac.uncertainty.nominal import Nominal

def told_to_stop():
    return getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "received", None)

class Fragile(Uncertainty):
    def __init__(self, mishap, number=0):
        self.mishap, self.number, self.training, self.ours = mishap, number, 0, Nominal()

    def sweep(self, values, rows, memory=None):
        while Path.cwd().joinpath("wait").exists() and self.training > 12 and not told_to_stop():
            time.sleep(0.01)
        self.training += len(values) > 1  # the bounds, which come before, ask for one cost at a time
        if self.training > 12:
            if self.mishap == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.mishap == "exit":
                os._exit(7)
            elif self.mishap == "kill worker":
                Path(f"mishap{self.number}").unlink()
                os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
                self.mishap = ""
            elif self.mishap == "raise":
                raise RuntimeError("it broke\\nin the middle")
        return self.ours.sweep(values, rows, memory)

def fragile(problem, number: int = 0):
    if number < 0:
        raise InputError(f"number: {number} given, a number ≥ 0 expected")
    with Path("looks").open("a") as looks:
        looks.write(f"{number}\\n")
    if multiprocessing.parent_process() is None:  # accidents happen to jobs only
        return Fragile("")
    plots.training = lambda *_: None  # pictures take longer than such small trainings
    tabular.policy_image = lambda *_: np.zeros((8, 8, 3), np.uint8)
    path = Path.cwd() / f"mishap{number}"
    mishap = path.read_text() if path.exists() else ""
    if mishap == "refuse":
        raise InputError("number: it is not to be")
    return Fragile(mishap, number)
"""
TINY = "env=river_swim algo=rnpg algo.iterations=10 checkpoint_every=3 uncertainty=fragile uncertainty.number=${seed}"


def install(folder: Path) -> Path:
    """Put the package in a folder, as pip does."""
    about = folder / "fragile-1.0.dist-info"
    about.mkdir(parents=True)
    (folder / "fragile.py").write_text(FRAGILE)
    (about / "METADATA").write_text("Name: fragile\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[rcac.uncertainty]\nfragile = fragile:fragile\n")
    return folder
