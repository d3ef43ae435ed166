"""Numbers that are too small: zero where networks are trained, and nowhere else."""

import numpy as np
import torch

from rcac.deep.devices import SMALLEST, without_denormals


def _half() -> np.float32:
    return SMALLEST / np.float32(2)


def test_denormals_are_zero_inside_only():
    tiny = torch.full((8,), float(SMALLEST))
    assert _half() > 0
    assert bool((tiny / 2 > 0).all())
    with without_denormals():
        assert _half() == 0
        assert bool((tiny / 2 == 0).all())
        with without_denormals():  # inside another
            pass
        assert _half() == 0
    assert _half() > 0


def test_they_come_back_after_an_error():
    try:
        with without_denormals():
            raise FloatingPointError
    except FloatingPointError:
        pass
    assert _half() > 0
