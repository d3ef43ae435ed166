"""Results on the disk: `<folder>/<section>.json`, one file for each section, written again after every piece.

    {"key": {"section": …, "settings": …, "defaults": …, "version": …}, "pieces": {name: data, …}, "result": data or null}

A file whose key is another (other settings, other defaults of the methods or environments that it uses, another
version of the package) counts as not there. What is there is not computed again; delete a file to have its section
computed anew.
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
from rcac.errors import InputError
from rcac.experiment.reproduction.section import Interrupted, Once, Result, Section
from rcac.experiment.runfolder import replace_file
from rcac.experiment.schema import FAMILIES


class Store:
    def __init__(self, folder: Path, say: Callable[[str], None] = lambda line: None, jobs: int = 1) -> None:
        self.folder, self._say, self.jobs = folder, say, jobs  # jobs: pieces at a time, where a section has such

    def path(self, section: Section) -> Path:
        return self.folder / f"{section.name}.json"

    def result(self, section: Section, settings: dict[str, Any]) -> Result | None:
        """What was computed with these settings, if it is complete."""
        return self._read(section, settings)["result"]

    def compute(self, section: Section, settings: dict[str, Any]) -> Result:
        """The section's result: what is missing of it is computed, and kept piece by piece."""
        kept = self._read(section, settings)
        if kept["result"] is None:
            kept["result"] = _plain(section.compute(settings, _Kept(self, section, kept)))
            self._write(section, kept)
        return kept["result"]

    def keep(self, section: Section, kept: dict[str, Any], name: str, compute: Callable[[], Any]) -> Any:
        if name not in kept["pieces"]:
            self._say(f"{section.name}: {name}")
            try:
                kept["pieces"][name] = _plain(compute())
            except Interrupted as stop:
                kept["pieces"][name] = _plain(stop.piece)
                self._write(section, kept)
                raise
            self._write(section, kept)
        return kept["pieces"][name]

    def keep_all(self, section: Section, kept: dict[str, Any], pieces: Mapping[str, Callable[[], Any]]) -> None:
        """Missing pieces in processes of their own, each kept as soon as it is there."""
        missing = {name: compute for name, compute in pieces.items() if name not in kept["pieces"]}
        with ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn")) as pool:
            coming = {pool.submit(compute): name for name, compute in missing.items()}
            try:
                for done in as_completed(coming):
                    self.keep(section, kept, coming[done], done.result)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _read(self, section: Section, settings: dict[str, Any]) -> dict[str, Any]:
        about = {"section": section.name, "settings": settings, "defaults": defaults(section.family)}
        key = _plain({**about, "version": __version__})
        fresh = {"key": key, "pieces": {}, "result": None}
        try:
            found = json.loads(self.path(section).read_text("utf-8"))
        except FileNotFoundError:
            return fresh
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path(section)}: cannot be read ({error}); delete it to compute it anew") from error
        same = isinstance(found, dict) and found.get("key") == key and found.keys() == fresh.keys()
        return found if same else fresh

    def _write(self, section: Section, kept: dict[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.path(section), json.dumps(kept).encode())
        except OSError as error:
            raise InputError(f"{self.path(section)}: cannot be written ({error.strerror})") from error


class _Kept(Once):
    def __init__(self, store: Store, section: Section, kept: dict[str, Any]) -> None:
        super().__init__(store.folder)
        self._store, self._section, self._contents = store, section, kept

    def __call__(self, name: str, compute: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return self._store.keep(self._section, self._contents, name, partial(compute, *arguments, **options))

    def many(self, pieces: Mapping[str, Callable[[], Any]]) -> list[Any]:
        if self._store.jobs > 1:
            self._store.keep_all(self._section, self._contents, pieces)
        return super().many(pieces)


def defaults(family: str) -> str:
    """Digest of the default settings of a family's methods and of the environments they run on."""
    methods = {name: asdict(FAMILIES[family](**row)) for name, row in registry.algorithms(family).items()}
    ours = {
        name: row for name, row in registry.rows("env").items() if row.get("tabular", False) == (family == "tabular")
    }
    text = json.dumps([methods, ours], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(data: Any) -> Any:
    """As it will be read back, so that a first run and a resumed one see the same."""
    return json.loads(json.dumps(data))
