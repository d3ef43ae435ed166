"""Names and what they stand for. Algorithms and uncertainty sets are rows of data; nothing named in a file is executed.

    algorithms    `conf/algo/<name>.yaml`, `@register_algo("name")` in code, entry points `rcac.algos`
    sets          the classes of `rcac.uncertainty`, `@register_uncertainty("name")`, entry points `rcac.uncertainty`
    costs         `@register_cost("name")`: a cost computed from a step of an environment that reports none
"""

import dataclasses
from collections.abc import Callable
from importlib import resources
from importlib.metadata import entry_points
from typing import Any, TypeVar

import yaml

from rcac.errors import InputError

T = TypeVar("T")

_algos: dict[str, Callable[[], dict[str, Any]]] = {}
_sets: dict[str, Callable[..., Any]] = {}
_costs: dict[str, Callable[..., Any]] = {}


def _decorator(table: dict[str, Callable], kind: str, name: str) -> Callable[[Callable], Callable]:
    def register(thing: Callable) -> Callable:
        if name in table and table[name] is not thing:
            raise InputError(f"{kind}: {name!r} is registered already")
        table[name] = thing
        return thing

    return register


def register_algo(name: str) -> Callable[[Callable], Callable]:
    """Register a function that returns an algorithm's row, e.g. `{"family": "tabular", "step": "natural", …}`."""
    return _decorator(_algos, "algo", name)


def register_uncertainty(name: str) -> Callable[[Callable], Callable]:
    """Register a class or function `(problem, **parameters) -> Uncertainty`."""
    return _decorator(_sets, "uncertainty", name)


def register_cost(name: str) -> Callable[[Callable], Callable]:
    """Register a function `(observation, action, next_observation, reward, info) -> cost` (a number or an array)."""
    return _decorator(_costs, "cost", name)


def _plugins(group: str, table: dict[str, Callable]) -> dict[str, Callable]:
    """What is registered in code, and what installed packages offer."""
    found = {point.name: point.load for point in entry_points(group=group)}
    return {name: (lambda load: lambda *a, **k: load()(*a, **k))(load) for name, load in found.items()} | table


def _choose(kind: str, name: str, known: dict[str, T]) -> T:
    if name not in known:
        raise InputError(f"{kind}: {name!r} given, one of {', '.join(sorted(known))} expected")
    return known[name]


def _yaml_rows() -> dict[str, dict[str, Any]]:
    folder = resources.files("rcac.conf") / "algo"
    return {
        file.name.removesuffix(".yaml"): yaml.safe_load(file.read_text("utf-8"))
        for file in folder.iterdir() if file.name.endswith(".yaml")
    }


def algorithms() -> dict[str, dict[str, Any]]:
    """Every algorithm's row, by name."""
    return _yaml_rows() | {name: make() for name, make in _plugins("rcac.algos", _algos).items()}


def algorithm(name: str, settings: type[T]) -> T:
    """The settings that an algorithm's row stands for; `settings` is the dataclass of the family asked for."""
    rows = algorithms()
    family = settings().family  # type: ignore[attr-defined]
    row = _choose("method", name, {n: r for n, r in rows.items() if r.get("family") == family})
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    if unknown := row.keys() - known:
        raise InputError(f"{name}: unknown keys {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return settings(**row)


def cost_function(name: str) -> Callable[..., Any]:
    return _choose("cost", name, _plugins("rcac.costs", _costs))


def uncertainty_sets() -> dict[str, Callable[..., Any]]:
    """Every uncertainty set by its configuration name: a function `(problem, **parameters) -> Uncertainty`."""
    from rcac.uncertainty.named import NAMED

    return NAMED | _plugins("rcac.uncertainty", _sets)
