"""The state of a learner as bytes: arrays in safetensors, plain data in JSON. Nothing in either is executed.

Decoding trusts nothing: whatever is not exactly what encoding writes is `Damaged`.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import safetensors.numpy

from rcac.errors import InputError
from rcac.files import Damaged

TENSORS, DATA = "tensors.safetensors", "state.json"
LIMITS = {TENSORS: 1 << 32, DATA: 1 << 26}  # bytes; more is refused unread
DIGITS = 1000  # of one number in JSON; a generator's 128-bit state has 39
DEPTH = 64  # of nesting in JSON
T = TypeVar("T")
DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)


def encode_tensors(tensors: dict[str, np.ndarray]) -> bytes:
    checked = {}
    for name, array in tensors.items():
        array = np.asarray(array, order="C")  # safetensors writes raw memory; 0-d stays 0-d
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if name == "__metadata__" or array.dtype.name not in DTYPES:
            raise InputError(f"tensors[{name!r}]: dtype {array.dtype} given, one of {', '.join(DTYPES)} expected")
        checked[name] = array
    return safetensors.numpy.save(checked)


def decode_tensors(content: bytes) -> dict[str, np.ndarray]:
    try:
        return {name: array.copy() for name, array in safetensors.numpy.load(content).items()}
    except Exception as error:  # whatever the parser makes of foreign bytes
        raise Damaged(f"{TENSORS}: not in safetensors format ({error})") from error


def encode_data(data: dict[str, Any]) -> bytes:
    try:
        _check_plain(data, "data", 0)
        return json.dumps(data).encode()
    except ValueError as error:
        raise InputError(str(error)) from error


def decode_data(content: bytes, name: str = DATA) -> dict[str, Any]:
    try:
        data = json.loads(content.decode(), parse_int=_number(int), parse_float=_number(float))
        _check_plain(data, "data", 0)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{name}: not the JSON that is written here ({error})") from error
    if not isinstance(data, dict):
        raise Damaged(f"{name}: an object expected")
    return data


def _check_plain(value: Any, where: str, depth: int) -> None:
    """JSON would turn a tuple into a list and a key 1 into "1": a state must not change on its way through a file."""
    if depth > DEPTH:
        raise ValueError(f"{where}: nested deeper than {DEPTH}")
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{where}: key {key!r} given, text expected")
            _check_plain(entry, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            _check_plain(entry, f"{where}[{index}]", depth + 1)
    elif isinstance(value, int) and value.bit_length() > 3 * DIGITS:
        raise ValueError(f"{where}: integer of {value.bit_length()} bits, at most {3 * DIGITS} expected")
    elif not (value is None or isinstance(value, bool | int | float | str)):
        raise ValueError(f"{where}: {type(value).__name__} given, None, bool, int, float, str, list or dict expected")


def _number(kind: Callable[[str], T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if len(text) > DIGITS:
            raise ValueError(f"number of {len(text)} digits")
        return kind(text)

    return parse
