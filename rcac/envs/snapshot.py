"""Saving and restoring an environment: arrays, and the generator's state as plain data."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rcac.errors import InputError

Snapshot = dict[str, np.ndarray | dict[str, Any]]


def read_array(snapshot: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """A copy of one array of a snapshot, checked."""
    if name not in snapshot:
        raise InputError(f"{name}: missing from the state, which has {', '.join(snapshot)}")
    try:
        array: np.ndarray = np.array(snapshot[name], dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {snapshot[name]!r} given, an array of {dtype.__name__} expected") from error
    if array.shape != shape:
        raise InputError(f"{name}: shape {array.shape} given, {shape} expected")
    if not np.isfinite(array).all():
        raise InputError(f"{name}: not finite at index {np.argwhere(~np.isfinite(array))[0].tolist()}")
    return array


def read_generator(snapshot: Mapping[str, Any]) -> np.random.Generator:
    """The generator of a snapshot. Gymnasium's are PCG64, whose state is four integers and a name."""
    bits = np.random.PCG64()
    try:
        bits.state = snapshot["generator"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"generator: {snapshot.get('generator')!r} given, the state of a PCG64 expected") from error
    return np.random.Generator(bits)
