"""Advantages by regression on the compatible features (the paper's way): the weights are natural directions.

    ω_n = argmin over ω   E[ ( ωᵀ∇log π(a|s) − δ_n(s,a) )² ] + damping·‖ω‖²        δ_n the robust one-step error
    A_n(s,a) = ω_nᵀ∇log π(a|s)

The normal equations (ΨᵀΨ/B + damping·I) ω = Ψᵀδ/B are F̂ω = ĝ, with F̂ the sampled Fisher matrix and ĝ the gradient.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rcac.deep.forward import ActorShape
from rcac.deep.natural import conjugate_gradient, score_product


class Fit(NamedTuple):
    advantages: Tensor  # (K, B)
    directions: Tensor  # ω (K, P)


def regress(
    shape: ActorShape,
    parameters: Tensor,
    observations: Tensor,
    actions: Tensor,
    errors: Tensor,
    damping: float,
    iterations: int,
) -> Fit:
    """Fit errors δ (K, B)."""
    forward, backward = score_product(shape, parameters, observations, actions)
    count = len(observations)

    def product(v: Tensor) -> Tensor:
        return backward(forward(v)) / count + damping * v

    directions = torch.stack([conjugate_gradient(product, backward(e) / count, iterations) for e in errors])
    return Fit(torch.stack([forward(w) for w in directions]), directions)
