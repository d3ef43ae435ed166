"""Is a run's `config.yaml` the one that its policy was trained with? `policy.json` knows; a change is made on the
command line, where it is seen."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rcac.errors import InputError
from rcac.runs.build import env_digest, files_digest
from rcac.runs.folder import CARD, RunFolder

PARTS = ("env", "algo", "uncertainty", "seed")  # what a run is; the rest is how it was watched and saved


def check_unchanged(folder: Path, saved: dict[str, Any]) -> None:
    """Hold a configuration against the card of the policy in its folder."""
    card = RunFolder(folder).read_json(CARD)
    identity, trained = card.get("identity"), card.get("hyperparameters")
    if not isinstance(identity, dict) or not isinstance(trained, dict):
        raise InputError(f"{folder / CARD}: it does not say what its policy was trained with, identity expected")
    now, then = ({key: each.get(key) for key in PARTS} for each in (json.loads(json.dumps(saved)), trained))
    for key in sorted((ours := flat(now)).keys() | (theirs := flat(then)).keys()):
        if ours.get(key) != theirs.get(key):
            raise InputError(
                f"{folder / 'config.yaml'}: {key} is {ours.get(key)!r}, {theirs.get(key)!r} when the policy was trained; "
                "a change is made on the command line (env.…=, uncertainty.…=)"
            )
    same = {"env_hash": env_digest(now["env"] or {}), "seed": now["seed"], "algo": (now["algo"] or {}).get("name")}
    if isinstance(row := now["uncertainty"], dict) and "uncertainty" in identity:
        same["uncertainty"] = row | files_digest(row)
    for key, value in same.items():
        if identity.get(key) != value:
            raise InputError(f"{folder}: {key} {value!r} found, {identity.get(key)!r} in {CARD} expected")


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` is `{"a.b": 1}`."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
