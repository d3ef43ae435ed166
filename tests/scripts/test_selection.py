"""Fewer runs of a section: what was made for another selection is not made again."""

import json

import pytest

from rcac.errors import InputError
from reproduction import command
from reproduction.section import Section
from reproduction.store import Store


def test_runs_of_another_selection_are_kept(tmp_path):
    made = []

    def compute(settings, cache):
        pieces = {
            f"{m} {k}": lambda m=m, k=k: made.append((m, k)) or k
            for k in range(settings["seeds"])
            for m in settings["methods"]
        }
        return {"runs": cache.compute_all(pieces)}

    section = Section("s", "", "", "deep", {}, compute, str, dict, list, ("seeds", "methods"))
    store, settings = Store(tmp_path), {"seeds": 1, "methods": ["a", "b"], "steps": 5}
    assert store.compute(section, settings | {"methods": ["a"]}) == {"runs": [0]}
    assert store.compute(section, settings | {"seeds": 2}) == {"runs": [0, 0, 1, 1]}
    assert made == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert store.result(section, settings) is None  # not asked for in this selection
    assert store.compute(section, settings) == {"runs": [0, 0]}
    assert len(made) == 4
    store.compute(section, settings | {"steps": 6})
    assert len(made) == 6  # another setting is another study
    assert list(json.loads(store.path(section).read_text())["pieces"]) == ["a 0", "b 0"]


def test_a_selection_is_given_in_words():
    request = command._read(["robust", "seeds=2", "methods=robust_sqp,randomised", "jobs=2"])
    assert request.selection == {"seeds": 2, "methods": ["robust_sqp", "randomised"]}
    for words, message in {
        "robust seeds=0": "seeds: '0' given, a whole number ≥ 1",
        "robust methods=x": "methods: 'x' given, some of robust_sqp",
        "river_swim seeds=2": "seeds: given, but river_swim has none",
    }.items():
        with pytest.raises(InputError, match=message):
            command._read(words.split())
