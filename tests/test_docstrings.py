"""Every public name says what it takes, what it returns, and shows an example that runs."""

import doctest
import inspect
from importlib import import_module

import pytest

import rcac

HOMES = sorted(
    {inspect.getmodule(getattr(rcac, name)).__name__ for name in rcac.__all__} - {"rcac.api"}
)  # see test_api


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


@pytest.mark.parametrize("name", [name for name in rcac.__all__ if inspect.isclass(getattr(rcac, name))])
def test_public_methods_are_documented(name):
    for key, member in vars(getattr(rcac, name)).items():
        if not key.startswith("_") and (inspect.isfunction(member) or isinstance(member, classmethod | property)):
            assert inspect.getdoc(member) or isinstance(member, property), f"{name}.{key}"


@pytest.mark.parametrize("module", HOMES)
def test_examples_run(module):
    assert doctest.testmod(import_module(module)).failed == 0
