"""What torch has to compute with, and how."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

SMALLEST = np.finfo(np.float32).tiny


@contextmanager
def without_denormals() -> Iterator[None]:
    """Numbers too small for a full mantissa (1e-38) are zero in here. The gradients of a critic whose cost has not shown yet
    shrink to such, and a CPU takes many times as long for each."""
    if SMALLEST / np.float32(2) == 0 or not torch.set_flush_denormal(True):  # so already, or not to be had
        yield
        return
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def describe() -> str:
    """One line: threads, and graphics cards."""
    cards = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return f"devices: cpu, {torch.get_num_threads()} threads of torch; cuda: {', '.join(cards) or 'none'}"
