"""Putting a trainer down and taking it up again exactly: weights, optimisers, statistics, generators, environments.

An environment that has `get_state` and `set_state` (a dict of arrays and plain data) continues in the middle of its
episodes. Any other begins new episodes, from a seed of its own, and the saved state says `exact: false`.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from rcac.deep.best import Candidate
from rcac.learner import State
from rcac.switch import Bisection

if TYPE_CHECKING:
    from rcac.deep.trainer import Trainer


def save(trainer: "Trainer") -> State:
    rollout, bisection = trainer.rollout, trainer.switching.bisection
    tensors: dict[str, np.ndarray] = {
        "actor": _array(trainer.actor),
        "critics": _array(trainer.critics.parameters),
        "critic_scales": trainer.critics.scales.copy(),
        "initial": trainer.initial.copy(),
        "observations": rollout.observations.copy(),
        "resetting": rollout.resetting.copy(),
    }
    for name, adam in (("actor_adam", trainer.actor_adam), ("critic_adam", trainer.critics.adam)):
        tensors |= {f"{name}.{key}": _array(tensor) for key, tensor in adam.tensors().items()}
    for name, moments in (("moments", trainer.moments), ("cost_moments", trainer.cost_moments)):
        tensors |= {f"{name}.mean": moments.mean.copy(), f"{name}.variance": moments.variance.copy()}
    tensors |= {f"episodes.{key}": array for key, array in trainer.episodes.tensors().items()}
    if trainer.tally:
        tensors |= {f"tally.{key}": array for key, array in trainer.tally.tensors().items()}
    for k, candidate in enumerate(trainer.candidates):
        if candidate is not None:
            tensors |= {f"candidate{k}.{key}": array.copy() for key, array in candidate.tensors.items()}
    data: dict[str, Any] = {
        "position": trainer.position,
        "rollout_steps": rollout.steps,
        "moments": trainer.moments.count,
        "cost_moments": trainer.cost_moments.count,
        "action_rng": trainer.action_rng.bit_generator.state,
        "batch_rng": trainer.batch_rng.bit_generator.state,
        "bisection": None if bisection is None else [bisection.low, bisection.high],
        "phase": trainer.switching.phase,
        "candidates": [None if candidate is None else _facts(candidate) for candidate in trainer.candidates],
        "skipped": trainer.skipped,
        "exact": hasattr(rollout.envs, "get_state"),
        "environment": {},
    }
    if data["exact"]:
        for key, value in rollout.envs.get_state().items():  # type: ignore[attr-defined]
            if isinstance(value, np.ndarray):
                tensors[f"environment.{key}"] = value.copy()
            else:
                data["environment"][key] = value
    return State(tensors, data)


def restore(trainer: "Trainer", state: State) -> None:
    tensors, data, rollout = state.tensors, state.data, trainer.rollout
    trainer.actor = trainer.tensor(tensors["actor"])
    trainer.critics.parameters = trainer.tensor(tensors["critics"])
    trainer.critics.scales = np.array(tensors["critic_scales"])
    trainer.initial = np.array(tensors["initial"])
    for name, adam in (("actor_adam", trainer.actor_adam), ("critic_adam", trainer.critics.adam)):
        adam.load({key: trainer.tensor(value) for key, value in _under(tensors, name).items()})
    for name, moments in (("moments", trainer.moments), ("cost_moments", trainer.cost_moments)):
        moments.mean, moments.variance = np.array(tensors[f"{name}.mean"]), np.array(tensors[f"{name}.variance"])
        moments.count = int(data[name])
    trainer.episodes.load(_under(tensors, "episodes"))
    if trainer.tally:
        trainer.tally.load(_under(tensors, "tally"))
    for k, facts in enumerate(data["candidates"]):
        parts = _under(tensors, f"candidate{k}")
        trainer.candidates[k] = None if facts is None else Candidate(tensors=parts, **facts)
    trainer.action_rng.bit_generator.state = data["action_rng"]
    trainer.batch_rng.bit_generator.state = data["batch_rng"]
    trainer.switching.bisection = None if data["bisection"] is None else Bisection(*data["bisection"])
    trainer.switching.phase, trainer.position = int(data["phase"]), int(data["position"])
    trainer.skipped = int(data["skipped"])
    rollout.steps = int(data["rollout_steps"])
    if data["exact"]:
        rollout.envs.set_state({**_under(tensors, "environment"), **data["environment"]})  # type: ignore[attr-defined]
        rollout.observations = np.array(tensors["observations"])
        rollout.resetting = np.array(tensors["resetting"])
    else:
        trainer.restart_environments()


def _facts(candidate: Candidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in ("measured", "length", "position", "tried")}


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def _under(tensors: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    start = f"{prefix}."
    return {name[len(start) :]: np.array(array) for name, array in tensors.items() if name.startswith(start)}
