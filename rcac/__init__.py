"""rcac: robust constrained reinforcement learning, tabular and deep.

Importing it registers our environments with Gymnasium; everything else is loaded when first used.
"""

from typing import TYPE_CHECKING

from rcac.envs import register_envs
from rcac.lazy import lazy

if TYPE_CHECKING:
    from rcac.api import certify as certify
    from rcac.api import evaluate_policy as evaluate_policy
    from rcac.api import train as train
    from rcac.contexts import Parameters as Parameters
    from rcac.errors import Infeasible as Infeasible
    from rcac.errors import InputError as InputError
    from rcac.evaluation import Evaluation as Evaluation
    from rcac.evaluation import evaluate as evaluate
    from rcac.policies.policy import load_policy as load_policy
    from rcac.problem import RCMDP as RCMDP
    from rcac.registry import register_algo as register_algo
    from rcac.registry import register_cost as register_cost
    from rcac.registry import register_logger as register_logger
    from rcac.registry import register_network as register_network
    from rcac.registry import register_step as register_step
    from rcac.registry import register_switch as register_switch
    from rcac.registry import register_uncertainty as register_uncertainty
    from rcac.tabular.bounds import nominal_optimum as nominal_optimum
    from rcac.tabular.bounds import robust_value_iteration as robust_value_iteration
    from rcac.tabular.solve import solve as solve
    from rcac.uncertainty.parametric import parametric as parametric

__version__ = "0.2.0"
__all__, __getattr__, __dir__ = lazy(
    "rcac",
    {
        "api": "certify evaluate_policy train",
        "contexts": "Parameters",
        "errors": "Infeasible InputError",
        "evaluation": "Evaluation evaluate",
        "policies.policy": "load_policy",
        "problem": "RCMDP",
        "registry": "register_algo register_cost register_logger register_network register_step register_switch "
        "register_uncertainty",
        "tabular.bounds": "nominal_optimum robust_value_iteration",
        "tabular.solve": "solve",
        "uncertainty.parametric": "parametric",
    },
)

register_envs()
