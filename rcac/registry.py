"""Names and what they stand for. Algorithms and uncertainty sets are rows of data; nothing named in a file is executed.

    algorithms    `conf/algo/<name>.yaml`, `@register_algo("name")` in code, entry points `rcac.algos`
    sets          `rcac.uncertainty.named`, `@register_uncertainty("name")` in code, entry points `rcac.uncertainty`
    costs         `@register_cost("name")` in code, entry points `rcac.costs`: a cost computed from a step of an
                  environment that reports none

Ours come first, then what is registered in code, then what installed packages offer. A package is loaded when its
name is asked for.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import entry_points
from typing import Any, TypeVar

import yaml

from rcac.errors import InputError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """Functions of one kind, by name."""

    def __init__(self, kind: str, group: str, ours: Callable[[], Iterable[str]]) -> None:
        self._kind, self._group, self._ours = kind, group, ours
        self._registered: dict[str, Callable[..., Any]] = {}

    def register(self, name: str) -> Callable[[F], F]:
        def decorate(thing: F) -> F:
            if not isinstance(name, str) or not name.isidentifier():
                raise InputError(f"{self._kind}: {name!r} given, a name of letters, digits and _ expected")
            if name in self._ours() or self._registered.get(name, thing) is not thing:
                raise InputError(f"{self._kind}: {name!r} is registered already")
            self._registered[name] = thing
            return thing

        return decorate

    def names(self) -> set[str]:
        """Of what is registered in code or offered by packages."""
        return {*self._registered, *(point.name for point in entry_points(group=self._group))}

    def get(self, name: str) -> Callable[..., Any]:
        if name in self._registered:
            return self._registered[name]
        [point, *_] = entry_points(group=self._group, name=name)
        try:
            return point.load()
        except Exception as error:
            raise InputError(f"{self._kind}: {name!r} of {point.value} cannot be loaded ({error!r})") from error


def choose(kind: str, name: Any, known: Iterable[str]) -> str:
    """`name`, if it is one of the known ones."""
    if name not in (known := sorted(known)):
        raise InputError(f"{kind}: {name!r} given, one of {', '.join(known)} expected")
    return name


# Ours


@cache
def _rows(group: str) -> Mapping[str, dict[str, Any]]:
    files = sorted((resources.files("rcac.conf") / group).iterdir(), key=lambda file: file.name)
    rows = {f.name.removesuffix(".yaml"): yaml.safe_load(f.read_text("utf-8")) for f in files if f.name[-5:] == ".yaml"}
    return {name: row or {} for name, row in rows.items()}


def rows(group: str) -> dict[str, dict[str, Any]]:
    """What the files of `conf/<group>` say, by their names."""
    return {name: dict(row) for name, row in _rows(group).items()}


def document(name: str) -> dict[str, Any]:
    """What `conf/<name>.yaml` says."""
    return yaml.safe_load((resources.files("rcac.conf") / f"{name}.yaml").read_text("utf-8"))


def _our_sets() -> dict[str, Callable[..., Any]]:
    from rcac.uncertainty.named import NAMED

    return NAMED


_algos = Registry("algo", "rcac.algos", lambda: _rows("algo"))
_sets = Registry("uncertainty", "rcac.uncertainty", _our_sets)
_costs = Registry("cost", "rcac.costs", tuple)


# Decorators


def register_algo(name: str) -> Callable[[F], F]:
    """Register a function that returns an algorithm's row, e.g. `{"family": "tabular", "step": "natural", …}`."""
    return _algos.register(name)


def register_uncertainty(name: str) -> Callable[[F], F]:
    """Register a class or function `(problem, **parameters) -> Uncertainty`."""
    return _sets.register(name)


def register_cost(name: str) -> Callable[[F], F]:
    """Register a function `(observation, action, next_observation, reward, info) -> cost` (a number or an array)."""
    return _costs.register(name)


# Algorithms


def algorithm_names() -> list[str]:
    return sorted({*_rows("algo"), *_algos.names()})


def algorithm_row(name: str) -> dict[str, Any]:
    """The row of a known algorithm."""
    if name in _rows("algo"):
        return dict(_rows("algo")[name])
    row = _algos.get(choose("algo", name, algorithm_names()))()
    if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
        raise InputError(f"algo {name}: {row!r} given, a row like {{'family': 'tabular', 'step': 'natural'}} expected")
    return dict(row)


def algorithms(family: str | None = None) -> dict[str, dict[str, Any]]:
    """Every algorithm's row, by name; of one family, if given. What cannot be loaded is left out."""
    found = {}
    for name in algorithm_names():
        with contextlib.suppress(InputError):
            found[name] = algorithm_row(name)
    return {name: row for name, row in found.items() if family in (None, row.get("family"))}


def algorithm(name: str, settings: type[T]) -> T:
    """The settings that an algorithm's row stands for; `settings` is the dataclass of the family asked for."""
    family = settings().family  # type: ignore[attr-defined]
    row = algorithms(family)[choose("method", name, algorithms(family))]
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    if unknown := row.keys() - known:
        raise InputError(f"{name}: unknown keys {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return settings(**row)


# Costs and sets


def cost_function(name: str) -> Callable[..., Any]:
    if not _costs.names():
        raise InputError(
            f"cost: {name!r} given, but none is registered; env.id=my_module:Env-v0 imports the module that registers it"
        )
    return _costs.get(choose("cost", name, _costs.names()))


def uncertainty_names() -> list[str]:
    return sorted({*_our_sets(), *_sets.names()})


def uncertainty_set(name: str) -> Callable[..., Any]:
    """A function `(problem, **parameters) -> Uncertainty`, by its name in a configuration."""
    ours = _our_sets()
    return ours[name] if name in ours else _sets.get(choose("uncertainty", name, uncertainty_names()))
