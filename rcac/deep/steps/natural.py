"""The natural-gradient step: along −H⁻¹g, as long as the KL radius δ allows.

H = F + damping·I     F = E_s[ JᵀMJ ], see `rcac.deep.steps.fisher`
x = −√(2δ / gᵀH⁻¹g) · H⁻¹g          since  KL(π_old‖π) ≈ ½ xᵀFx
"""

import torch
from torch import Tensor

from rcac.deep.steps.base import ActorStepInputs, ActorUpdate, finite, line_search, mixture, weighted_advantage
from rcac.deep.steps.fisher import conjugate_gradient, damped_fisher, dot, gradients, jacobian_of


def natural_step(inputs: ActorStepInputs) -> ActorUpdate:
    settings, batch, law = inputs.settings, inputs.batch, inputs.distribution
    radius = settings.kl_radius * inputs.rate
    advantage = weighted_advantage(inputs)
    jacobian = jacobian_of(inputs.actor, batch.observations)

    def loss(outputs: Tensor) -> Tensor:
        found = law.log_prob(outputs, batch.actions) * advantage  # ∇π/π_old = ∇log π at θ_old
        return found - settings.entropy * law.entropy(outputs) if settings.entropy else found

    gradient = finite(gradients(jacobian, loss) / len(advantage), "the actor's gradient")  # (1, P)
    product = damped_fisher(inputs)
    if inputs.directions is None:
        solution = conjugate_gradient(product, gradient, settings.cg_iterations)
    else:
        solution = (mixture(inputs) @ inputs.directions)[None]
    step = -torch.sqrt(2 * radius / dot(solution, product(solution))) * solution
    return line_search(inputs, step[0], jacobian.outputs.detach(), radius, accept=lambda new: True)
