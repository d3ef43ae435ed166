"""rcac: robust constrained reinforcement learning, tabular and deep.

Importing it registers our environments with Gymnasium; everything else is loaded when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rcac.envs import register_envs

if TYPE_CHECKING:
    from rcac.api import certify, evaluate_policy, train
    from rcac.contexts import Parameters
    from rcac.errors import Infeasible, InputError
    from rcac.evaluation import Evaluation, evaluate
    from rcac.policies.policy import load_policy
    from rcac.problem import RCMDP
    from rcac.registry import (
        register_algo,
        register_cost,
        register_logger,
        register_network,
        register_step,
        register_switch,
        register_uncertainty,
    )
    from rcac.tabular.bounds import nominal_optimum, robust_value_iteration
    from rcac.tabular.solve import solve
    from rcac.uncertainty.parametric import parametric

__version__ = "0.1.0"

_HOMES = {
    "RCMDP": "rcac.problem",
    "InputError": "rcac.errors",
    "Infeasible": "rcac.errors",
    "Evaluation": "rcac.evaluation",
    "evaluate": "rcac.evaluation",
    "nominal_optimum": "rcac.tabular.bounds",
    "robust_value_iteration": "rcac.tabular.bounds",
    "solve": "rcac.tabular.solve",
    "parametric": "rcac.uncertainty.parametric",
    "load_policy": "rcac.policies.policy",
    "train": "rcac.api",
    "certify": "rcac.api",
    "Parameters": "rcac.contexts",
    "evaluate_policy": "rcac.api",
    "register_algo": "rcac.registry",
    "register_cost": "rcac.registry",
    "register_logger": "rcac.registry",
    "register_network": "rcac.registry",
    "register_step": "rcac.registry",
    "register_switch": "rcac.registry",
    "register_uncertainty": "rcac.registry",
}
__all__ = [
    "RCMDP",
    "Evaluation",
    "Infeasible",
    "InputError",
    "Parameters",
    "certify",
    "evaluate",
    "evaluate_policy",
    "load_policy",
    "nominal_optimum",
    "parametric",
    "register_algo",
    "register_cost",
    "register_logger",
    "register_network",
    "register_step",
    "register_switch",
    "register_uncertainty",
    "robust_value_iteration",
    "solve",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rcac' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])


register_envs()
