"""Adam on the rows of one tensor (K, P), each with its own count of steps: a row left out stays exactly as it was.

m ← β₁m + (1−β₁)g        v ← β₂v + (1−β₂)g²        θ ← θ − α m̂ / (√v̂ + ε)
"""

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    def __init__(self, parameters: Tensor) -> None:
        self.mean = torch.zeros_like(parameters)  # m (K, P)
        self.square = torch.zeros_like(parameters)  # v (K, P)
        self.count = torch.zeros(len(parameters), 1, dtype=parameters.dtype, device=parameters.device)

    def step(self, parameters: Tensor, gradient: Tensor, rate: float, rows: slice = slice(None)) -> None:
        """Move `rows` of `parameters` in place."""
        g, mean, square, count = gradient[rows], self.mean[rows], self.square[rows], self.count[rows]
        count += 1
        mean.lerp_(g, 1 - BETA1)
        square.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        root = (square / (1 - BETA2**count)).sqrt_().add_(EPSILON)
        parameters[rows].addcdiv_(mean * (rate / (1 - BETA1**count)), root, value=-1.0)

    def tensors(self) -> dict[str, Tensor]:
        return {"mean": self.mean, "square": self.square, "count": self.count}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.mean, self.square, self.count = tensors["mean"], tensors["square"], tensors["count"]
