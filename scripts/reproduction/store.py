"""Results on the disk: `<folder>/<section>.json`, one file for each section, written again after every piece.

    {"key": {"section": …, "settings": …, "defaults": …, "version": …}, "pieces": {name: data, …}, "result": data or null}

A file whose key is another (other settings, other defaults of the methods or environments that it uses, another
version of the package) counts as not there; settings that only select runs may differ. What is there is not computed again; delete a file to recompute its
section.
"""

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rcac import __version__, registry
from rcac.config.schema import FAMILIES
from rcac.errors import InputError
from rcac.runs.folder import replace_file
from reproduction.section import Interrupted, PieceCache, Result, Section


class Store:
    def __init__(self, folder: Path, log: Callable[[str], None] = lambda line: None, jobs: int = 1) -> None:
        self.folder, self._log, self.jobs = folder, log, jobs  # jobs: pieces at a time, where a section has such

    def path(self, section: Section) -> Path:
        return self.folder / f"{section.name}.json"

    def result(self, section: Section, settings: dict[str, Any]) -> Result | None:
        """What was computed with these settings, if it is complete."""
        return self._read(section, settings)["result"]

    def compute(self, section: Section, settings: dict[str, Any]) -> Result:
        """The section's result: missing pieces are computed, and stored one by one."""
        contents = self._read(section, settings)
        if contents["result"] is None:
            contents["result"] = _json_round_trip(section.compute(settings, _StoredPieces(self, section, contents)))
            self._write(section, contents)
        return contents["result"]

    def get_or_compute(self, section: Section, contents: dict[str, Any], name: str, compute: Callable[[], Any]) -> Any:
        if name not in contents["pieces"]:
            self._log(f"{section.name}: {name}")
            try:
                contents["pieces"][name] = _json_round_trip(compute())
            except Interrupted as stop:
                contents["pieces"][name] = _json_round_trip(stop.piece)
                self._write(section, contents)
                raise
            self._write(section, contents)
        return contents["pieces"][name]

    def compute_missing(
        self, section: Section, contents: dict[str, Any], pieces: Mapping[str, Callable[[], Any]]
    ) -> None:
        """Missing pieces in processes of their own, each stored as soon as it is done."""
        missing = {name: compute for name, compute in pieces.items() if name not in contents["pieces"]}
        with ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn")) as pool:
            futures = {pool.submit(compute): name for name, compute in missing.items()}
            try:
                for done in as_completed(futures):
                    self.get_or_compute(section, contents, futures[done], done.result)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _read(self, section: Section, settings: dict[str, Any]) -> dict[str, Any]:
        about = {"section": section.name, "settings": settings, "defaults": defaults(section.family)}
        key = _json_round_trip({**about, "version": __version__})
        fresh = {"key": key, "pieces": {}, "result": None}
        try:
            found = json.loads(self.path(section).read_text("utf-8"))
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path(section)}: cannot be read ({error}); delete it to recompute it") from error
        if not isinstance(found, dict) or found.keys() != fresh.keys():
            return fresh
        if found["key"] != key and _without(section, found["key"]) == _without(section, key):
            return {**fresh, "pieces": found["pieces"]}  # runs of another selection
        return found if found["key"] == key else fresh

    def _write(self, section: Section, contents: dict[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.path(section), json.dumps(contents).encode())
        except OSError as error:
            raise InputError(f"{self.path(section)}: cannot be written ({error.strerror})") from error


class _StoredPieces(PieceCache):
    def __init__(self, store: Store, section: Section, contents: dict[str, Any]) -> None:
        super().__init__(store.folder)
        self._store, self._section, self._contents = store, section, contents

    def __call__(self, name: str, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self._store.get_or_compute(self._section, self._contents, name, partial(compute, *arguments, **options))

    def compute_all(self, pieces: Mapping[str, Callable[[], Any]]) -> list[Any]:
        if self._store.jobs > 1:
            self._store.compute_missing(self._section, self._contents, pieces)
        return super().compute_all(pieces)


def _without(section: Section, key: Any) -> Any:
    """A file's key but for what selects runs."""
    settings = key.get("settings") if isinstance(key, dict) else None
    if not isinstance(settings, dict):
        return key
    return {**key, "settings": {name: value for name, value in settings.items() if name not in section.selecting}}


def defaults(family: str) -> str:
    """Digest of the default settings of a family's methods and of the environments they run on."""
    methods = {name: asdict(FAMILIES[family](**row)) for name, row in registry.algorithms(family).items()}
    ours = {
        name: row for name, row in registry.rows("env").items() if row.get("tabular", False) == (family == "tabular")
    }
    text = json.dumps([methods, ours], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _json_round_trip(data: Any) -> Any:
    """As it will be read back, so that a first run and a resumed one see the same."""
    return json.loads(json.dumps(data))
