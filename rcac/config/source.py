"""What Hydra composes beside the files of `conf/`: the types of every key, and what is registered in code.

    schema/train                      the keys beside the groups
    schema/env/<env>                  `Env`
    schema/algo/<env>/<algo>          the settings of the algorithm's family, with the environment's `deep` defaults
    schema/uncertainty/<set>          the parameters of the set
    schema/end/<algo>/<set>           deep methods have no set of kernels
    algo/<name>, uncertainty/<name>   registered in code or offered by a package

`conf/train.yaml` merges each schema under the file that it types.
"""

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import hydra
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import MISSING, DictConfig, OmegaConf

from rcac import registry
from rcac.config import schema
from rcac.config.ray import store_launcher

GROUPS = ("env", "algo", "uncertainty")
FILES = "pkg://rcac.conf"


class RegistrySource(ConfigSource):
    """`rcac://`, lazy: an algorithm of another package is loaded when it is chosen."""

    @staticmethod
    def scheme() -> str:
        return "rcac"

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path.strip("/") in (
            "",
            "schema",
            "algo",
            "uncertainty",
            *(f"schema/{g}" for g in (*GROUPS, "end")),
        )

    def is_config(self, config_path: str) -> bool:
        head, _, name = config_path.removesuffix(".yaml").partition("/")
        return (head == "schema" and bool(name) and not self.is_group(config_path)) or name in self._names(head)

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        groups = ["schema", "algo", "uncertainty"] if config_path == "" else []
        if results_filter == ObjectType.GROUP:
            return groups
        return sorted(self._names(config_path)) + (groups if results_filter is None else [])

    def _names(self, group: str) -> set[str]:
        names = {"algo": registry.algorithm_names, "uncertainty": registry.uncertainty_names}.get(group, list)()
        return set(names) - set(registry.rows(group)) if names else set()

    def load_config(self, config_path: str) -> ConfigResult:
        head, _, name = config_path.removesuffix(".yaml").partition("/")
        if not self.is_config(config_path):
            raise ConfigLoadError(f"{config_path} not found")
        node = _schema(*name.split("/")) if head == "schema" else _registered(head, name)
        return ConfigResult(self.provider, f"rcac://{self.path}", node, {"package": None})


def _registered(group: str, name: str) -> DictConfig:
    return OmegaConf.create(registry.algorithm_row(name) if group == "algo" else {"name": name})


def _schema(group: str, *names: str) -> DictConfig:
    match group, *names:
        case ("train",):
            return OmegaConf.structured(schema.Top)
        case "env", env:
            node = _filled(schema.ComposedEnv, {"name": env, **registry.rows("env").get(env, {})})
            if not registry.rows("env").get(env, {}).get("kwargs"):
                OmegaConf.set_struct(node.kwargs, False)  # the arguments of any environment
            return node
        case "algo", env, algo if algo in registry.algorithm_names():
            return _algo_schema(env, algo, registry.algorithm_row(algo))
        case "uncertainty", name if name in registry.uncertainty_names():
            typed = schema.set_schema(registry.uncertainty_set(name), name)
            return _filled(typed, registry.rows("uncertainty").get(name, {}))
        case "end", algo, chosen:
            row = registry.algorithm_row(algo) if algo in registry.algorithm_names() else {}
            deep = {"uncertainty": None} if row.get("family") == "deep" and chosen not in registry.DEEP_SETS else {}
            return OmegaConf.create({"env": {"deep": None}, **deep})  # an environment's are in `algo` by now
    # for a file that Hydra finds elsewhere, whose keys are checked later
    node = OmegaConf.create({"name": names[-1]} if group == "algo" else {})
    OmegaConf.set_struct(node, False)
    return node


def typed(group: str, env: str, values: dict[str, Any]) -> DictConfig:
    """Likewise for an algorithm or a set whose file is not ours, from what the file says."""
    if group == "uncertainty":
        return _schema(group, registry.choose("uncertainty.name", values.get("name"), registry.uncertainty_names()))
    return _algo_schema(env, str(values.get("name")), values)


def _algo_schema(env: str, name: str, row: dict[str, Any]) -> DictConfig:
    usual = registry.rows("env").get(env, {}).get("deep", {}) if row.get("family") == "deep" else {}
    return _filled(schema.algo_schema(row, name), usual)


def _filled(typed: type, values: dict[str, Any]) -> DictConfig:
    """Values in their types; `???` marks one that has to be given (a merge would pass over it)."""
    node = OmegaConf.structured(typed)
    for key, value in values.items():
        if key != "defaults":
            node[key] = MISSING if value == MISSING else value
    return node


class RegistrySearchPath(SearchPathPlugin):
    """Puts the source behind `conf/`, where that is what Hydra reads."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if any(element.path == FILES for element in search_path.get_path()):
            search_path.append("rcac", "rcac://registry", anchor=SearchPathQuery(provider="main"))


@contextlib.contextmanager
def hydra_here() -> Iterator[None]:
    """Hydra's compose API on `conf/` and the source, also where Hydra runs already."""
    install()
    running = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_module("rcac.conf", version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().clear()
        if running is not None:
            GlobalHydra.instance().initialize(running)


def install() -> None:
    """Let Hydra know of these, in this process."""
    if importlib.util.find_spec("ray"):
        store_launcher()
    for plugin in (RegistrySource, RegistrySearchPath):
        Plugins.instance().register(plugin)
