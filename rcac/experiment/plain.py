"""From text to plain data: `key=value` in Hydra's grammar, and the configuration saved with a run.

Plain means: nothing is imported or instantiated from it, and the only interpolation is `${another.key}`.
"""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from rcac.errors import InputError
from rcac.experiment import checkpoint

FILE = "config.yaml"
DEPTH = 20  # of nesting in a file


class Assignment(NamedTuple):
    key: str
    value: Any


def parse(overrides: Iterable[str]) -> list[Assignment]:
    """`key=value` texts in Hydra's grammar; only plain assignments."""
    parser = OverridesParser.create()
    return [_plain(text, _parsed(parser, text)) for text in overrides]


def _parsed(parser: OverridesParser, text: str) -> Override:
    try:
        return parser.parse_override(text)
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{text}: not understood ({reason}), key=value expected") from error


def _plain(text: str, override: Override) -> Assignment:
    if text[:1] in "+~" or override.package is not None or override.is_sweep_override():
        raise InputError(f"{text}: given, a plain key=value with one value expected")
    key, value = override.key_or_group.replace("/", "."), override.value()
    check_plain(key, value)
    return Assignment(key, value)


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


def load(folder: str | Path) -> dict[str, Any]:
    """The configuration that a run was made with."""
    path = Path(folder)
    path = path / FILE if path.is_dir() else path
    try:
        text = checkpoint.read_regular(path, limit=1 << 20).decode()
        _check_document(text)
        saved = yaml.safe_load(text)
    except (checkpoint.Damaged, UnicodeDecodeError, yaml.YAMLError) as error:
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
