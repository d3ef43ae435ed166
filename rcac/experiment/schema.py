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

from rcac.deep.settings import DeepSettings
from rcac.errors import InputError
from rcac.registry import choose
from rcac.tabular.settings import TabularSettings

FAMILIES: dict[str, type] = {"tabular": TabularSettings, "deep": DeepSettings}
VECTORIZATIONS = ("auto", "sync", "async", "vector")


@dataclass
class Top:
    seed: int
    progress: bool
    runs: str
    checkpoint_every: int | None
    keep: int
    resume: str | None
    env: Any = MISSING
    algo: Any = MISSING
    uncertainty: Any = None


@dataclass
class Env:
    name: str  # of the file in conf/env
    id: str | None = None  # in Gymnasium's registry; "package:id" imports the package first
    path: str | None = None  # of a problem that RCMDP.save wrote, instead of an id
    tabular: bool = False  # it carries its model, which tabular methods need
    max_episode_steps: int | None = None  # null: as registered
    temperature: float | None = None  # of the KL penalty, unless uncertainty.temperature is given
    budgets: list[float] | None = None  # on an episode's sum of each cost; null: the model's, which are discounted
    cost: str | None = None  # name of a cost function registered in code; null: the environment reports its costs
    vectorization: str = "auto"  # vector (its own), sync, async (a process for each copy); auto: the first it has
    kwargs: dict[str, Any] = field(default_factory=dict)  # the environment's own arguments


@dataclass
class Config:
    """A whole configuration, resolved: plain data, checked for types and for what each key can be alone."""

    seed: int
    progress: bool
    runs: str
    checkpoint_every: int | None
    keep: int
    resume: str | None
    env: Env
    algo: dict[str, Any]  # name, and the fields of the family's settings
    uncertainty: dict[str, Any] | None  # name, and the set's parameters; None for deep methods

    def plain(self) -> dict[str, Any]:
        """What is saved with a run, and enough to repeat it."""
        saved = dataclasses.asdict(self)
        del saved["resume"]
        return saved


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
