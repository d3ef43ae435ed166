"""The natural-gradient step: along −H⁻¹g, as long as the KL radius δ allows.

H = F + damping·I     F = E_s[ JᵀMJ ], see `rcac.deep.steps.fisher`
x = −√(2δ / gᵀH⁻¹g) · H⁻¹g          since  KL(π_old‖π) ≈ ½ xᵀFx
"""

import torch

from rcac.deep.steps.base import ActorStepInputs, ActorUpdate, Flat, finite, line_search, mixture, weighted_advantage
from rcac.deep.steps.fisher import conjugate_gradient, damped_fisher, dot


def natural_step(inputs: ActorStepInputs) -> ActorUpdate:
    settings, batch, law = inputs.settings, inputs.batch, inputs.distribution
    radius = settings.kl_radius * inputs.rate
    parameters = Flat(inputs.actor)
    outputs = inputs.actor(batch.observations)
    loss = (law.log_prob(outputs, batch.actions) * weighted_advantage(inputs)).mean()  # ∇π/π_old = ∇log π at θ_old
    if settings.entropy:
        loss = loss - settings.entropy * law.entropy(outputs).mean()
    slopes = torch.autograd.grad(loss, parameters.tensors, materialize_grads=True)
    gradient = finite(parameters.join([slope[None] for slope in slopes]), "the actor's gradient")  # (1, P)
    product = damped_fisher(inputs)
    if inputs.directions is None:
        solution = conjugate_gradient(product, gradient, settings.cg_iterations)
    else:
        solution = (mixture(inputs) @ inputs.directions)[None]
    step = -torch.sqrt(2 * radius / dot(solution, product(solution))) * solution
    return line_search(inputs, step[0], outputs.detach(), radius, accept=lambda new: True)
