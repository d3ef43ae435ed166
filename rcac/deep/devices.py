"""What torch has to compute with."""

import torch


def describe() -> str:
    """One line: threads, and graphics cards."""
    cards = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return f"devices: cpu, {torch.get_num_threads()} threads of torch; cuda: {', '.join(cards) or 'none'}"
