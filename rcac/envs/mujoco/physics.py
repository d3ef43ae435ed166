"""A MuJoCo model under factors on its fields.

    body_mass:torso                  one body, geom, actuator, joint, … by its name
    body_mass:*                      all of them
    gravity, density, viscosity      of the model's options

A name is `field:object`, where `field` is any field of numbers of MjModel that has a row per body, geom, actuator, dof
(named by its joint), joint, tendon or pair: `geom_friction`, `actuator_gear`, `dof_damping`, `jnt_stiffness`, …
The nominal value of a factor is 1; factors on the same number multiply. Two are more than a field:

    body_mass        scales the body's inertia too, as `mj_setTotalmass` does: the density changes, not the shape
    geom_friction:*  scales the floor and explicit contact pairs too. A contact has the larger friction of its two
                     geoms, so that scaling a foot alone may change nothing: `geom_friction:foot` is felt as far as
                     the foot's is the larger

What MuJoCo derives from these fields (`mj_setConst`: subtree masses, inverse weights, …) is derived again.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import DATA_FIELDS

from rcac.errors import InputError

from .. import snapshot
from ..contexts import Parameter

OPTIONS = ("gravity", "density", "viscosity")
OBJECTS = {  # what the rows of a field are, by its prefix
    "body": mujoco.mjtObj.mjOBJ_BODY,
    "geom": mujoco.mjtObj.mjOBJ_GEOM,
    "actuator": mujoco.mjtObj.mjOBJ_ACTUATOR,
    "jnt": mujoco.mjtObj.mjOBJ_JOINT,
    "dof": mujoco.mjtObj.mjOBJ_JOINT,
    "tendon": mujoco.mjtObj.mjOBJ_TENDON,
    "pair": mujoco.mjtObj.mjOBJ_PAIR,
}
TOGETHER = {"body_mass": ("body_inertia",), "geom_friction:*": ("pair_friction",)}
RANGES = {  # where they are worth training and testing on
    "body_mass": (0.5, 2.0, "log"),
    "geom_friction": (0.5, 2.0, "log"),
    "actuator_gear": (0.7, 1.3, "linear"),
    "dof_damping": (0.5, 2.0, "log"),
    "gravity": (0.8, 1.2, "linear"),
    "density": (0.5, 2.0, "log"),
    "viscosity": (0.5, 2.0, "log"),
}
COMMON = ("body_mass:*", "geom_friction:*", "actuator_gear:*", "dof_damping:*", "gravity")
STATE = mujoco.mjtState.mjSTATE_INTEGRATION  # all that a step depends on
STATE_FIELDS = {
    *("time", "qpos", "qvel", "act", "history", "qacc_warmstart", "ctrl", "qfrc_applied", "xfrc_applied"),
    *("eq_active", "mocap_pos", "mocap_quat", "userdata", "plugin_state", "plastic"),
}


def is_factor(name: str) -> bool:
    return ":" in name or name in OPTIONS


def parameter(model: mujoco.MjModel, name: str) -> Parameter:
    """The parameter of that name, if the model has such a field and it is not all zeros, which no factor changes."""
    if not any(np.any(np.asarray(_get(model, field))[rows]) for field, rows in _targets(model, name)):
        raise InputError(f"{name}: all zeros in this model, a field that a factor changes expected")
    low, high, scale = RANGES.get(name.split(":")[0], (0.5, 2.0, "log"))
    return Parameter(low, high, 1.0, scale)


def common_parameters(model: mujoco.MjModel) -> dict[str, Parameter]:
    """The usual ones, as far as the model has them: friction needs geoms that can touch."""
    found = {}
    touching = bool(model.npair or np.any(model.geom_contype & model.geom_conaffinity[:, None]))
    for name in COMMON:
        if name != "geom_friction:*" or touching:
            try:
                found[name] = parameter(model, name)
            except InputError:
                continue
    return found


def check_factors(factors: Mapping[str, Any]) -> None:
    """Masses must be positive, and no factor negative; each may be an array."""
    for name, factor in factors.items():
        mass = name.startswith(("body_mass", "body_inertia"))
        bad = np.less_equal(factor, 0) if mass else np.less(factor, 0)
        if np.any(bad):
            worst = float(np.asarray(factor)[bad][0]) if np.ndim(factor) else float(factor)
            raise InputError(f"{name}: {worst:g} given, a factor {'> 0' if mass else '≥ 0'} expected")


class Physics:
    """A model, its nominal fields, and the factors that it is under."""

    def __init__(self, model: mujoco.MjModel, nominal: mujoco.MjModel | None = None) -> None:
        self.model = model
        self.nominal = copy.copy(model) if nominal is None else nominal
        self._scratch: mujoco.MjData | None = None

    def apply(self, factors: Mapping[str, float]) -> None:
        """Write the nominal fields times the factors, and derive what is derived. All names ever used are expected."""
        fields: dict[str, np.ndarray] = {}
        for name, factor in factors.items():
            for field, rows in _targets(self.model, name):
                fields.setdefault(field, np.array(_get(self.nominal, field)))[rows] *= factor
        for field, values in fields.items():
            holder, key = _holder(self.model, field)
            setattr(holder, key, values)
        if self._scratch is None:
            self._scratch = mujoco.MjData(self.model)
        mujoco.mj_setConst(self.model, self._scratch)


def _targets(model: mujoco.MjModel, name: str) -> Iterator[tuple[str, Any]]:
    """The fields that a name stands for, and which rows of them."""
    if name in OPTIONS:
        yield f"opt.{name}", ...
        return
    field, _, which = name.partition(":")
    rows = _rows(model, field, which)
    for key in (field, *TOGETHER.get(field, ()), *TOGETHER.get(name, ())):
        yield key, rows


def _rows(model: mujoco.MjModel, field: str, which: str) -> slice:
    """Of a field, the rows that belong to an object, or all of them for `*`."""
    kind, array = OBJECTS.get(field.split("_")[0]), getattr(model, field, None)
    if kind is None or not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        known = ", ".join(f"{name}:*" if name not in OPTIONS else name for name in RANGES)
        raise InputError(f"{field}:{which}: no such field of numbers in the model, one like {known} expected")
    if which == "*":
        return slice(None)
    index = mujoco.mj_name2id(model, kind, which)
    if index < 0:
        count = len(model.jnt_type) if field.startswith("dof_") else len(array)
        names = filter(None, (mujoco.mj_id2name(model, kind, i) for i in range(count)))
        raise InputError(f"{field}:{which}: no such object in the model, one of {', '.join((*names, '*'))} expected")
    if not field.startswith("dof_"):
        return slice(index, index + 1)
    ends = np.append(model.jnt_dofadr, model.nv)  # a joint has one dof or more
    return slice(ends[index], ends[index + 1])


def _holder(model: mujoco.MjModel, field: str) -> tuple[Any, str]:
    return (model.opt, field.removeprefix("opt.")) if field.startswith("opt.") else (model, field)


def _get(model: mujoco.MjModel, field: str) -> Any:
    return getattr(*_holder(model, field))


# The state of a simulation


def get_state(model: mujoco.MjModel, data: mujoco.MjData) -> dict[str, np.ndarray]:
    """All that a step depends on, and what was derived from it in the last one, which observations may show."""
    state = np.empty(mujoco.mj_stateSize(model, STATE))
    mujoco.mj_getState(model, data, state, STATE)
    return {"physics": state, "derived": np.concatenate([array.ravel() for array in _derived(data)])}


def set_state(model: mujoco.MjModel, data: mujoco.MjData, state: Mapping[str, Any]) -> None:
    """Continue from what `get_state` returned; the model is to be under the same factors."""
    derived = _derived(data)
    physics = snapshot.read_array(state, "physics", (mujoco.mj_stateSize(model, STATE),), float)
    values = snapshot.read_array(state, "derived", (sum(array.size for array in derived),), float)
    mujoco.mj_setState(model, data, physics, STATE)
    mujoco.mj_forward(model, data)  # recompute contacts, which observations may include
    mujoco.mj_setState(model, data, physics, STATE)
    start = 0
    for array in derived:
        array[...] = values[start : start + array.size].reshape(array.shape)
        start += array.size


def _derived(data: mujoco.MjData) -> list[np.ndarray]:
    """Arrays of fixed size that are no part of the state."""
    arrays = (getattr(data, name) for name in sorted(DATA_FIELDS - STATE_FIELDS))
    return [array for array in arrays if isinstance(array, np.ndarray) and array.dtype.kind == "f"]
