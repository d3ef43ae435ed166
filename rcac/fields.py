"""Settings that say what they accept: a dataclass field carries its check, and one function applies them all.

lam: float = field(50.0, POSITIVE)  # λ of the surrogate
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rcac.errors import InputError


class Check(NamedTuple):
    holds: Callable[[Any], bool]
    expected: Callable[[], str]  # what the error says was expected


def checked_by(check: Check, *, optional: bool = False) -> dict[str, Any]:
    """What a dataclass field without a default is given as `metadata`."""
    return {"check": check, "optional": optional}


def field(default: Any, check: Check, *, optional: bool = False) -> Any:
    """A dataclass field; `optional` lets it be None as well. A list is copied for each instance,
    and each of its entries is checked."""
    metadata = checked_by(check, optional=optional)
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def check_fields(settings: Any, prefix: str = "") -> None:
    """Raise InputError on the first value that cannot be used, its field named behind the prefix."""
    for each in dataclasses.fields(settings):
        if "check" not in each.metadata:
            continue
        value, (holds, expected) = getattr(settings, each.name), each.metadata["check"]
        if value is None and each.metadata["optional"]:
            continue
        entries = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, entry in entries:
            if not holds(entry):
                name = each.name if index is None else f"{each.name}[{index}]"
                or_null = ", or null" if each.metadata["optional"] else ""
                raise InputError(f"{prefix}{name}: {entry!r} given, {expected()}{or_null} expected")


def number(holds: Callable[[float], bool], expected: str) -> Check:
    return Check(lambda x: isinstance(x, int | float) and not isinstance(x, bool) and holds(x), lambda: expected)


def whole(least: int) -> Check:
    return Check(
        lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= least, lambda: f"a whole number ≥ {least}"
    )


def one_of(*names: str, more: Callable[[], Iterable[str]] = tuple) -> Check:
    """One of these names, or of what `more` knows when it is asked."""
    return Check(
        lambda x: isinstance(x, str) and x in (*names, *more()),
        lambda: f"one of {', '.join([*names, *sorted(more())])}",
    )


POSITIVE = number(lambda x: 0 < x < math.inf, "a positive finite number")
NOT_NEGATIVE = number(lambda x: 0 <= x < math.inf, "a finite number ≥ 0")
FINITE = number(math.isfinite, "a finite number")
FRACTION = number(lambda x: 0 <= x <= 1, "a number in [0, 1]")
COUNT, COUNT_OR_ZERO = whole(1), whole(0)
TRUE_OR_FALSE = Check(lambda x: isinstance(x, bool), lambda: "true or false")
