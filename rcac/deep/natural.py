"""The natural-gradient step: along −H⁻¹g, as long as the KL radius δ allows.

    H = F + damping·I     F = E_s[ JᵀMJ ], J the Jacobian of the actor's outputs, M the distribution's own Fisher matrix
    x = −√(2δ / gᵀH⁻¹g) · H⁻¹g          since  KL(π_old‖π) ≈ ½ xᵀFx

H is never formed: conjugate gradient needs only products H v, and a product costs one pass forwards and one backwards.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.forward import ActorShape
from rcac.deep.passes import Pass
from rcac.deep.update import Taken, Task, chosen_advantage, finite, line_search

Product = Callable[[Tensor], Tensor]


def fisher_product(shape: ActorShape, here: Pass, damping: float) -> Product:
    """v (R, P) ↦ (F + damping·I) v, row by row, with F the mean Fisher matrix over the states of an actor's pass."""
    outputs = here.outputs[0]

    def product(v: Tensor) -> Tensor:
        slopes = networks.fisher_metric(shape, outputs, here.forward(v)) / outputs.shape[1]
        return here.backward(slopes).add_(v, alpha=damping)

    return product


def score_product(
    shape: ActorShape, parameters: Tensor, observations: Tensor, actions: Tensor
) -> tuple[Product, Product]:
    """v (P,) ↦ Ψv (B,) and u (B,) ↦ Ψᵀu (P,), where row b of Ψ is ∇log π(a_b|s_b)."""
    here = networks.actor_pass(shape, parameters, observations)
    score = networks.score(shape, here.outputs[0], actions)
    return lambda v: (score * here.forward(v[None])[0]).sum(dim=0), lambda u: here.backward((score * u)[None])[0]


def conjugate_gradient(product: Product, target: Tensor, iterations: int) -> Tensor:
    """x with H x = target, H symmetric positive definite; for each row of a target (R, P), all at once."""
    tiny = torch.finfo(target.dtype).tiny  # a row whose residual is zero stays as it is
    x = torch.zeros_like(target)
    residual, direction = target.clone(), target
    square = _dot(residual, residual)
    for _ in range(iterations):
        image = product(direction)
        length = square / _dot(direction, image).clamp_(min=tiny)
        x.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1.0)
        new = _dot(residual, residual)
        direction = torch.addcmul(residual, new / square.clamp_(min=tiny), direction)
        square = new
    return x


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb of each row (…, 1)."""
    return (a * b).sum(dim=-1, keepdim=True)


def fisher_of(task: Task, here: Pass) -> Product:
    """The damped Fisher product of a task, over a subsample of the states of its pass."""
    count, limit = len(task.batch.observations), task.settings.fisher_states
    if 0 < limit < count:
        columns = torch.from_numpy(task.rng.choice(count, limit, replace=False)).to(here.outputs.device)
        here = here.among(columns)
    return fisher_product(task.shape, here, task.settings.damping)


def natural_step(task: Task) -> Taken:
    settings, batch, shape = task.settings, task.batch, task.shape
    radius = settings.kl_radius * task.rate
    here = networks.actor_pass(shape, task.parameters, batch.observations)
    old = here.outputs[0]
    # ∇π/π_old = ∇log π at θ_old
    slope = networks.score(shape, old, batch.actions) * chosen_advantage(task)
    if settings.entropy:
        slope -= settings.entropy * networks.entropy_slope(shape, old)
    gradient = finite(here.backward(slope[None] / len(batch.actions)), "the actor's gradient")  # (1, P)
    product = fisher_of(task, here)
    if task.directions is None:
        solution = conjugate_gradient(product, gradient, settings.cg_iterations)
    else:
        solution = task.directions[task.chosen][None]
    curvature = _dot(solution, product(solution))
    step = -torch.sqrt(2 * radius / curvature) * solution
    return line_search(task, step[0], old, radius, accept=lambda new: True)
