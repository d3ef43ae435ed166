"""Gymnasium spaces: as plain data and back (what a policy's card says about where it acts), and batches of their elements."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from rcac.errors import InputError

LARGEST = 1 << 26  # numbers in an observation or action, and values of one: more is not asked memory for
KINDS = "Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"


def space_card(space: gym.Space) -> dict[str, Any]:
    if isinstance(space, Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, Box):
        ends = {"low": _end(space.low), "high": _end(space.high)}
        return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.name, **ends}
    if isinstance(space, MultiDiscrete):
        return {"type": "MultiDiscrete", "n": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, Dict):
        return {"type": "Dict", "spaces": {str(key): space_card(part) for key, part in space.spaces.items()}}
    if isinstance(space, Tuple):
        return {"type": "Tuple", "spaces": [space_card(part) for part in space.spaces]}
    raise InputError(f"space: {space} given, {KINDS} expected")


def space_from_card(card: dict[str, Any]) -> gym.Space:
    kind = card["type"]
    _check_size(card)
    if kind == "Discrete":
        return Discrete(card["n"], start=card["start"])
    if kind == "Box":
        shape, dtype = tuple(card["shape"]), np.dtype(card["dtype"])
        if dtype.kind not in "biuf":  # text of 10⁹ characters is a dtype too
            raise InputError(f"space: dtype {card['dtype']!r} given, one of numbers expected")
        low, high = _bound(card["low"], shape, -np.inf, dtype), _bound(card["high"], shape, np.inf, dtype)
        return Box(low, high, shape, dtype.type)
    if kind == "MultiDiscrete":
        return MultiDiscrete(np.array(card["n"]), start=np.array(card["start"]))
    if kind == "MultiBinary":
        shape = card["shape"]
        return MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "Dict":
        return Dict({key: space_from_card(part) for key, part in card["spaces"].items()})
    if kind == "Tuple":
        return Tuple([space_from_card(part) for part in card["spaces"]])
    raise InputError(f"space: {kind!r} given, {KINDS} expected")


def _size(card: dict[str, Any]) -> int:
    """How much memory it asks for, in numbers; its parts, if it has any, together."""
    parts = card.get("spaces", {})
    inner = sum(map(_size, parts.values() if isinstance(parts, dict) else parts))
    shape, values = card.get("shape", []), np.ravel(card.get("n", 0)).tolist()
    if not all(type(n) is int and n >= 0 for n in (*shape, *values)) or len(shape) > 32:
        return LARGEST + 1
    return inner + max(math.prod(shape), sum(values))


def _check_size(card: dict[str, Any]) -> None:
    if _size(card) > LARGEST:
        raise InputError(f"space: {str(card)[:100]} given, at most {LARGEST} numbers or values expected")


def batched(space: gym.Space, observation: Any) -> Any:
    """A single observation as a batch of one."""
    if isinstance(space, Dict):
        return {key: batched(part, observation[key]) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(batched(part, each) for part, each in zip(space.spaces, observation, strict=True))
    return np.asarray(observation)[None]


def _end(bound: np.ndarray) -> list[float | None]:
    """One number where all are the same, as they are for pictures; None for an infinite one, which JSON has not."""
    flat = bound.ravel()[:1] if (bound == bound.ravel()[:1]).all() else bound.ravel()
    return [x if np.isfinite(x) else None for x in flat.tolist()]


def _bound(end: list[float | None], shape: tuple[int, ...], infinite: float, dtype: np.dtype) -> np.ndarray:
    flat = np.array([infinite if x is None else x for x in end])
    return np.broadcast_to(flat[0] if len(flat) == 1 else flat.reshape(shape), shape).astype(dtype)
