"""tanh by NumPy, whose vectorised one takes a tenth of the time of torch's on a CPU.

A short cut for numbers in the memory of a CPU. Where a graph is traced or exported, on any other device and for any other
type it is torch's own; the two differ by rounding, and have the same derivatives.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class _Tanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.from_numpy(np.tanh(x.detach().numpy()))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(slopes, y)


class Tanh(nn.Tanh):
    def forward(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or x.dtype != torch.float32 or type(x) is not Tensor or _traced():
            return torch.tanh(x)
        return _Tanh.apply(x)


def _traced() -> bool:
    return torch.jit.is_tracing() or torch.compiler.is_compiling() or torch.compiler.is_exporting()
