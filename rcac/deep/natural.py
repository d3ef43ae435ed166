"""The natural-gradient step: along −H⁻¹g, as long as the KL radius δ allows.

    H = F + damping·I     F = E_s[ JᵀMJ ], J the Jacobian of the actor's outputs, M the distribution's own Fisher matrix
    x = −√(2δ / gᵀH⁻¹g) · H⁻¹g          since  KL(π_old‖π) ≈ ½ xᵀFx

H is never formed: conjugate gradient needs only products H v, and a product costs two passes backwards.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.forward import ActorShape
from rcac.deep.update import Taken, Task, chosen_advantage, finite, line_search

Product = Callable[[Tensor], Tensor]


def jacobian_products(outputs: Tensor, parameters: Tensor) -> tuple[Product, Product]:
    """v (P,) ↦ J v, and u ↦ Jᵀu, for outputs of any shape; the first differentiates the second, linear in u."""
    probe = torch.zeros_like(outputs, requires_grad=True)
    (pulled,) = torch.autograd.grad(outputs, parameters, probe, create_graph=True)

    def forward(v: Tensor) -> Tensor:
        return torch.autograd.grad(pulled, probe, v, retain_graph=True)[0]

    def backward(u: Tensor) -> Tensor:
        return torch.autograd.grad(outputs, parameters, u, retain_graph=True)[0]

    return forward, backward


def fisher_product(shape: ActorShape, parameters: Tensor, observations: Tensor, damping: float) -> Product:
    """v (P,) ↦ (F + damping·I) v, with F the mean Fisher matrix over `observations` (B, d)."""
    leaf = parameters.detach().requires_grad_(True)
    outputs = networks.actor_outputs(shape, leaf, observations)
    forward, backward = jacobian_products(outputs, leaf)
    detached = outputs.detach()

    def product(v: Tensor) -> Tensor:
        return backward(networks.fisher_metric(shape, detached, forward(v))) / len(observations) + damping * v

    return product


def score_product(
    shape: ActorShape, parameters: Tensor, observations: Tensor, actions: Tensor
) -> tuple[Product, Product]:
    """v ↦ Ψv (B,) and u ↦ Ψᵀu (P,), where row b of Ψ is ∇log π(a_b|s_b)."""
    leaf = parameters.detach().requires_grad_(True)
    logs = networks.log_prob(shape, networks.actor_outputs(shape, leaf, observations), actions)
    return jacobian_products(logs, leaf)


def conjugate_gradient(product: Product, target: Tensor, iterations: int, tolerance: float = 1e-10) -> Tensor:
    """x with H x = target, H symmetric positive definite."""
    x = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    square = residual.dot(residual)
    limit = tolerance**2 * square
    for _ in range(iterations):
        if square <= limit:
            break
        image = product(direction)
        length = square / direction.dot(image)
        x = x + length * direction
        residual = residual - length * image
        new = residual.dot(residual)
        direction = residual + (new / square) * direction
        square = new
    return x


def fisher_of(task: Task) -> Product:
    """The damped Fisher product of a task, over a subsample of its states."""
    observations, limit = task.batch.observations, task.settings.fisher_states
    if 0 < limit < len(observations):
        rows = torch.from_numpy(task.rng.choice(len(observations), limit, replace=False)).to(observations.device)
        observations = observations[rows]
    return fisher_product(task.shape, task.parameters, observations, task.settings.damping)


def natural_step(task: Task) -> Taken:
    settings, batch, shape = task.settings, task.batch, task.shape
    radius = settings.kl_radius * task.rate
    leaf = task.parameters.detach().requires_grad_(True)
    outputs = networks.actor_outputs(shape, leaf, batch.observations)
    # ∇π/π_old = ∇log π at θ_old
    loss = (networks.log_prob(shape, outputs, batch.actions) * chosen_advantage(task)).mean()
    if settings.entropy:
        loss = loss - settings.entropy * networks.entropy(shape, outputs).mean()
    gradient = finite(torch.autograd.grad(loss, leaf)[0], "the actor's gradient")
    old = outputs.detach()
    product = fisher_of(task)
    if task.directions is None:
        solution = conjugate_gradient(product, gradient, settings.cg_iterations)
    else:
        solution = task.directions[task.chosen]
    curvature = solution.dot(product(solution))
    step = -torch.sqrt(2 * radius / curvature) * solution
    return line_search(task, step, old, radius, accept=lambda new: True)
