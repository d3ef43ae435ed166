"""A learner small enough to see through: noisy descent on a quadratic, with a budget on the sum.

return = −‖x − 3‖², cost = Σ x ≤ budget; descend the cost while it exceeds its budget, else the objective.
Noise comes from the learner's own generator, so a run that continues exactly repeats every number.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rcac.learner import State, Step, Term
from rcac.runs.build import Built
from rcac.runs.config import Config, Env
from rcac.runs.folder import RunFolder
from rcac.runs.loop import Callback
from rcac.runs.train import Trained, run_in_folder

IDENTITY = {"env": "toy", "algo": "descent"}


class ToyLearner:
    unit = "steps"

    def __init__(self, seed: int = 0, total: int = 60, size: int = 4, stride: int = 1, budget: float = 6.0) -> None:
        self.total, self.stride, self.budget = total, stride, budget
        self.position = 0
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.normal(size=size)
        self.best = np.full(size, np.nan)
        self.best_return = -np.inf
        self.pause = 0.0  # seconds per step
        self.at: dict[int, Callable[[], Any]] = {}  # what happens in the step that reaches a position

    @property
    def finished(self) -> bool:
        return self.position >= self.total

    def step(self) -> Step:
        if self.pause:
            time.sleep(self.pause)
        constrained = self.x.sum() > self.budget
        gradient = np.ones_like(self.x) if constrained else 2 * (self.x - 3)
        self.x = self.x - 0.05 * (gradient + 0.1 * self.rng.normal(size=self.x.shape))
        self.position += self.stride
        self.at.get(self.position, lambda: None)()
        value, cost = -float(np.sum((self.x - 3) ** 2)), float(self.x.sum())
        met = cost <= self.budget
        if met and value > self.best_return:
            self.best, self.best_return = self.x.copy(), value
        metrics = {"return/value": value, "cost/sum": cost, "budget/sum": self.budget}
        if self.position // self.stride >= 20:  # a metric that comes late
            metrics["critic/late"] = float(self.position) ** 0.5
        terms = (Term("return", value, None, True), Term("cost", cost, self.budget, met))
        return Step(metrics, terms, "cost" if constrained else "return")

    def state(self) -> State:
        data = {"position": self.position, "rng": self.rng.bit_generator.state, "best_return": self.best_return}
        return State({"x": self.x.copy(), "best": self.best.copy()}, data)

    def load(self, state: State) -> None:
        self.x, self.best = state.tensors["x"].copy(), state.tensors["best"].copy()
        self.position, self.best_return = state.data["position"], state.data["best_return"]
        self.rng.bit_generator.state = state.data["rng"]

    def policy(self) -> State:
        return State({"x": self.best}, {"kind": "toy", "size": len(self.x)})

    def summary(self) -> dict[str, Any]:
        return {"best_return": self.best_return, "feasible": bool(np.isfinite(self.best_return)), "x": list(self.best)}

    def images(self) -> dict[str, np.ndarray]:
        picture = np.zeros((8, 8, 3), dtype=np.uint8)
        picture[..., 0] = self.position % 256
        return {"policy/picture": picture}


def train_toy(
    learner: ToyLearner,
    folder: RunFolder,
    callbacks: list[Callback] | tuple[()] = (),
    *,
    resume: bool = False,
    identity: dict[str, str] = IDENTITY,
    images_every: int = 10,
    **options: Any,
) -> Trained:
    """Train it in a run folder, as `rcac.runs.train` does; `options` are keys of the configuration."""
    keys: dict[str, Any] = {"seed": 0, "progress": False, "runs": "runs", "checkpoint_every": 10, "keep": 2}
    algo = {"name": "descent", "lr": 1}
    config = Config(**{**keys, "resume": None, "env": Env("toy"), "algo": algo, "uncertainty": None, **options})
    built = Built(learner, ["return", "cost"], identity, lambda: None, lambda: {}, images_every, {})
    return run_in_folder(config, built, folder, callbacks, resume=resume)
