"""From Python arguments to the configuration of a run, with the defaults that the command line has."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from gymnasium.vector import VectorEnv

from rcac import registry
from rcac.contexts import Parameters
from rcac.errors import InputError
from rcac.labels import RESERVED
from rcac.runs import given
from rcac.runs.config import FAMILIES, Config, Env, checked, make_config


class Place(NamedTuple):
    """An environment's configuration, and what else its file or itself says."""

    env: Env
    deep: dict[str, Any]  # defaults of deep methods here
    num_envs: int | None  # None: as many as one likes


def describe_env(
    env: given.EnvGiven,
    budgets: Sequence[float] | Mapping[str, float] | None,
    cost: str | None,
    max_episode_steps: int | None,
    kwargs: Mapping[str, Any] | None,
    vectorization: str = "auto",
    cost_names: list[str] | None = None,
    failure_budget: float | None = None,
    preset: str | None = None,
) -> Place:
    if isinstance(budgets, Mapping):
        cost_names, budgets = _checked_names(list(budgets)), list(budgets.values())
    if isinstance(env, VectorEnv):
        _check_made(
            cost=cost, env_kwargs=kwargs or None, vectorization=None if vectorization == "auto" else vectorization
        )
    found = given.register(env, cost_names)
    rows = registry.rows("env")
    name = next((name for name, row in rows.items() if row.get("id") == found.id.rpartition(":")[2]), "gym")
    row: dict[str, Any] = rows[name] if name != "gym" else {"name": name}
    values = {key: value for key, value in row.items() if key not in ("deep", "defaults")}
    values |= {"id": found.id, "cost": cost, "cost_names": cost_names, "vectorization": vectorization}
    own = registry.preset(preset, "env", name).get("env", {})
    values["kwargs"] = {**row.get("kwargs", {}), **own.pop("kwargs", {}), **(kwargs or {})}
    values |= own
    limits = (max_episode_steps, found.max_episode_steps, row.get("max_episode_steps"))
    values["max_episode_steps"] = next((limit for limit in limits if limit is not None), None)
    if failure_budget is not None:
        values["failure_budget"] = failure_budget
    if budgets is not None:
        values["budgets"] = _numbers(budgets)
    return Place(Env(**checked(Env, values, "env.")), dict(row.get("deep", {})), found.num_envs)


def _check_made(**settings: Any) -> None:
    for name, value in settings.items():
        if value is not None:
            raise InputError(
                f"{name}: {value!r} given with a VectorEnv, which is made already; an id or a function expected"
            )


def _checked_names(names: list[Any]) -> list[str]:
    for name in names:
        if not isinstance(name, str) or not name or name.split(" ")[0] in RESERVED:
            raise InputError(f"budgets: {name!r} given, the name of a cost expected (not {', '.join(RESERVED)})")
    return names


def _numbers(budgets: Any) -> list[float]:
    try:
        return [float(budget) for budget in budgets]
    except (TypeError, ValueError) as error:
        raise InputError(f"budgets: {budgets!r} given, a number for each cost expected, like [25.0]") from error


def describe_run(
    place: Place,
    algo: str | None,
    uncertainty: Any,
    settings: dict[str, Any],
    *,
    preset: str | None = None,
    **rest: Any,
) -> Config:
    name = algo or ("rsqp" if place.env.tabular else "rcac_npg")
    row = registry.algorithm_row(registry.choose("algo", name, registry.algorithm_names()))
    family = FAMILIES[registry.choose("algo.family", row.get("family"), FAMILIES)]
    deep = row["family"] == "deep"
    here = registry.preset(preset, "env", place.env.name).get("algo", {})
    values = {**(place.deep if deep else {}), **row, **here, **registry.preset(preset, "algo", name), **settings}
    if deep and place.num_envs is not None:
        if settings.get("num_envs", place.num_envs) != place.num_envs:
            raise InputError(f"num_envs: {settings['num_envs']} given, {place.num_envs} expected, as env has")
        values["num_envs"] = place.num_envs
    algo_row = {**checked(family, values), "name": name}
    usual_set = registry.preset_set(preset) or "kl_ball"
    chosen = _deep_set(uncertainty, name) if deep else _set(uncertainty or usual_set, place.env, preset)
    usual = {key: value for key, value in registry.document("train").items() if key not in ("defaults", "hydra")}
    return make_config({**usual, "env": asdict(place.env), "algo": algo_row, "uncertainty": chosen, **rest})


def _deep_set(uncertainty: Any, algo: str) -> dict[str, Any] | None:
    """Likewise, for deep methods: a name, a row, a box of parameters or its ranges."""
    if uncertainty is None:
        return None
    if isinstance(uncertainty, Parameters):
        uncertainty = {"name": "parameters", **uncertainty.as_dict()}
    elif isinstance(uncertainty, Mapping) and "name" not in uncertainty:
        uncertainty = {"name": "parameters", **Parameters(uncertainty).as_dict()}
    row = {"name": uncertainty} if isinstance(uncertainty, str) else dict(uncertainty)
    if row["name"] not in registry.DEEP_SETS:
        able = ", ".join(registry.DEEP_SETS)
        raise InputError(f"uncertainty: {row['name']} given with {algo}, rcac.Parameters or one of {able} expected")
    usual = registry.rows("uncertainty")[row["name"]]
    for key in row.keys() - usual.keys() - {"name"}:
        raise InputError(f"uncertainty.{key}: no such key, known are {', '.join(usual)}")
    return {**usual, **row}


def _set(uncertainty: str | Mapping[str, Any], env: Env, preset: str | None) -> dict[str, Any]:
    """A row of the set's own defaults and of what is given."""
    chosen = {"name": uncertainty} if isinstance(uncertainty, str) else dict(uncertainty)
    name = registry.choose("uncertainty", chosen.get("name"), registry.uncertainty_names())
    usual = dict(registry.rows("uncertainty").get(name, {}))
    if usual.get("temperature") == "${env.temperature}":
        usual["temperature"] = env.temperature
    row = {**usual, **registry.preset(preset, "uncertainty", name), **chosen}
    for key, value in row.items():
        if value is None or value == "???":
            raise InputError(f"uncertainty.{key}: not given, it has no default")
    return row
