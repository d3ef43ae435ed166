"""Passes through a plain stack without a graph: linear layers, with tanh or ReLU between them.

    h_0 = x,    z_l = h_{l−1} W_lᵀ + b_l,    h_l = act(z_l),    outputs = z_L
    backwards   u_L = u,    ∂W_l = u_lᵀ h_{l−1},    ∂b_l = Σ u_l,    u_{l−1} = (u_l W_l) ∘ act'(z_{l−1})        Jᵀu
    forwards    t_l = act'(z_l) ∘ ( t_{l−1} W_lᵀ + h_{l−1} V_lᵀ + v_l )                                          J v

A short cut on CPUs, where for small networks a graph costs more than the arithmetic. Every other module goes by autograd,
and gives the same up to rounding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rcac.deep.networks import Actor, StandardBody

Gradients = list[Tensor]  # of W_1, b_1, …, W_L, b_L


class Stack:
    """Layers in order. What is `joined` to the inputs of a layer (contexts) comes in there, behind them."""

    def __init__(self, modules: Sequence[nn.Module], joined_at: int = -1) -> None:
        self.linear = [module for module in modules if isinstance(module, nn.Linear)]
        self.activations: list[nn.Module | None] = [None] * len(self.linear)
        self.joined_at = joined_at  # a layer's number, or −1
        at = -1
        for module in modules:
            if isinstance(module, nn.Linear):
                at += 1
            else:
                self.activations[at] = module

    @property
    def parameters(self) -> list[Tensor]:
        return [p for layer in self.linear for p in (layer.weight, layer.bias)]


class Pass:
    """A pass forward at rows x (B, d), and what products with its Jacobian need."""

    def __init__(self, stack: Stack, rows: Tensor, joined: Tensor | None = None) -> None:
        self.stack = stack
        self.weights = [layer.weight.detach() for layer in stack.linear]
        self.inputs: list[Tensor] = []  # h_0 … h_{L−1}, with what is joined to them
        self.slopes: list[Tensor | None] = []  # act'(z_l)
        hidden = rows
        for number, (layer, activation) in enumerate(zip(stack.linear, stack.activations, strict=True)):
            if number == stack.joined_at and joined is not None:
                hidden = torch.cat([hidden, joined], dim=1)
            self.inputs.append(hidden)
            hidden = torch.addmm(layer.bias.detach(), hidden, self.weights[number].T)
            if isinstance(activation, nn.Tanh):
                array = hidden.numpy()
                np.tanh(array, out=array)
                self.slopes.append(1.0 - hidden * hidden)
            elif activation is not None:
                hidden.relu_()
                self.slopes.append((hidden > 0).to(hidden.dtype))
            else:
                self.slopes.append(None)
        self.outputs = hidden  # (B, o)

    def transposed_times(self, u: Tensor) -> Gradients:
        """Jᵀu for u (B, o)."""
        found: Gradients = []
        for number in reversed(range(len(self.weights))):
            slope = self.slopes[number]
            if slope is not None:
                u = u[:, : slope.shape[1]] * slope
            found += [u.sum(dim=0), u.T @ self.inputs[number]]
            if number:
                u = u @ self.weights[number]
        return found[::-1]

    def times(self, v: Sequence[Tensor]) -> Tensor:
        """J v (B, o) for a change v of W_1, b_1, …, W_L, b_L."""
        tangent: Tensor | None = None
        for number, (weight, slope) in enumerate(zip(self.weights, self.slopes, strict=True)):
            grown = torch.addmm(v[2 * number + 1], self.inputs[number], v[2 * number].T)
            if tangent is not None:
                grown.addmm_(tangent, weight[:, : tangent.shape[1]].T)
            tangent = grown if slope is None else grown.mul_(slope)
        assert tangent is not None
        return tangent


class PlainJacobian:
    """A `rcac.deep.steps.fisher.Jacobian` of a plain actor's outputs in its parameters."""

    def __init__(self, actor: Actor, stack: Stack, rows: Tensor) -> None:
        with torch.no_grad():
            self.passed = Pass(stack, joined_inputs(actor, rows))
            self.outputs = self.passed.outputs  # (B, o)
            self.tail = (
                0 if actor.log_std is None else len(actor.log_std)
            )  # outputs that are parameters, the first ones
            if actor.log_std is not None:
                self.outputs = torch.cat([self.outputs, actor.log_std.expand(len(rows), -1)], dim=1)
        self.shapes = [p.shape for p in stack.parameters]
        self.sizes = [p.numel() for p in stack.parameters]

    def transposed_times(self, u: Tensor) -> Tensor:
        """Jᵀu (R, P) for u (R, B, o)."""
        rows = []
        for slopes in u:
            own = slopes.shape[1] - self.tail
            parts = [slopes[:, own:].sum(dim=0)] if self.tail else []
            parts += [part.flatten() for part in self.passed.transposed_times(slopes[:, :own])]
            rows.append(torch.cat(parts))
        return torch.stack(rows)

    def times(self, v: Tensor) -> Tensor:
        """J v (R, B, o) for v (R, P)."""
        rows = []
        for change in v:
            parts = change[self.tail :].split(self.sizes)
            tangent = self.passed.times([part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)])
            if self.tail:
                tangent = torch.cat([tangent, change[: self.tail].expand(len(tangent), -1)], dim=1)
            rows.append(tangent)
        return torch.stack(rows)


def joined_inputs(module: nn.Module, rows: Tensor) -> Tensor:
    """What a plain body is given for rows (B, d), its parts side by side."""
    inputs = module.preprocess(rows)  # type: ignore[operator]
    parts = inputs.values() if isinstance(inputs, dict) else [inputs]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def is_plain(body: nn.Module) -> bool:
    """Linear layers with tanh or ReLU between them, on a CPU."""
    return isinstance(body, StandardBody) and body.plain and all(p.device.type == "cpu" for p in body.parameters())


def plain_jacobian(actor: nn.Module, rows: Tensor) -> PlainJacobian | None:
    """Of an actor that is plain and trained as a whole."""
    if not isinstance(actor, Actor) or not is_plain(actor.body) or not all(p.requires_grad for p in actor.parameters()):
        return None
    return PlainJacobian(actor, Stack([*actor.body.joint.layers, actor.head]), rows)  # type: ignore[union-attr, misc]
