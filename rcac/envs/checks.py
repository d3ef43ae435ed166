"""Checks of arguments that several environments take."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from rcac.errors import InputError


def check_integer(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InputError(f"{name}: {value!r} given, an integer ≥ {minimum} expected")
    return int(value)


def final_infos(done: np.ndarray, observations: np.ndarray, infos: dict[str, Any]) -> dict[str, Any]:
    """What the copies that are `done` (n,) ended with, in Gymnasium's form, where a step resets them at once."""
    final = np.full(len(done), None, dtype=object)
    for index in done.nonzero()[0]:
        final[index] = observations[index].copy()
    return {"final_obs": final, "_final_obs": done.copy(), "final_info": infos, "_final_info": done.copy()}


def check_probability(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"{name}: {value!r} given, a probability in [0, 1] expected")
    return float(value)


def check_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    modes = {mode.value: mode for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)}
    name = mode.value if isinstance(mode, AutoresetMode) else mode
    if name not in modes:
        raise InputError(f"autoreset_mode: {name!r} given, {' or '.join(map(repr, modes))} expected")
    return modes[name]
