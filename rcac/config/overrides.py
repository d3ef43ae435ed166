"""From text to plain data: `key=value` in Hydra's grammar, and the configuration saved with a run.

Plain means: nothing is imported or instantiated from it, and the only interpolation is `${another.key}`.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rcac.config.source import GROUPS
from rcac.errors import InputError
from rcac.runs.config import FILE, check_plain, load

__all__ = ["FILE", "check_plain", "load", "parse"]


PRESET_ON_TOP = "preset: given on top of a saved configuration, which has a value for every key already"


class Assignment(NamedTuple):
    key: str
    value: Any


def parse(overrides: Iterable[str]) -> list[Assignment]:
    """`key=value` texts in Hydra's grammar, each with one value."""
    return [one_value(override) for override in parse_overrides(overrides)]


def parse_overrides(overrides: Iterable[str]) -> list[Override]:
    """Hydra's overrides: `key=value`, `+key=value`, `~key`, with one value or several."""
    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        try:
            parsed.append(parser.parse_override(whole_numbers(text)))
        except HydraException as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{text}: not understood ({reason}), key=value expected") from error
    return parsed


def whole_numbers(text: str) -> str:
    """`algo.total_steps=1e6` is a whole number: write those with an exponent in digits."""
    key, equals, values = text.partition("=")

    def digits(match: re.Match[str]) -> str:
        number = float(match[0])
        return str(int(number)) if number.is_integer() and number < 1 << 63 else match[0]

    return key + equals + re.sub(r"(?<![^=,(\[{: ])\d+(\.\d+)?[eE]\+?\d+(?![^,)\]} ])", digits, values)


def one_value(override: Override) -> Assignment:
    if override.is_sweep_override():
        raise InputError(f"{override.input_line}: several values given, one expected (-m runs each)")
    key, value = override.key_or_group.replace("/", "."), override.value()
    if value is not None or not override.is_delete():
        check_plain(key, value)
    return Assignment(key, value)


def as_overrides(saved: dict[str, Any], given: Iterable[str] = ()) -> list[str]:
    """A saved configuration as overrides, but for the groups that are `given` anew."""
    if "preset" in (given := set(given)):
        raise InputError(PRESET_ON_TOP)
    kept = {key: value for key, value in saved.items() if key not in given and value is not None}
    choices = [f"{group}={kept[group]['name']}" for group in GROUPS if isinstance(kept.get(group), dict)]
    flat = {f"{key}.{name}": entry for key in GROUPS for name, entry in (kept.pop(key, None) or {}).items()}
    return choices + [f"{key}={_text(key, value)}" for key, value in {**kept, **flat}.items()]


def _text(key: str, value: Any) -> str:
    """A value in Hydra's grammar."""
    match value:
        case None | bool():
            return "null" if value is None else str(value).lower()
        case str():
            quoted = re.sub(r"(\\*)('|$)", lambda m: 2 * m[1] + ("\\'" if m[2] else ""), value)
            return f"'{quoted}'"
        case list():
            return f"[{','.join(_text(key, entry) for entry in value)}]"
        case dict():
            if odd := [name for name in value if not re.fullmatch(r"[\w./+*:-]+", name)]:
                raise InputError(
                    f"{key}: {odd[0]!r} given, a name of letters, digits and . / + * : - expected as a key"
                )
            names = {name: name.replace(":", "\\:") for name in value}
            return "{" + ",".join(f"{names[name]}:{_text(key, entry)}" for name, entry in value.items()) + "}"
        case _:
            return repr(value)
