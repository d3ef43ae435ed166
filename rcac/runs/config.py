"""What a run is: plain data, saved as `config.yaml` in its folder, and enough to repeat it.

The command line composes it with Hydra (`rcac.config`), `rcac.train` from its arguments. Nothing in it is executed: no
name of it is imported but environments, and algorithms, sets, costs and loggers are looked up in `rcac.registry`.
"""

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from rcac.deep.settings import DeepSettings
from rcac.envs.failure import LABEL as STEPS_LOST
from rcac.errors import InputError
from rcac.fields import COUNT, NOT_NEGATIVE, Check, check_fields, checked_by, field, one_of
from rcac.files import Damaged, read_regular
from rcac.labels import episode_labels
from rcac.registry import OUR_LOGGERS, loggers
from rcac.tabular.settings import TabularSettings

FAMILIES: dict[str, type] = {"tabular": TabularSettings, "deep": DeepSettings}
VECTORIZATIONS = ("auto", "sync", "async", "vector")
LOGGERS = ("csv", "tensorboard")  # of a run that names none
SEED = Check(lambda x: isinstance(x, int) and 0 <= x < 1 << 63, lambda: "a whole number from 0 to 2⁶³ − 1")
FOLDER = Check(lambda x: bool(x.strip()), lambda: "the name of a folder")
FILE = "config.yaml"
DEPTH = 20  # of nesting in a file


@dataclass
class Env:
    name: str  # of the file in conf/env
    id: str | None = None  # in Gymnasium's registry; "package:id" imports the package first
    path: str | None = None  # of a problem that RCMDP.save wrote, instead of an id
    tabular: bool = False  # it carries its model, which tabular methods need
    max_episode_steps: int | None = field(None, COUNT, optional=True)  # null: as registered
    temperature: float | None = None  # of the KL penalty, unless uncertainty.temperature is given
    budgets: list[float] | None = None  # on an episode's sum of each cost; null: the model's, which are discounted
    failure_budget: float | None = field(None, NOT_NEGATIVE, optional=True)  # steps an episode may lose to termination
    ranges: dict[str, Any] = dataclasses.field(default_factory=dict)  # of uncertainty=parameters: [low, high(, log)]
    cost: str | None = None  # name of a cost function registered in code; null: the environment reports its costs
    cost_names: list[str] | None = None  # of the costs, which may stand under them in info, or in info["costs"]
    wrapper: str | None = field(None, one_of("mujoco_contexts", "perturbed"), optional=True)  # gives it parameters
    vectorization: str = field("auto", one_of(*sorted(VECTORIZATIONS)))  # vector (its own), sync, async (processes)
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)  # the environment's own arguments

    def limits(self) -> tuple[list[float], list[str] | None]:
        """The budgets of all costs, that on failure last, and what the costs are called."""
        budgets, names = list(self.budgets or []), self.cost_names
        if self.failure_budget is None:
            return budgets, names
        names = [*(names or episode_labels(len(budgets))[1:]), STEPS_LOST]
        return [*budgets, self.failure_budget], names


@dataclass
class Config:
    """A whole configuration, resolved: plain data, checked for types and for what each key can be alone."""

    seed: int = dataclasses.field(metadata=checked_by(SEED))
    progress: bool
    runs: str = dataclasses.field(metadata=checked_by(FOLDER))
    checkpoint_every: int | None = dataclasses.field(metadata=checked_by(COUNT, optional=True))
    keep: int = dataclasses.field(metadata=checked_by(COUNT))
    resume: str | None
    env: Env
    algo: dict[str, Any]  # name, and the fields of the family's settings
    uncertainty: dict[str, Any] | None  # name, and the set's parameters; None for deep methods
    loggers: list[str] = field([*LOGGERS], one_of(*OUR_LOGGERS, more=loggers.names))  # where metrics go
    strict: bool = False  # the exit code is 5 unless the policy handed out is within its budgets

    def plain(self) -> dict[str, Any]:
        """What is saved with a run, and enough to repeat it."""
        saved = dataclasses.asdict(self)
        del saved["resume"]
        return saved

    def text(self) -> str:
        return yaml.safe_dump(self.plain(), sort_keys=False, allow_unicode=True)


# A configuration from plain data


def read_config(folder: Path) -> Config:
    """The configuration of the run in a folder."""
    return make_config(load(folder))


def make_config(values: dict[str, Any]) -> Config:
    """From plain data, every value of its type and in its range."""
    env = Env(**checked(Env, values["env"], "env."))
    found = Config(**{**checked(Config, {"resume": None, **values, "env": env}), "env": env})
    check(found)
    return found


def checked(kind: type, values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values for every field of a dataclass, converted to their types; defaults for those that are not given."""
    node, known = OmegaConf.structured(kind), [f.name for f in dataclasses.fields(kind)]
    for key, value in values.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(known)}"
            raise InputError(f"{prefix}{key}: no such key, {hint}")
        value = _without_numpy(value)
        expected = {f.name: f.type for f in dataclasses.fields(kind)}[key]
        if expected in (int, int | None) and isinstance(value, float) and value.is_integer():
            value = int(value)  # 1e6
        try:
            node[key] = value
        except (OmegaConfBaseException, ValueError) as error:
            name = expected.__name__ if isinstance(expected, type) else str(expected)
            raise InputError(f"{prefix}{key}: {value!r} given, {name} expected") from error
    try:
        return OmegaConf.to_container(node, throw_on_missing=True)  # type: ignore[return-value]
    except MissingMandatoryValue as error:
        raise InputError(f"{prefix}{error.full_key}: not given, it has no default") from error


def _without_numpy(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _without_numpy(entry) for key, entry in value.items()}
    return [_without_numpy(entry) for entry in value] if isinstance(value, list | tuple) else value


def check(config: Config) -> None:
    """What each value can be alone."""
    check_fields(config)
    check_fields(config.env, "env.")
    for index, budget in enumerate(config.env.budgets or []):
        if not math.isfinite(budget):
            raise InputError(f"env.budgets[{index}]: {budget} given, a finite number expected")


# Files


def load(folder: str | Path) -> dict[str, Any]:
    """The configuration that a run was made with."""
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    try:
        text = read_regular(path, limit=1 << 20).decode()
        _check_document(text)
        saved = yaml.safe_load(text)
    except (Damaged, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path.parent}: the configuration of a run expected ({reason})") from error
    if not isinstance(saved, dict) or not all(isinstance(saved.get(group), dict) for group in ("env", "algo")):
        raise InputError(f"{path}: the configuration of a run expected, with env and algo")
    check_plain("", saved)
    return saved


def _check_document(text: str) -> None:
    """Refuse what a configuration never needs, and what takes long or grows when it is read: aliases, deep nesting."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias (*)")
        if depth > DEPTH:
            raise yaml.YAMLError(f"nested deeper than {DEPTH}")


def check_plain(key: str, value: Any) -> None:
    """Plain data without instructions: no `_target_`, no resolver."""
    for part in key.split("."):
        if part.startswith("_") and part.endswith("_"):
            raise InputError(f"{key}: {part} given, a key that is data expected: nothing is instantiated from text")
    if isinstance(value, dict):
        for name, entry in value.items():
            if not isinstance(name, str):
                raise InputError(f"{key}: {name!r} given, text expected as a key")
            check_plain(f"{key}.{name}" if key else name, entry)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            check_plain(f"{key}.{index}", entry)
    elif isinstance(value, str) and re.search(r"\$\{(?![A-Za-z]\w*(\.\w+)*\})", value):
        raise InputError(f"{key}: {value!r} given, no interpolation but ${{another.key}} expected")
    elif isinstance(value, float) and math.isnan(value):
        raise InputError(f"{key}: nan given, a number expected")
    elif not isinstance(value, str | int | float | None):
        raise InputError(f"{key}: {value!r} given, plain data expected")
