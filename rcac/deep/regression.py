"""Advantages by regression on the compatible features (the paper's way): the weights are natural directions.

    ω_n = argmin over ω   E[ ( ωᵀ∇log π(a|s) − δ_n(s,a) )² ] + damping·‖ω‖²        δ_n the robust one-step error
    A_n(s,a) = ω_nᵀ∇log π(a|s)

The normal equations (ΨᵀΨ/B + damping·I) ω = Ψᵀδ/B are F̂ω = ĝ, with F̂ the sampled Fisher matrix and ĝ the gradient;
row b of Ψ is ∇log π(a_b|s_b).
"""

from typing import NamedTuple

from torch import Tensor, nn

from rcac.deep.distributions import Distribution
from rcac.deep.steps.base import Flat
from rcac.deep.steps.fisher import Jacobian, conjugate_gradient, outputs_to_differentiate


class Fit(NamedTuple):
    advantages: Tensor  # (K, B)
    directions: Tensor  # ω (K, P)


def regress(
    actor: nn.Module,
    law: Distribution,
    observations: Tensor,
    actions: Tensor,
    errors: Tensor,
    damping: float,
    iterations: int,
) -> Fit:
    """Fit errors δ (K, B)."""
    scores = Jacobian(law.log_prob(outputs_to_differentiate(actor, observations), actions), Flat(actor))  # Ψ
    count = len(observations)

    def product(v: Tensor) -> Tensor:
        return scores.transposed_times(scores.times(v)) / count + damping * v

    directions = conjugate_gradient(product, scores.transposed_times(errors) / count, iterations)
    return Fit(scores.times(directions), directions)
