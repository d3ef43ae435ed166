"""How the actor moves: one file for each step, and what they share."""

from collections.abc import Callable

from rcac import registry
from rcac.deep.steps.base import ActorStepInputs, ActorUpdate
from rcac.deep.steps.gradient import gradient_step
from rcac.deep.steps.natural import natural_step
from rcac.deep.steps.sqp import sqp_step

ActorStep = Callable[[ActorStepInputs], ActorUpdate]
OURS: dict[str, ActorStep] = {"gradient": gradient_step, "natural": natural_step, "sqp": sqp_step}


def actor_step(name: str) -> ActorStep:
    return OURS[name] if name in OURS else registry.steps.get(name)
