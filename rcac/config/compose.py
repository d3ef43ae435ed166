"""From `key=value` on a command line, or a saved file, to a checked `Config`.

Hydra composes `conf/train.yaml` and the groups; OmegaConf converts each value to its key's type (`rcac.config.source`
says which). Nothing is imported or instantiated from text, and the only interpolation is `${another.key}`.
"""

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import fields
from typing import Any

import hydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException
from omegaconf import (
    AnyNode,
    BooleanNode,
    DictConfig,
    FloatNode,
    IntegerNode,
    ListConfig,
    OmegaConf,
    StringNode,
    open_dict,
)
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
    OmegaConfBaseException,
    ValidationError,
)

from rcac import registry
from rcac.config import schema, source
from rcac.config.overrides import FILE, PRESET_ON_TOP, check_plain, load, one_value, parse, parse_overrides
from rcac.config.schema import Config, Env
from rcac.config.source import GROUPS
from rcac.errors import InputError
from rcac.runs.config import check

__all__ = ["FILE", "GROUPS", "assign", "compose", "finish", "load", "parse"]

OPEN = "env.kwargs"  # any key is accepted below it where the environment's file lists none
WORDS = {BooleanNode: "true or false", IntegerNode: "a whole number", FloatNode: "a number", StringNode: "text"}
FIXED = ("env.name", "algo.name", "algo.family", "uncertainty.name")  # what a choice is, not how it is set


# Composition


def compose(overrides: Iterable[str], saved: dict[str, Any] | None = None, *, folders: Iterable[str] = ()) -> Config:
    """The configuration that these overrides describe, on top of a saved one if given; with more folders of YAML files
    to find choices in, as after `--config-dir`."""
    with known(saved or {}):
        return finish(compose_nodes(overrides, saved, folders))


def compose_nodes(
    overrides: Iterable[str], saved: dict[str, Any] | None = None, folders: Iterable[str] = ()
) -> DictConfig:
    """Likewise, as Hydra's nodes. Plain assignments are made on a copy of what Hydra composed from the choices alone,
    because a sweep composes the same choices hundreds of times, at .2 s each; Hydra does the rest (`+`, `~`)."""
    parsed, saved, groups = parse_overrides(overrides), saved or {}, (*GROUPS, "preset")
    assignments = [one_value(override) for override in parsed]
    given = {key: value for key, value in assignments if key in groups and not isinstance(value, dict)}
    if saved and given.get("preset"):
        raise InputError(PRESET_ON_TOP)
    for group, value in given.items():
        if not isinstance(value, str) and (group, value) != ("preset", None):
            raise InputError(f"{group}: {value!r} given, one of {', '.join(_options(group))} expected")
    earlier = {group: row["name"] for group in GROUPS if isinstance(row := saved.get(group), dict) and "name" in row}
    choices = [f"{group}={name}" for group, name in {**earlier, **given}.items() if name is not None]
    special = [str(override.input_line) for override in parsed if _special(override)]
    config = _composed([*choices, *special, *search(folders)])
    if config.uncertainty is None:
        for key, value in assignments:
            if key == "uncertainty" and value is not None:
                name = config.algo.name
                able = ", ".join(registry.DEEP_SETS)
                raise InputError(f"uncertainty: {value} given with {name}, one of {able} expected")
    for key, value in saved.items():
        if key not in GROUPS or (key not in given and config.get(key) is not None and value is not None):
            assign(config, key, value)
    for override, (key, value) in zip(parsed, assignments, strict=True):
        if not _special(override) and (key not in groups or isinstance(value, dict)):
            assign(config, key, value)
    return config


def _special(override: Override) -> bool:
    """Whether only Hydra can say what it means: something is added, deleted or put elsewhere."""
    return str(override.input_line)[:1] in "+~" or override.package is not None


def search(folders: Iterable[str]) -> list[str]:
    """Hydra's override that has it look for files there too."""
    listed = ",".join(f"'file://{folder}'" for folder in folders)
    return [f"hydra.searchpath=[{listed}]"] if listed else []


_composed_before: dict[Any, DictConfig] = {}


def _composed(overrides: list[str]) -> DictConfig:
    key = (*overrides, registry.state())
    if key not in _composed_before:
        _composed_before[key] = _compose_anew(overrides)
    return deepcopy(_composed_before[key])


def _compose_anew(overrides: list[str]) -> DictConfig:
    with source.hydra_here(), explained():
        return hydra.compose("train", overrides=overrides)


@contextlib.contextmanager
def known(saved: dict[str, Any]) -> Iterator[None]:
    """A saved algorithm that came from a file of the user's own is known by its row, while this lasts."""
    row = saved.get("algo") or {}
    name = row.get("name")
    if not isinstance(name, str) or name in registry.algorithm_names() or row.get("family") not in schema.FAMILIES:
        yield
        return
    with registry.temporary():
        registry.register_algo(name)(lambda: {key: value for key, value in row.items() if key != "name"})
        yield


def _options(group: str) -> list[str]:
    names = {"env": registry.rows("env"), "algo": registry.algorithm_names(), "preset": registry.rows("preset")}
    return sorted(names.get(group, registry.uncertainty_names()))


# Hydra's errors, in one line


@contextlib.contextmanager
def explained() -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    first, *rest = str(error).splitlines() or [""]
    cause = error.__cause__ or error.__context__
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        options = sorted(error.options)
        near = difflib.get_close_matches(name, options, n=1)
        meant = f", did you mean {near[0]}?" if near else ""
        return f"{group}: {name!r} given, one of {', '.join(options)} expected{meant}"
    if first.startswith("You must specify"):
        group = first.split("'")[1]
        options = [line.strip() for line in rest if line.startswith("\t")]
        return f"{group}: not given, one of {', '.join(sorted(options))} expected"
    if isinstance(cause, InputError):
        return str(cause)
    if isinstance(cause, OmegaConfBaseException):
        return _about_node(cause)
    return " ".join([first, *rest]).split("Config search path")[0].strip()


def _about_node(error: OmegaConfBaseException) -> str:
    """What is wrong with a key or value that Hydra merges, from a file or a registered row."""
    words, parent, key = str(error).splitlines()[0], error.parent_node, str(error.key)
    if isinstance(parent, DictConfig) and isinstance(error, ConfigKeyError | ConfigAttributeError):
        known = sorted(map(str, parent))
        near = difflib.get_close_matches(key, known, n=1)
        prefix = str(error.full_key).removesuffix(key)
        hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{error.full_key}: no such key, {hint}"
    if isinstance(parent, DictConfig) and (value := re.match(r"Value (.*) of type", words)):
        return f"{error.full_key}: {value[1]} given, {_expected(parent._get_node(key))} expected"
    return f"{error.full_key}: {words}"


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
    if isinstance(node, BooleanNode) and not isinstance(value, bool | None):
        raise InputError(f"{key}: {value!r} given, true or false expected")
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
    return OmegaConf.is_struct(config.env.kwargs) is False


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
    known = sorted({*_keys(config)} - {key, "env.deep"})
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


def finish(config: DictConfig) -> Config:
    """What Hydra composed, resolved, as plain data, and checked."""
    _type(config)
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except MissingMandatoryValue as error:
        raise InputError(f"{error.full_key}: not given, it has no default (see --help)") from error
    except OmegaConfBaseException as error:
        raise InputError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    check_plain("", plain)
    plain["env"].pop("deep", None)
    kinds: dict[str, Any] = {"": Config, "env.": Env, "algo.": OmegaConf.get_type(config.algo)}
    if plain["uncertainty"] is not None:
        kinds["uncertainty."] = OmegaConf.get_type(config.uncertainty)
    for prefix, kind in kinds.items():  # +key adds whatever it is given
        for key in (plain[prefix[:-1]] if prefix else plain).keys() - {field.name for field in fields(kind)}:
            raise InputError(f"{prefix}{key}: no such key{_suggestion(config, prefix + key)}")
    if missing := {field.name for field in fields(Config)} - plain.keys():
        raise InputError(f"{min(missing)}: deleted, a value expected")
    found = Config(**{**plain, "env": Env(**plain["env"])})
    check(found)
    return found


def _type(config: DictConfig) -> None:
    """Give types to an algorithm or a set from a file of the user's own, whose keys Hydra took as they came."""
    for group in ("algo", "uncertainty"):
        node = config.get(group)
        if isinstance(node, DictConfig) and OmegaConf.get_type(node) is dict:
            values: Any = OmegaConf.to_container(node)
            with open_dict(config):
                config[group] = source.typed(group, config.env.name, values)
            assign(config, group, values)
