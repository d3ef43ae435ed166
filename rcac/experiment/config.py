"""From `key=value` on a command line, or a saved file, to a checked `Config`.

Hydra parses the overrides and composes the groups; OmegaConf converts each value to its key's type. Names go through
`rcac.registry`: nothing is imported or instantiated from text, and the only interpolation is `${another.key}`.
"""

import difflib
import math
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, NamedTuple

from hydra import compose as hydra_compose
from hydra import initialize
from hydra.core.config_store import ConfigStore
from omegaconf import AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, ListConfig, OmegaConf, StringNode
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException, ValidationError

from rcac import registry
from rcac.errors import InputError
from rcac.experiment import schema
from rcac.experiment.plain import FILE, check_plain, load, parse
from rcac.experiment.schema import Config, Env

__all__ = ["FILE", "GROUPS", "assign", "compose", "load", "parse"]

OPEN = "env.kwargs"  # any key is taken below it where the environment's file lists none
WORDS = {BooleanNode: "true or false", IntegerNode: "a whole number", FloatNode: "a number", StringNode: "text"}


class Choices(NamedTuple):
    """The name chosen in each group."""

    env: str
    algo: str
    uncertainty: str | None  # None: the method has its own


GROUPS = Choices._fields
FIXED = ("env.name", "algo.name", "algo.family", "uncertainty.name")  # what a choice is, not how it is set


# Composition


def compose(overrides: Iterable[str], saved: dict[str, Any] | None = None) -> Config:
    """The configuration that these overrides describe, on top of a saved one if given."""
    assignments, saved = parse(overrides), saved or {}
    given = {key: value for key, value in assignments if key in GROUPS and not isinstance(value, dict)}
    choices = _choices(given, saved)
    for key, value in assignments:
        if key == "uncertainty" and choices.uncertainty is None and value is not None:
            raise InputError(f"uncertainty: {value} given with {choices.algo}, which has its own: set algo.radius")
    config = _composed(choices)
    for key, value in saved.items():
        if key not in GROUPS or (key not in given and getattr(choices, key) is not None and value is not None):
            assign(config, key, value)
    for key, value in assignments:
        if key not in GROUPS or isinstance(value, dict):
            assign(config, key, value)
    return _checked(config)


def _choices(given: dict[str, Any], saved: dict[str, Any]) -> Choices:
    """What is not given is as saved, or depends on what is given."""
    earlier = {group: (saved.get(group) or {}).get("name") for group in GROUPS}
    environments = registry.rows("env")
    if "env" not in given and earlier["env"] is None:
        raise InputError(f"env: not given, one of {', '.join(environments)} expected")
    env = registry.choose("env", given.get("env", earlier["env"]), environments)
    usual = "rsqp" if environments[env].get("tabular") else "rcac_npg"
    algo = registry.choose("algo", given.get("algo", earlier["algo"] or usual), registry.algorithm_names())
    uncertainty = None
    if registry.algorithm_row(algo).get("family") == "tabular":
        names = registry.uncertainty_names()
        uncertainty = registry.choose(
            "uncertainty", given.get("uncertainty", earlier["uncertainty"] or "kl_ball"), names
        )
    return Choices(env, algo, uncertainty)


_composed_before: dict[Any, DictConfig] = {}  # a sweep composes the same choices hundreds of times, at 60 ms each


def _composed(choices: Choices) -> DictConfig:
    """Hydra's composition of the groups chosen, typed."""
    env, algo, uncertainty = choices
    row, about = registry.algorithm_row(algo), registry.rows("env")[env]
    make = registry.uncertainty_set(uncertainty) if uncertainty else None
    key = choices, repr(row), repr(about), make  # what is registered under a name can change
    if key not in _composed_before:
        _composed_before[key] = _compose_anew(choices, row, dict(about), make)
    return deepcopy(_composed_before[key])


def _compose_anew(choices: Choices, row: dict[str, Any], about: dict[str, Any], make: Any) -> DictConfig:
    usual = about.pop("deep", {})  # an environment's own defaults of deep methods, which a method's row goes before
    nodes = {
        "env": _filled(Env, about),
        "algo": OmegaConf.structured(schema.algo_schema(row, choices.algo)),
    }
    if choices.uncertainty:
        typed = schema.set_schema(make, choices.uncertainty)
        nodes["uncertainty"] = _filled(typed, registry.rows("uncertainty").get(choices.uncertainty, {}))
    store = ConfigStore.instance()
    store.store(name="rcac_train", node=_primary())
    for group, node in nodes.items():
        store.store(group=group, name=getattr(choices, group), node=node)
    with initialize(version_base="1.3", config_path=None):
        config = hydra_compose("rcac_train", overrides=[f"{group}={getattr(choices, group)}" for group in nodes])
    for key, value in {**(usual if row.get("family") == "deep" else {}), **row}.items():
        assign(config, f"algo.{key}", value)
    return config


def _filled(typed: type, values: dict[str, Any]) -> DictConfig:
    """Values in their types; `???` marks one that has to be given (a merge would pass over it)."""
    node = OmegaConf.structured(typed)
    for key, value in values.items():
        node[key] = value
    return node


def _primary() -> DictConfig:
    """`conf/train.yaml`, typed."""
    values = registry.document("train")
    typed = OmegaConf.structured(schema.Top)
    OmegaConf.set_struct(typed, False)
    return OmegaConf.merge(typed, values)  # type: ignore[return-value]


# One value


def assign(config: DictConfig, key: str, value: Any) -> None:
    """Set a known key, converted to its type; the entries of a dictionary one by one."""
    node = _find(config, key)
    if key in FIXED and value != node._value():
        group = key.split(".")[0]
        raise InputError(f"{key}: {value!r} given, {node._value()!r} expected (another is chosen with {group}=…)")
    if isinstance(value, dict) and isinstance(node, DictConfig) and not _open(config, key):
        for name, entry in value.items():
            assign(config, f"{key}.{name}", entry)
        return
    if isinstance(node, IntegerNode) and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e6
    try:
        OmegaConf.update(config, key, value, merge=False, force_add=_open(config, key))
    except (ValidationError, OmegaConfBaseException) as error:
        raise InputError(f"{key}: {value!r} given, {_expected(node)} expected") from error


def _open(config: DictConfig, key: str) -> bool:
    """Whether `key` is or lies in arguments of an environment that are not known beforehand."""
    if key != OPEN and not key.startswith(f"{OPEN}."):
        return False
    return not registry.rows("env")[config.env.name].get("kwargs")


def _find(config: DictConfig, key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        if not isinstance(node, DictConfig) or node._is_none() or part not in node.keys():  # noqa: SIM118 (missing values)
            if _open(config, key):
                return AnyNode()
            raise InputError(f"{key}: no such key{_suggestion(config, key)}")
        node = node._get_node(part)
    return node


def _suggestion(config: DictConfig, key: str) -> str:
    """The known keys that look most like it, whole or by their last part."""
    known = sorted(_keys(config))
    whole = difflib.get_close_matches(key, known, n=1, cutoff=0.75)
    last = [k for k in known if k.split(".")[-1] == key.split(".")[-1]]
    by_last = {k.split(".")[-1]: k for k in known}
    near = [by_last[n] for n in difflib.get_close_matches(key.split(".")[-1], by_last, n=2, cutoff=0.6)]
    ends = [k for k in known if k.endswith(f"_{key}")]
    found = list(dict.fromkeys(whole + last + ends + near))[:3]
    if found:
        return f", did you mean {' or '.join(found)}?"
    return f", known are {', '.join(dict.fromkeys(k.split('.')[0] for k in known))} (see --help)"


def _keys(config: DictConfig, prefix: str = "") -> list[str]:
    found = []
    for name in map(str, config):
        node = config._get_node(name)
        inner = _keys(node, f"{prefix}{name}.") if isinstance(node, DictConfig) and not node._is_none() else []
        found += inner or [f"{prefix}{name}"]
    return found


def _expected(node: Any) -> str:
    if isinstance(node, ListConfig):
        word = {int: "whole numbers", float: "numbers"}.get(node._metadata.element_type, "values")
        text = f"a list of {word} like [1, 2]"
    elif isinstance(node, DictConfig):
        text = "a dictionary like {a: 1}"
    else:
        text = WORDS.get(type(node), "plain data")
    return f"{text} or null" if node._is_optional() else text


# The whole


def _checked(config: DictConfig) -> Config:
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise InputError(f"{error.full_key}: not given, it has no default (see --help)") from error
    except OmegaConfBaseException as error:
        raise InputError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    check_plain("", plain)
    plain.pop("defaults", None)
    found = Config(**{**plain, "env": Env(**plain["env"])})
    _require("seed", found.seed, 0 <= found.seed < 1 << 63, "a whole number from 0 to 2⁶³ − 1")
    _require("keep", found.keep, found.keep >= 1, "a whole number ≥ 1")
    every, steps = found.checkpoint_every, found.env.max_episode_steps
    _require("checkpoint_every", every, every is None or every >= 1, "a whole number ≥ 1, or null")
    _require("env.max_episode_steps", steps, steps is None or steps >= 1, "a whole number ≥ 1, or null")
    registry.choose("env.vectorization", found.env.vectorization, schema.VECTORIZATIONS)
    for index, budget in enumerate(found.env.budgets or []):
        _require(f"env.budgets[{index}]", budget, math.isfinite(budget), "a finite number")
    return found


def _require(key: str, value: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise InputError(f"{key}: {value} given, {expected} expected")
