"""Bodies of the user's: made from the space of what they will be given, and tried once before a training begins.

What makes the output for one observation depend on the others, or on chance, is refused: probabilities of the same action
before and after a step would not be comparable, and products with the Fisher matrix would not be those of one matrix.
"""

import copy
from typing import Any

import gymnasium as gym
import torch
from gymnasium.spaces import Dict
from torch import Tensor, nn

from rcac.errors import InputError

Inputs = Tensor | dict[str, Tensor]
ALIKE = (1e-3, 1e-4)  # what rounding may do to outputs that should be the same


def make_body(custom: Any, space: gym.Space, seed: int) -> nn.Module:
    """`custom` is a class or function of the space, or a module, of which a copy is taken."""
    name = name_of(custom)
    with torch.random.fork_rng(devices=[]):  # its own initialisation draws from torch's generator
        torch.manual_seed(seed)
        try:
            body = copy.deepcopy(custom) if isinstance(custom, nn.Module) else custom(space)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"network: {name}({space}) raised {error!r}, a torch.nn.Module expected from it"
            ) from error
        if not isinstance(body, nn.Module):
            raise InputError(f"network: {custom!r} made {body!r}, a torch.nn.Module expected")
        check_stateless(body)
        _try(body, space)
    return body


def check_stateless(module: nn.Module) -> None:
    """Refuse the layers that are known to mix or to drop, by name."""
    for name, part in module.named_modules():
        where = f"network: {type(part).__name__}{f' ({name})' if name else ''}"
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise InputError(f"{where} given, but an output must not depend on the rest of a batch; LayerNorm expected")
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 and part.training:
            raise InputError(f"{where} is active, but the same observation must give the same output; p=0 expected")


def _try(body: nn.Module, space: gym.Space) -> None:
    """Outputs for a few inputs: their width, and whether they are functions of one observation each."""
    name, width = name_of(body), getattr(body, "out_features", None)
    if not isinstance(width, int) or width < 1:
        raise InputError(f"network: {name} has out_features {width!r}, a width ≥ 1 expected")
    inputs, before = _examples(space, 3), {key: buffer.clone() for key, buffer in body.named_buffers()}
    try:
        with torch.no_grad():
            first, again, part = body(inputs), body(inputs), body(_first(inputs, 2))
    except Exception as error:
        raise InputError(f"network: {name} raised {error!r} for a batch of {space}") from error
    for key, buffer in body.named_buffers():
        if key not in before or not torch.equal(buffer, before[key]):
            raise InputError(f"network: {name} changed its buffer {key} when called, one that stays the same expected")
    shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
    if shape != (3, width):
        raise InputError(f"network: {name} gave {shape} for a batch of 3, (3, {width}) expected, out_features wide")
    if first.dtype != torch.float32:
        raise InputError(f"network: {name} gave {first.dtype}, torch.float32 expected, as its inputs are")
    if not torch.allclose(first, again, *ALIKE):
        raise InputError(
            f"network: {name} gave two outputs for the same observation (dropout, or a change of its inputs in place?), the same one expected"
        )
    if not torch.allclose(first[:2], part, *ALIKE):
        raise InputError(f"network: {name} gave outputs that depend on the rest of a batch, one for each row expected")


def _examples(space: Any, count: int) -> Inputs:
    if isinstance(space, Dict):
        return {key: torch.rand(count, *(part.shape or ())) for key, part in space.spaces.items()}
    return torch.rand(count, *(space.shape or ()))


def _first(inputs: Inputs, count: int) -> Inputs:
    return {key: x[:count] for key, x in inputs.items()} if isinstance(inputs, dict) else inputs[:count]


def name_of(custom: Any) -> str:
    """Of a class, a function or a module."""
    return getattr(custom, "__name__", type(custom).__name__)
