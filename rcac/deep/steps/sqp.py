"""The SQP step: all costs at once in one KL trust region, by `rcac.deep.steps.trust_region`.

g_n = ∇J_n      x = −Σ w_n H⁻¹g_n,     w from the Gram matrix [ g_iᵀH⁻¹g_j ], the excesses and the KL radius
"""

import numpy as np
import torch
from torch import Tensor

from rcac.deep.steps.base import ActorStepInputs, ActorUpdate, Flat, finite, line_search
from rcac.deep.steps.fisher import Jacobian, conjugate_gradient, damped_fisher
from rcac.deep.steps.trust_region import trust_region_step


def sqp_step(inputs: ActorStepInputs) -> ActorUpdate:
    settings, batch, law = inputs.settings, inputs.batch, inputs.distribution
    radius = settings.kl_radius * inputs.rate
    outputs = inputs.actor(batch.observations)
    old = outputs.detach()
    logs = law.log_prob(outputs, batch.actions)
    centred = batch.advantages - batch.advantages.mean(dim=1, keepdim=True)
    # g_n = ∇J_n, not ∇L_n, since the excess is in the units of J_n
    slopes = centred * (inputs.steps / len(batch.actions))  # (K, B)
    gradients = finite(Jacobian(logs, Flat(inputs.actor)).transposed_times(slopes), "the actor's gradient")  # (K, P)
    product = damped_fisher(inputs)
    if inputs.directions is None:
        solutions = conjugate_gradient(product, gradients, settings.cg_iterations)
    else:
        solutions = inputs.directions * inputs.steps
    gram = (solutions @ product(solutions).T).double().cpu().numpy()
    step = trust_region_step((gram + gram.T) / 2, inputs.excess, radius)
    weights = torch.as_tensor(step.weights, dtype=solutions.dtype, device=solutions.device)
    old_logs = logs.detach()

    def accept(new: Tensor) -> bool:
        """The surrogates agree: violations do not grow and, unless recovering, the objective does not either or a
        violation shrinks for it."""
        ratio = torch.exp(law.log_prob(new, batch.actions) - old_logs)
        change = ((ratio - 1) * centred).mean(dim=1).double().cpu().numpy() * inputs.steps  # (K,) of J_n, predicted
        if not np.isfinite(change).all():
            return False
        holds = bool(np.all(inputs.excess + change[1:] <= np.maximum(inputs.excess, 0.0) + 1e-9))
        violated = bool(np.any(inputs.excess > 0))
        return holds and (violated or bool(change[0] <= 0.0))

    return line_search(inputs, -(weights @ solutions), old, radius, accept, step.recovery)
