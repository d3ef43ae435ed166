"""What names in a configuration refer to. Algorithms and sets are rows of data; nothing named in a file is executed.

    algorithms    `conf/algo/<name>.yaml`, `@register_algo("name")` in code, entry points `rcac.algos`
    sets          `rcac.uncertainty.named`, `@register_uncertainty("name")` in code, entry points `rcac.uncertainty`
    costs         `@register_cost("name")` in code, entry points `rcac.costs`: a cost computed from a step of an
                  environment that reports none
    loggers       `rcac.runs.loggers`, `@register_logger("name")` in code, entry points `rcac.loggers`
    networks      `@register_network("name")` in code, entry points `rcac.networks`: the body of a deep actor or critic
    steps         `@register_step("name")` in code, entry points `rcac.steps`: how a deep actor moves
    switches      `@register_switch("name")` in code, entry points `rcac.switches`: which costs a deep method descends

Ours come first, then what is registered in code, then what installed packages offer. A package is loaded when its
name is asked for.
"""

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.metadata import EntryPoints, entry_points
from typing import Any, TypeVar

import yaml

from rcac.errors import InputError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Registry:
    """Functions of one kind, by name."""

    def __init__(self, kind: str, group: str, ours: Callable[[], Iterable[str]] = tuple, hint: str = "") -> None:
        self._kind, self._group, self._ours, self._hint = kind, group, ours, hint
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

    def replace(self, name: str, thing: Callable[..., Any]) -> None:
        """Register, replacing an earlier registration of this name."""
        self._registered[name] = thing

    def names(self) -> set[str]:
        """Of what is registered in code or offered by packages."""
        return {*self._registered, *(point.name for point in _entry_points(self._group, *sys.path))}

    @contextlib.contextmanager
    def temporary(self) -> Iterator[None]:
        """Registrations made inside are undone at the end."""
        before = dict(self._registered)
        try:
            yield
        finally:
            self._registered = before

    def items(self) -> tuple[tuple[str, Callable[..., Any]], ...]:
        return tuple(self._registered.items())

    def get(self, name: str) -> Callable[..., Any]:
        if name not in (known := sorted(self.names())):
            expected = f"one of {', '.join(known)} expected" if known else "but none is registered"
            raise InputError(f"{self._kind}: {name!r} given, {expected}{self._hint}")
        if name in self._registered:
            return self._registered[name]
        [point, *_] = [point for point in _entry_points(self._group, *sys.path) if point.name == name]
        try:
            return point.load()
        except Exception as error:
            raise InputError(f"{self._kind}: {name!r} of {point.value} cannot be loaded ({error!r})") from error


@cache
def _entry_points(group: str, *path: str) -> EntryPoints:
    """What packages offer, on a path that modules are searched on; reading it takes .01 s."""
    return entry_points(group=group)


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
    return {name: {key: row[key] for key in row or {} if key != "defaults"} for name, row in rows.items()}


def rows(group: str) -> dict[str, dict[str, Any]]:
    """What the files of `conf/<group>` say, by their names."""
    return {name: dict(row) for name, row in _rows(group).items()}


def document(name: str) -> dict[str, Any]:
    """What `conf/<name>.yaml` says."""
    return yaml.safe_load((resources.files("rcac.conf") / f"{name}.yaml").read_text("utf-8"))


def preset(name: str | None, group: str, choice: str) -> dict[str, Any]:
    """What `conf/preset/<group>/<name>/<choice>.yaml` says, over the parts that it shares; nothing if there is no such file."""
    if name is None:
        return {}
    folder = f"preset/{group}/{choose('preset', name, _rows('preset'))}"
    row = document(f"{folder}/{choice}") if choice in _rows(folder) else {}
    shared = [preset(name, group, *part.values()) for part in row.pop("defaults", ())]
    return {key: value for part in (*shared, row) for key, value in part.items()}


def preset_set(name: str | None) -> str | None:
    """The uncertainty set that a preset chooses for tabular methods."""
    if name is None:
        return None
    chosen = document(f"preset/{choose('preset', name, _rows('preset'))}")["defaults"]
    return next(row["override /uncertainty"] for row in chosen)


def _our_sets() -> dict[str, Callable[..., Any]]:
    from rcac.uncertainty.named import NAMED

    return NAMED


DEEP_SETS = ("nominal", "ipm", "parameters")  # what deep methods can be robust against
_algos = Registry("algo", "rcac.algos", lambda: _rows("algo"))
_sets = Registry("uncertainty", "rcac.uncertainty", _our_sets)
costs = Registry("cost", "rcac.costs", hint="; env.id=my_module:Env-v0 imports the module that registers it")
OUR_LOGGERS = ("csv", "tensorboard", "wandb")  # modules of rcac.runs.loggers
loggers = Registry("logger", "rcac.loggers", lambda: OUR_LOGGERS)
networks = Registry("network", "rcac.networks", hint="; import the module that says @rcac.register_network")
steps = Registry("step", "rcac.steps", lambda: ("gradient", "natural", "softmax", "sqp", "projected"))
switches = Registry(
    "switch", "rcac.switches", lambda: ("surrogate", "soft_surrogate", "crpo", "epigraph", "lagrangian")
)


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """What is registered inside the context is forgotten at its end:

    with rcac.registry.temporary():
        rcac.register_algo("mine")(lambda: {"family": "tabular", "step": "natural"})
        ...
    """
    with contextlib.ExitStack() as stack:
        for each in (_algos, _sets, costs, loggers, networks, steps, switches):
            stack.enter_context(each.temporary())
        yield


def state() -> Hashable:
    """Changes when an algorithm or a set is registered or forgotten."""
    return (*_algos.items(), *_sets.items(), *sys.path)


# Decorators, of functions or classes


def register_algo(name: str) -> Callable[[F], F]:
    """Register a function that returns an algorithm's row: its parts and numbers.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_algo("careful_rnpg")
    ...     def careful_rnpg():
    ...         return {"family": "tabular", "switch": "surrogate", "step": "natural", "slack": 0.5}
    ...     "careful_rnpg" in rcac.registry.algorithm_names()
    True
    """
    return _algos.register(name)


def register_uncertainty(name: str) -> Callable[[F], F]:
    """Register a class or function `(problem, **parameters) -> Uncertainty`.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_uncertainty("small_ball")
    ...     def small_ball(problem, radius=1e-4):
    ...         return rcac.uncertainty.KLBall(radius)
    ...     "small_ball" in rcac.registry.uncertainty_names()
    True
    """
    return _sets.register(name)


def register_cost(name: str) -> Callable[[F], F]:
    """Register a function `(observation, action, next_observation, reward, info) -> cost` (a number or an array).

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_cost("speeding")
    ...     def speeding(observation, action, next_observation, reward, info):
    ...         return max(0.0, abs(float(next_observation[1])) - 1.0)
    ...     rcac.registry.costs.get("speeding")(None, 0, [0.0, 3.0], 1.0, {})
    2.0
    """
    return costs.register(name)


def register_logger(name: str) -> Callable[[F], F]:
    """Register a class or function `(run: RunInfo) -> Logger`: see `rcac.runs.loggers`.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_logger("silent")
    ...     def silent(run):
    ...         return rcac.runs.loggers.Logger()
    ...     "silent" in rcac.registry.loggers.names()
    True
    """
    return loggers.register(name)


def register_network(name: str) -> Callable[[F], F]:
    """Register a class or function `(space) -> torch.nn.Module` with an `out_features`; see `rcac.deep.networks`.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_network("wide")
    ...     def wide(space):
    ...         import torch
    ...         return torch.nn.Linear(space.shape[0], 512)
    ...     rcac.registry.networks.get("wide") is wide
    True
    """
    return networks.register(name)


def register_step(name: str) -> Callable[[F], F]:
    """Register a function `(ActorStepInputs) -> ActorUpdate`; see `rcac.deep.steps.base`.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_step("still")
    ...     def still(inputs):
    ...         raise NotImplementedError
    ...     rcac.registry.steps.names()
    {'still'}
    """
    return steps.register(name)


def register_switch(name: str) -> Callable[[F], F]:
    """Register a class or function `(settings) -> Switch`; see `rcac.switch` and `rcac.deep.settings`.

    Parameters
    ----------
    name : str
        By which configurations and Python know it.

    Returns
    -------
    function
        A decorator, which returns what it decorates.

    Examples
    --------
    >>> import rcac
    >>> with rcac.registry.temporary():
    ...     @rcac.register_switch("careful")
    ...     def careful(settings):
    ...         return rcac.switch.CRPO(tolerance=0.5)
    ...     rcac.registry.switches.names()
    {'careful'}
    """
    return switches.register(name)


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
    """Every algorithm's row, by name; of one family, if given. What cannot be loaded is left out: see `broken`."""
    found = {}
    for name in algorithm_names():
        with contextlib.suppress(InputError):
            found[name] = algorithm_row(name)
    return {name: row for name, row in found.items() if family in (None, row.get("family"))}


def broken() -> dict[str, str]:
    """What packages offer that cannot be loaded, and why."""
    found = {}
    for kind, names, load in (
        ("algo", algorithm_names, algorithm_row),
        ("uncertainty", uncertainty_names, uncertainty_set),
    ):
        for name in names():
            try:
                load(name)
            except InputError as error:
                found[f"{kind}={name}"] = str(error)
    return found


def algorithm(name: str, settings: type[T]) -> T:
    """The settings that an algorithm's row stands for; `settings` is the dataclass of the family asked for."""
    family = settings().family  # type: ignore[attr-defined]
    row = algorithms(family)[choose("method", name, algorithms(family))]
    known = {f.name for f in dataclasses.fields(settings)}  # type: ignore[arg-type]
    if unknown := row.keys() - known:
        raise InputError(f"{name}: unknown keys {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return settings(**row)


# Costs and sets


def use_cost(function: Callable[..., Any]) -> str:
    """Register a cost function under its own name, in place of one of the same name; returns the name."""
    name = getattr(function, "__name__", "")
    name = name if name.isidentifier() else "cost_function"
    costs.replace(name, function)
    return name


def uncertainty_names() -> list[str]:
    return sorted({*_rows("uncertainty"), *_sets.names()})  # ours have a file each: no set is loaded for its name


def uncertainty_set(name: str) -> Callable[..., Any]:
    """A function `(problem, **parameters) -> Uncertainty`, by its name in a configuration."""
    ours = _our_sets()
    return ours[name] if name in ours else _sets.get(choose("uncertainty", name, uncertainty_names()))


def make_uncertainty(problem: Any, given: Any) -> Any:
    """An uncertainty set, or the one of this name with the parameters of its file; None is the nominal model."""
    from rcac.uncertainty.base import Uncertainty

    if not isinstance(given, str | None | Uncertainty):
        expected = f"a set such as KLBall(0.05), or one of {', '.join(uncertainty_names())} expected"
        shown = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InputError(f"uncertainty: {shown} given, {expected}")
    if not isinstance(given, str | None):
        return given
    make = uncertainty_set(name := "nominal" if given is None else given)
    known = {
        key: value
        for key, value in _rows("uncertainty").get(name, {}).items()
        if not str(value).startswith(("${", "???"))
    }
    try:
        inspect.signature(make).bind(problem, **known)
    except TypeError as error:
        raise InputError(f"uncertainty: {name!r} given, a set with its parameters expected ({error})") from None
    return make(problem, **known)
