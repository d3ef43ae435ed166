"""Saving and resuming, part by part: every part of a trainer has `state()` and `load()`, and here are those of torch's
modules and optimizers and of NumPy's generators."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rcac.errors import InputError
from rcac.learner import State


class Part(Protocol):
    def state(self) -> State: ...

    def load(self, state: State) -> None: ...


def save(parts: dict[str, Part]) -> State:
    tensors: dict[str, np.ndarray] = {}
    data: dict[str, Any] = {}
    for name, part in parts.items():
        own = part.state()
        tensors |= {f"{name}/{key}": array for key, array in own.tensors.items()}
        data[name] = own.data
    if broken := _not_finite(tensors):
        raise FloatingPointError(f"{broken} is not finite")
    return State(tensors, data)


def restore(parts: dict[str, Part], state: State) -> None:
    if broken := _not_finite(state.tensors):
        raise InputError(f"state: {broken} is not finite, finite numbers expected")
    for name, part in parts.items():
        start = f"{name}/"
        own = {key[len(start) :]: np.array(x) for key, x in state.tensors.items() if key.startswith(start)}
        part.load(State(own, state.data[name]))


def _not_finite(tensors: dict[str, np.ndarray]) -> str | None:
    """The first that is not."""
    return next((name for name, x in tensors.items() if not np.isfinite(x).all()), None)


def array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


def module_arrays(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: array(tensor) for name, tensor in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    """Into what is there."""
    own = module.state_dict()
    check_shapes(own, arrays)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(np.asarray(arrays[name])).to(tensor.device))


def check_shapes(own: Mapping[str, Tensor | np.ndarray], given: Mapping[str, np.ndarray]) -> None:
    """Nothing else may be given, nothing may be missing."""
    for name in own.keys() | given.keys():
        found, expected = (tuple(x[name].shape) if name in x else None for x in (given, own))
        if found != expected:
            raise InputError(f"{name}: shape {found} given, {expected} expected by the network")


class ModulePart:
    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def state(self) -> State:
        return State(module_arrays(self.module), {})

    def load(self, state: State) -> None:
        load_arrays(self.module, state.tensors)


class OptimizerPart:
    """Adam's moments; what its settings are is known without it."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def state(self) -> State:
        found = self.optimizer.state_dict()["state"]
        return State({f"{k}.{key}": array(x) for k, row in found.items() for key, x in row.items()}, {})

    def load(self, state: State) -> None:
        rows: dict[int, dict[str, Tensor]] = {}
        for name, values in state.tensors.items():
            index, key = name.split(".")
            rows.setdefault(int(index), {})[key] = torch.from_numpy(values)
        self.optimizer.load_state_dict({"state": rows, "param_groups": self.optimizer.state_dict()["param_groups"]})


class GeneratorPart:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def state(self) -> State:
        return State({}, dict(self.rng.bit_generator.state))

    def load(self, state: State) -> None:
        self.rng.bit_generator.state = state.data
