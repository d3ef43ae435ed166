"""Products with a network's Jacobian and Fisher matrix, by autograd, for any module.

    J = ∂ outputs / ∂ θ                Jᵀu     one pass backwards
    g(u) = Jᵀu is linear in u, so     J v     is a pass backwards through g: (∂g/∂u)ᵀ v
    F = E_s[ JᵀMJ ]                   M the distribution's own Fisher matrix, see `rcac.deep.distributions`

F is never formed: conjugate gradient needs only products F v.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from rcac.deep.distributions import Distribution
from rcac.deep.plain import PlainJacobian, plain_jacobian
from rcac.deep.steps.base import ActorStepInputs, Flat
from rcac.errors import InputError

Product = Callable[[Tensor], Tensor]


class Jacobian:
    """Of `outputs`, any shape, in the parameters of a module. Products are for R rows at once."""

    def __init__(self, outputs: Tensor, parameters: Flat) -> None:
        self.outputs, self.parameters = outputs, parameters
        self._u = torch.zeros_like(outputs, requires_grad=True)
        self._transposed: tuple[Tensor, ...] | None = None  # g(u), its graph kept

    def transposed_times(self, u: Tensor) -> Tensor:
        """Jᵀu (R, P) for u (R, *outputs.shape)."""
        return self.parameters.join(_rows(self.outputs, self.parameters.tensors, [u]))

    def times(self, v: Tensor) -> Tensor:
        """J v (R, *outputs.shape) for v (R, P)."""
        try:
            if self._transposed is None:
                self._transposed = torch.autograd.grad(
                    self.outputs, self.parameters.tensors, self._u, create_graph=True, materialize_grads=True
                )
            return _rows(self._transposed, [self._u], self.parameters.split(v))[0]
        except RuntimeError as error:
            if "not implemented" not in str(error):
                raise
            raise InputError(
                f"network: a part without a second derivative given ({error}), one with it expected, or step gradient"
            ) from error


def _rows(outputs: Tensor | tuple[Tensor, ...], inputs: Sequence[Tensor], slopes: list[Tensor]) -> tuple[Tensor, ...]:
    """Slopes (R, …) of the outputs carried back to the inputs, (R, …) each."""
    rows = len(slopes[0])
    if rows == 1:
        found = torch.autograd.grad(outputs, inputs, [s[0] for s in slopes], retain_graph=True, materialize_grads=True)
        return tuple(part[None] for part in found)
    found = torch.autograd.grad(
        outputs, inputs, slopes, retain_graph=True, is_grads_batched=True, allow_unused=True
    )  # of an input that is not used: None
    return tuple(x.new_zeros(rows, *x.shape) if part is None else part for part, x in zip(found, inputs, strict=True))


def outputs_to_differentiate(actor: nn.Module, rows: Tensor) -> Tensor:
    """Outputs of which a `Jacobian` can be made: fused kernels for attention have no second derivative."""
    with sdpa_kernel(SDPBackend.MATH):
        return actor(rows)


def jacobian_of(actor: nn.Module, rows: Tensor) -> Jacobian | PlainJacobian:
    """Of the outputs (B, o) for rows (B, d), in all parameters."""
    return plain_jacobian(actor, rows) or Jacobian(outputs_to_differentiate(actor, rows), Flat(actor))


def gradients(
    jacobian: Jacobian | PlainJacobian, loss: Callable[[Tensor], Tensor], weights: Tensor | None = None
) -> Tensor:
    """(R, P) of Σ_b weights_rb·loss_b for weights (R, B), or of Σ_b loss_b alone, with loss (B,) of the outputs row by row."""
    outputs = jacobian.outputs.detach().requires_grad_()
    (slopes,) = torch.autograd.grad(loss(outputs).sum(), outputs)
    return jacobian.transposed_times(slopes[None] if weights is None else weights[:, :, None] * slopes)


def fisher_product(law: Distribution, jacobian: Jacobian | PlainJacobian, damping: float) -> Product:
    """v (R, P) ↦ (F + damping·I) v, row by row, with F the mean Fisher matrix over the outputs (B, o) of a pass."""
    outputs = jacobian.outputs.detach()

    def product(v: Tensor) -> Tensor:
        slopes = law.metric(outputs, jacobian.times(v)) / len(outputs)
        return jacobian.transposed_times(slopes).add_(v, alpha=damping)

    return product


def damped_fisher(inputs: ActorStepInputs) -> Product:
    """The damped Fisher product of a step, over a subsample of the batch's states."""
    states, limit = inputs.batch.observations, inputs.settings.fisher_states
    if 0 < limit < len(states):
        states = states[torch.from_numpy(inputs.rng.choice(len(states), limit, replace=False)).to(states.device)]
    return fisher_product(inputs.distribution, jacobian_of(inputs.actor, states), inputs.settings.damping)


def conjugate_gradient(product: Product, target: Tensor, iterations: int) -> Tensor:
    """x with H x = target, H symmetric positive definite; for each row of a target (R, P), all at once."""
    tiny = torch.finfo(target.dtype).tiny  # a row whose residual is zero stays as it is
    x = torch.zeros_like(target)
    residual, direction = target.clone(), target
    square = dot(residual, residual)
    for _ in range(iterations):
        image = product(direction)
        length = square / dot(direction, image).clamp_(min=tiny)
        x.addcmul_(length, direction)
        residual.addcmul_(length, image, value=-1.0)
        new = dot(residual, residual)
        direction = torch.addcmul(residual, new / square.clamp_(min=tiny), direction)
        square = new
    return x


def dot(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb of each row (…, 1)."""
    return (a * b).sum(dim=-1, keepdim=True)
