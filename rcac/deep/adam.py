"""Adam on the rows of one tensor (K, P), each with its own count of steps: a row left out stays exactly as it was.

m ← β₁m + (1−β₁)g        v ← β₂v + (1−β₂)g²        θ ← θ − α m̂ / (√v̂ + ε),        m̂ = m/(1−β₁ᵗ),  v̂ = v/(1−β₂ᵗ)
"""

import math

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class Adam:
    def __init__(self, parameters: Tensor) -> None:
        self.mean = torch.zeros_like(parameters)  # m (K, P)
        self.square = torch.zeros_like(parameters)  # v (K, P)
        self.count = [0] * len(parameters)  # t of each row

    def step(self, parameters: Tensor, gradient: Tensor, rate: float, rows: slice = slice(None)) -> None:
        """Move `rows` of `parameters` in place."""
        g, mean, square = gradient[rows], self.mean[rows], self.square[rows]
        self.count[rows] = [t + 1 for t in self.count[rows]]
        # Both corrections in two numbers a row: m·length/(√v + ε·root),  root = √(1−β₂ᵗ),  length = α·root/(1−β₁ᵗ)
        roots = [math.sqrt(1 - BETA2**t) for t in self.count[rows]]
        lengths = [rate * root / (1 - BETA1**t) for root, t in zip(roots, self.count[rows], strict=True)]
        length, root = torch.tensor([lengths, roots], dtype=g.dtype, device=g.device).unsqueeze(2).unbind()  # (R, 1)
        mean.lerp_(g, 1 - BETA1)
        square.lerp_(g * g, 1 - BETA2)
        parameters[rows].addcdiv_(mean * length, square.sqrt().add_(root, alpha=EPSILON), value=-1.0)

    def tensors(self) -> dict[str, Tensor]:
        count = torch.tensor(self.count, dtype=self.mean.dtype, device=self.mean.device)[:, None]
        return {"mean": self.mean, "square": self.square, "count": count}

    def load(self, tensors: dict[str, Tensor]) -> None:
        self.mean, self.square = tensors["mean"], tensors["square"]
        self.count = [int(t) for t in tensors["count"]]
