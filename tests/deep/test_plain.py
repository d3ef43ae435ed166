"""Passes without a graph are those of autograd."""

import numpy as np
import pytest
import torch
from deep.small_actors import KINDS, small
from torch import nn

from rcac.deep.critics import Critics
from rcac.deep.networks import StandardBody
from rcac.deep.plain import Pass, PlainJacobian, Stack, plain_jacobian
from rcac.deep.settings import DeepSettings
from rcac.deep.steps.base import Flat
from rcac.deep.steps.fisher import Jacobian
from rcac.deep.tanh import Tanh

PLAIN = [kind for kind in KINDS if isinstance(small(kind)[0].body, StandardBody) and small(kind)[0].body.plain]


def test_what_is_plain():
    assert {"mlp", "history", "multi", "bernoulli", "gaussian", "dependent", "squashed"} <= set(PLAIN)
    assert not {"relu_norm", "cnn", "custom", "attention"} & set(PLAIN)
    assert all((plain_jacobian(small(kind)[0], small(kind)[2]) is not None) == (kind in PLAIN) for kind in KINDS)
    actor, _, rows = small("mlp")
    actor.head.bias.requires_grad_(False)  # not trained as a whole
    assert plain_jacobian(actor, rows) is None


@pytest.mark.parametrize("kind", PLAIN)
def test_products_with_the_jacobian(kind):
    actor, law, rows = small(kind, 5)
    fast, graph = plain_jacobian(actor, rows), Jacobian(actor(rows), Flat(actor))
    assert isinstance(fast, PlainJacobian)
    torch.testing.assert_close(fast.outputs, graph.outputs.detach())
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(3, sum(Flat(actor).sizes), generator=generator, dtype=rows.dtype)
    u = torch.randn(3, 5, law.outputs, generator=generator, dtype=rows.dtype)
    torch.testing.assert_close(fast.times(v), graph.times(v))
    torch.testing.assert_close(fast.transposed_times(u), graph.transposed_times(u))


@pytest.mark.parametrize("activation", [Tanh, nn.ReLU])
@pytest.mark.parametrize("joined_at", [-1, 0, 1, 2])
def test_gradients_of_a_stack_with_inputs_that_are_joined(activation, joined_at):
    torch.manual_seed(0)
    wide = [3 + 2 * (joined_at == 0), 4 + 2 * (joined_at == 1), 5 + 2 * (joined_at == 2)]
    layers = [nn.Linear(wide[0], 4), activation(), nn.Linear(wide[1], 5), activation(), nn.Linear(wide[2], 2)]
    stack = Stack([layer.double() for layer in layers], joined_at)
    rows, joined = torch.randn(6, 3).double(), torch.randn(6, 2).double()
    hidden, number = rows, 0
    for layer in layers:
        if isinstance(layer, nn.Linear):
            hidden = torch.cat([hidden, joined], dim=1) if number == joined_at else hidden
            number += 1
        hidden = layer(hidden)
    u = torch.randn(6, 2).double()
    expected = torch.autograd.grad(hidden, stack.parameters, u)
    passed = Pass(stack, rows, joined)
    torch.testing.assert_close(passed.outputs, hidden.detach())
    for found, wanted in zip(passed.transposed_times(u), expected, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("chosen", [[0, 1], [1]])
def test_critics_are_fitted_as_by_autograd(context, chosen, monkeypatch):
    """The history's rows are of several parts; two passes over minibatches of unequal size."""
    actor, _, rows = small("history", 50)
    rows = rows.float()

    def fitted(graph: bool) -> tuple[np.ndarray, list[torch.Tensor]]:
        rng = np.random.default_rng(0)
        pre = actor.preprocess.float()
        bodies = [StandardBody(pre.inputs, pre.structured, [6, 4], "tanh", False) for _ in range(2)]
        torch.manual_seed(0)
        for body in bodies:
            for p in body.parameters():
                nn.init.normal_(p, 0.0, 0.5)
        critics = Critics(pre, bodies, rng, context)
        critics.rescale(np.array([2.0, 0.5]))
        if graph:
            monkeypatch.setattr(critics, "_stacks", lambda chosen: None)
        optimizer = torch.optim.Adam(critics.parameters(), lr=1e-2)
        settings = DeepSettings(critic_epochs=2, critic_batch=32)
        targets = torch.from_numpy(rng.normal(size=(2, 50)).astype(np.float32))
        contexts = torch.from_numpy(rng.normal(size=(50, context)).astype(np.float32)) if context else None
        losses = critics.fit(optimizer, rows, targets, chosen, settings, np.random.default_rng(1), contexts)
        return losses, [p.detach().clone() for p in critics.parameters()]

    (fast, weights), (slow, others) = fitted(False), fitted(True)
    np.testing.assert_allclose(fast, slow, rtol=1e-5)
    assert (fast > 0).tolist() == [n in chosen for n in range(2)]
    for one, other in zip(weights, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
