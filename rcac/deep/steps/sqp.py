"""The SQP step: all costs at once in one KL trust region, by `rcac.deep.steps.trust_region`.

g_n = ∇J_n      x = −Σ w_n H⁻¹g_n,     w from the Gram matrix [ g_iᵀH⁻¹g_j ], the excesses and the KL radius

A gradient of few samples is mostly noise, along which a step seems to bring down what it was computed from, and nothing else.
With gradients a, b of two halves of the batch, g = (a + b)/2, the noise is d = (a − b)/2, and the share of the linear model's
promise that will be kept is

    s_n = ( g_nᵀH⁻¹g_n − d_nᵀH⁻¹d_n ) / g_nᵀH⁻¹g_n

so that a violated constraint asks for e_n / s_n: where the region cannot give that, violation alone is reduced.
"""

import numpy as np
import torch
from torch import Tensor

from rcac.deep.steps.base import ActorStepInputs, ActorUpdate, finite, line_search
from rcac.deep.steps.fisher import conjugate_gradient, damped_fisher, dot, gradients, jacobian_of
from rcac.deep.steps.trust_region import trust_region_step

LEAST = 0.01  # share


def kept_share(gradient: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """s (N,) from gᵀH⁻¹g and dᵀH⁻¹d (N,)."""
    return np.clip(1.0 - np.divide(noise, gradient, out=np.zeros_like(noise), where=gradient > 0), LEAST, 1.0)


def sqp_step(inputs: ActorStepInputs) -> ActorUpdate:
    settings, batch, law = inputs.settings, inputs.batch, inputs.distribution
    radius = settings.kl_radius * inputs.rate
    jacobian = jacobian_of(inputs.actor, batch.observations)
    old = jacobian.outputs.detach()
    old_logs = law.log_prob(old, batch.actions)
    centred = batch.advantages - batch.advantages.mean(dim=1, keepdim=True)
    # g_n = ∇J_n, not ∇L_n, since the excess is in the units of J_n
    slopes = centred * (inputs.steps / len(batch.actions))  # (K, B)
    product, excess = damped_fisher(inputs), inputs.excess
    if inputs.directions is None:
        halves = torch.ones_like(old_logs)
        halves[1::2] = -1.0
        noise = slopes[1:] * halves
        both = gradients(jacobian, lambda outputs: law.log_prob(outputs, batch.actions), torch.cat([slopes, noise]))
        solutions = conjugate_gradient(product, finite(both, "the actor's gradient"), settings.cg_iterations)
        lengths = dot(solutions, product(solutions))[:, 0].double().cpu().numpy()  # gᵀH⁻¹g, then dᵀH⁻¹d
        solutions = solutions[: len(slopes)]
        excess = np.where(excess > 0, excess / kept_share(lengths[1 : len(slopes)], lengths[len(slopes) :]), excess)
    else:
        solutions = inputs.directions * inputs.steps
    gram = (solutions @ product(solutions).T).double().cpu().numpy()
    step = trust_region_step((gram + gram.T) / 2, excess, radius)
    weights = torch.as_tensor(step.weights, dtype=solutions.dtype, device=solutions.device)
    units = np.sqrt(np.maximum(np.diagonal(gram)[1:], 1e-300))

    def worst(violations: np.ndarray) -> float:
        return float(np.max(violations / units, initial=0.0))

    def accept(new: Tensor) -> bool:
        """The surrogates agree: recovering, the largest violation does not grow, in the units in which the step compares them (a
        smaller one may, or two that pull apart would end all progress); else none does, nor the objective unless one is violated."""
        ratio = torch.exp(law.log_prob(new, batch.actions) - old_logs)
        change = ((ratio - 1) * centred).mean(dim=1).double().cpu().numpy() * inputs.steps  # (K,) of J_n, predicted
        if not np.isfinite(change).all():
            return False
        if step.recovery:
            return worst(excess + change[1:]) <= worst(excess)
        holds = bool(np.all(inputs.excess + change[1:] <= np.maximum(inputs.excess, 0.0) + 1e-9))
        violated = bool(np.any(inputs.excess > 0))
        return holds and (violated or bool(change[0] <= 0.0))

    return line_search(inputs, -(weights @ solutions), old, radius, accept, step.recovery)
