"""Every public name says what it takes, what it returns, and shows an example that runs."""

import doctest
import inspect
from importlib import import_module

import pytest

import rcac
import rcac.uncertainty

SETS = [name for name in rcac.uncertainty.__all__ if name not in ("InexactWarning", "WorstCase")]
PUBLIC = {name: getattr(rcac, name) for name in rcac.__all__} | {name: getattr(rcac.uncertainty, name) for name in SETS}
HOMES = sorted({inspect.getmodule(thing).__name__ for thing in PUBLIC.values()} - {"rcac.api"})  # see test_api


def named(function) -> set[str]:
    """Its parameters, but for those that only collect others."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.kind not in collecting} - {"self", "cls"}


@pytest.mark.parametrize("name", rcac.__all__)
def test_public_names_are_documented(name):
    thing = getattr(rcac, name)
    text = inspect.getdoc(thing)
    assert ">>> " in text
    if inspect.isfunction(thing):
        known = [p.name for p in inspect.signature(thing).parameters.values()]
        for part in ("Parameters\n---", "Returns\n---"):
            assert part in text
        described = text.partition("Parameters\n---")[2].partition("\nReturns\n---")[0]
        assert all(parameter in described for parameter in known)


@pytest.mark.parametrize("name", SETS)
def test_sets_describe_every_parameter_and_have_an_example(name):
    text = inspect.getdoc(PUBLIC[name])
    described = text.partition("Parameters\n---")[2].partition("\nExamples\n---")[0]
    assert {parameter for parameter in named(PUBLIC[name]) if f"{parameter} : " not in described} == set()
    assert ">>> " in text


CLASSES = [
    name for name, thing in PUBLIC.items() if inspect.isclass(thing) and (name in rcac.__all__ or name == "Uncertainty")
]


@pytest.mark.parametrize("name", CLASSES)
def test_public_methods_name_every_parameter(name):
    for key, member in vars(PUBLIC[name]).items():
        function = getattr(member, "__func__", member)
        if not key.startswith("_") and inspect.isfunction(function):
            text = inspect.getdoc(function) or ""
            missing = {p for p in named(function) if p.rstrip("s") not in text}
            assert not missing, f"{name}.{key}"


@pytest.mark.parametrize("name", [name for name in rcac.__all__ if inspect.isclass(getattr(rcac, name))])
def test_public_methods_are_documented(name):
    for key, member in vars(getattr(rcac, name)).items():
        if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod | property)):
            assert inspect.getdoc(member) or isinstance(member, property), f"{name}.{key}"


@pytest.mark.parametrize("module", HOMES)
def test_examples_run(module):
    assert doctest.testmod(import_module(module)).failed == 0
