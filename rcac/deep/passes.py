"""Passes through K small tanh networks of one shape, and the derivatives of their outputs, written out.

    h_0 = x        h_l = tanh(W_lᵀh_{l−1} + b_l)        z = W_Lᵀh_{L−1} + b_L        J the Jacobian of z in the parameters
    J v     ḣ_l = (1 − h_l²)(Ẇ_lᵀh_{l−1} + ḃ_l + W_lᵀḣ_{l−1})                          forwards
    Jᵀu     Ẇ_l = h_{l−1}u_lᵀ,   ḃ_l = Σ u_l,   u_{l−1} = (1 − h_{l−1}²)(W_l u_l)       backwards

For networks this small that takes half of autograd's time. The samples of a batch are columns: products with few
outputs, and sums over the outputs, are then several times faster than with rows.
"""

from itertools import pairwise

import torch
from torch import Tensor

from rcac.deep.forward import pieces

Layers = list[tuple[Tensor, Tensor]]  # W (K, in, out) and b (K, out, 1) of each layer


class Networks:
    """K networks, rows of parameters (K, P): views, which follow what is done to them in place. The last `tail`
    parameters are outputs that do not depend on the inputs."""

    def __init__(self, parameters: Tensor, sizes: tuple[int, ...], tail: int = 0) -> None:
        self.sizes, self.tail = sizes, tail
        self.layers, self.constant = self.unpack(parameters)  # constant (K, tail)

    def unpack(self, parameters: Tensor) -> tuple[Layers, Tensor]:
        *parts, tail = parameters.split([*pieces(self.sizes), self.tail], dim=1)
        weights = [part.unflatten(1, shape) for part, shape in zip(parts[::2], pairwise(self.sizes), strict=True)]
        return list(zip(weights, (part.unsqueeze(2) for part in parts[1::2]), strict=True)), tail

    def at(self, inputs: Tensor) -> "Pass":
        """On inputs (B, in)."""
        values = [inputs.T.expand(len(self.constant), -1, -1)]
        for weight, bias in self.layers[:-1]:
            # tanh(z) = 2 sigmoid(2z) − 1, on a CPU twice as fast as torch.tanh and as exact as numbers near one can be
            hidden = torch.baddbmm(bias, weight.mT, values[-1], beta=2, alpha=2)
            values.append(hidden.sigmoid_().mul_(2.0).sub_(1.0))
        weight, bias = self.layers[-1]
        outputs = torch.baddbmm(bias, weight.mT, values[-1])
        if self.tail:
            outputs = torch.cat([outputs, self.constant.unsqueeze(2).expand(-1, -1, len(inputs))], dim=1)
        return Pass(self, values, outputs)


def _times_slope(u: Tensor, tanh: Tensor) -> Tensor:
    """u (1 − tanh²), in place: what is in the cache already need not be fetched, nor memory be found."""
    return torch.ops.aten.tanh_backward.grad_input(u, tanh, grad_input=u)


class Pass:
    """K networks at B inputs. The products below are for R rows at once: R = K, or any R if K = 1."""

    def __init__(self, networks: Networks, values: list[Tensor], outputs: Tensor) -> None:
        self.networks = networks
        self.values = values  # x, h_1, … (K, width, B)
        self.outputs = outputs  # (K, out, B)

    def among(self, columns: Tensor) -> "Pass":
        """The same at some of the inputs."""
        return Pass(self.networks, [value[:, :, columns] for value in self.values], self.outputs[:, :, columns])

    def forward(self, v: Tensor) -> Tensor:
        """J v (R, out, B) for v (R, P)."""
        rows = len(v)
        changes, tail = self.networks.unpack(v)
        moved = self.values[0]  # the inputs do not move: not read
        for index, ((weight, _), (change, bias)) in enumerate(zip(self.networks.layers, changes, strict=True)):
            total = torch.baddbmm(bias, change.mT, self.values[index].expand(rows, -1, -1))
            if index:
                total.baddbmm_(weight.mT.expand(rows, -1, -1), _times_slope(moved, self.values[index]))
            moved = total
        if self.networks.tail:
            moved = torch.cat([moved, tail.unsqueeze(2).expand(-1, -1, moved.shape[2])], dim=1)
        return moved

    def backward(self, u: Tensor) -> Tensor:
        """Jᵀu (R, P) for u (R, out, B)."""
        rows, outputs = len(u), self.networks.sizes[-1]
        parts = [u[:, outputs:].sum(dim=2)]
        u = u[:, :outputs]
        for index in reversed(range(len(self.values))):
            parts += [u.sum(dim=2), torch.bmm(self.values[index].expand(rows, -1, -1), u.mT).flatten(1)]
            if index:
                weight, _ = self.networks.layers[index]
                u = _times_slope(torch.bmm(weight.expand(rows, -1, -1), u), self.values[index])
        return torch.cat(parts[::-1], dim=1)
