"""What a configuration may hold: every key and its type. Values are in `conf/`, and so is what they mean.

seed, progress, …      `Top`                              conf/train.yaml
env.*                  `Env`                              conf/env/<name>.yaml
algo.*                 the settings of the row's family   conf/algo/<name>.yaml
uncertainty.*          the set's parameters               conf/uncertainty/<name>.yaml
"""

import dataclasses
import inspect
import typing
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from types import UnionType
from typing import Any

from omegaconf import MISSING

from rcac.errors import InputError
from rcac.registry import choose
from rcac.runs.config import FAMILIES, VECTORIZATIONS, Config, Env

__all__ = ["FAMILIES", "VECTORIZATIONS", "Config", "Env", "Top", "algo_schema", "set_schema"]


@dataclass
class Top:
    seed: int = MISSING
    progress: bool = MISSING
    runs: str = MISSING
    checkpoint_every: int | None = None
    keep: int = MISSING
    resume: str | None = None
    loggers: list[str] = MISSING
    strict: bool = False
    env: Any = MISSING
    algo: Any = MISSING
    uncertainty: Any = None


@dataclass
class ComposedEnv(Env):
    deep: dict[str, Any] | None = None  # defaults of `algo` for deep methods here


def switches() -> set[str]:
    """Keys that are true or false."""
    kinds = [("", Top), ("env.", Env), *(("algo.", family) for family in FAMILIES.values())]
    return {f"{prefix}{each.name}" for prefix, kind in kinds for each in dataclasses.fields(kind) if each.type is bool}


def algo_schema(row: dict[str, Any], name: str) -> type:
    """A dataclass of an algorithm's keys: its name, and the settings of its family."""
    family = choose(f"algo {name}: family", row.get("family"), FAMILIES)
    return dataclasses.make_dataclass("Algo", [("name", str, name)], bases=(FAMILIES[family],))


def set_schema(make: Any, name: str) -> type:
    """A dataclass of a set's keys: its name, and the parameters of `make(problem, **parameters)`."""
    try:
        _, *parameters = inspect.signature(make, eval_str=True).parameters.values()
    except (TypeError, ValueError, NameError) as error:
        raise InputError(f"uncertainty {name}: {make!r} is not a function of a problem ({error})") from error
    fields = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InputError(f"uncertainty {name}: *{parameter.name} given, named parameters expected")
        default = MISSING if parameter.default is parameter.empty else parameter.default
        fields.append((parameter.name, _storable(parameter.annotation), field(default_factory=partial(copy, default))))
    return dataclasses.make_dataclass("Set", [("name", str, name), *fields])


def _storable(annotation: Any) -> Any:
    """The type, if a configuration can hold it; else any plain data."""
    allowed = {bool, int, float, str, type(None)}
    parts = typing.get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return annotation if all(part in allowed for part in parts) else Any
