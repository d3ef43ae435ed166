"""The short cut against torch's own tanh: values, slopes, and slopes of slopes, of several rows at once."""

import torch

from rcac.deep.tanh import Tanh


def _derivatives(function):
    x = torch.linspace(-20, 20, 4001).reshape(-1, 1).requires_grad_()
    y = function(x)
    u = torch.stack([torch.ones_like(x), torch.sin(x.detach())]).requires_grad_()
    slopes = torch.stack([torch.autograd.grad(y, x, row, create_graph=True)[0] for row in u])
    batched = torch.autograd.grad(y, x, u.detach(), is_grads_batched=True, retain_graph=True)[0]
    second = torch.autograd.grad(slopes.square().sum(), [x, u])
    return [y, slopes, batched, *second]


def test_tanh_and_its_derivatives_are_torchs():
    for ours, theirs in zip(_derivatives(Tanh()), _derivatives(torch.tanh), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_other_types_and_traces_take_torchs_own():
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    assert torch.equal(Tanh()(x), torch.tanh(x))
    traced = torch.jit.trace(Tanh(), x.float())
    assert "aten::tanh" in str(traced.graph)
