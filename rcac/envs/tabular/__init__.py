"""Tabular environments, and the rows that register them."""

from typing import Any

MAX_EPISODE_STEPS = 1000  # steps; what γ = .99 leaves of later ones is below 1e-4

_MODULES = {
    "RiverSwim": "river_swim",
    "Garnet": "garnet",
    "FrozenLake": "frozen_lake",
    "GarbageCollector": "garbage_collector",
}

ROWS: tuple[dict[str, Any], ...] = tuple(
    dict(
        id=f"rcac/{name}-v0",
        entry_point=f"rcac.envs.tabular.{module}:{name}",
        vector_entry_point=f"rcac.envs.tabular.{module}:vector",
        max_episode_steps=MAX_EPISODE_STEPS,
    )
    for name, module in _MODULES.items()
)
