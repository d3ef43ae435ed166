"""Modules whose names are loaded when they are first asked for."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from rcac.errors import needs


def lazy(package: str, homes: dict[str, str]) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package whose modules define these names, {"kl": "KLBall KLPenalty"}.
    Its public modules are found under their names too, as in `rcac.registry.temporary()`."""
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}

    def getattribute(name: str) -> Any:
        if name not in home:
            if name.startswith("_") or find_spec(f"{package}.{name}") is None:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            return import_module(f"{package}.{name}")
        with needs(f"{package}.{name}"):
            return getattr(import_module(home[name]), name)

    return sorted(home), getattribute, lambda: sorted({*vars(import_module(package)), *home})
