"""Exported graphs for every kind of space: actions as the policy's, in the environment's own type."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector.utils import batch_space

from rcac.deep import build, resume
from rcac.deep.export import Exported, export
from rcac.deep.policy import DeepBackend
from rcac.deep.settings import DeepSettings
from rcac.learner import State

VECTOR, CHOICE = Box(-1, 1, (2,), np.float64), Discrete(3)
ENDS = np.array([-1, -np.inf, 0], np.float32), np.array([1, np.inf, np.inf], np.float32)
NESTED = Dict({"a": Dict({"b": Box(-1, 1, (2,)), "c": Tuple([Discrete(2), Box(0, 255, (12, 12, 1), np.uint8)])})})


def made(observation, action):
    """The arrays and the card of an actor whose outputs are not near zero."""
    settings = DeepSettings(actor_hidden=[4], critic_hidden=[4])
    between = build.interface(observation, action, settings)
    actor = build.networks(between, settings, 1, np.random.default_rng(0)).actor
    with torch.no_grad():
        actor.head.weight.mul_(100.0)
    return State(resume.module_arrays(actor), build.card(between, settings, None))


def parts(space, batch):
    """The leaves of a batch, in the order of the space."""
    if isinstance(space, Dict | Tuple):
        keys = space.spaces if isinstance(space, Dict) else range(len(space.spaces))
        return [leaf for key in keys for leaf in parts(space[key], batch[key])]
    return [torch.from_numpy(batch)]


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        (VECTOR, Discrete(2, start=4)),
        (VECTOR, MultiDiscrete([[2, 3], [2, 2]], start=[[1, 0], [5, 0]])),
        (VECTOR, MultiBinary((2, 2))),
        (VECTOR, Box(*ENDS)),
        (VECTOR, Box(-2, 3, (2, 2), np.float64)),
        (VECTOR, Box(-1, 1, ())),
        (Box(-1, 1, ()), CHOICE),
        (Box(0, 9, (3,), np.int64), CHOICE),
        (Box(0, 255, (5,), np.uint8), CHOICE),
        (Box(0, 255, (16, 16), np.uint8), CHOICE),
        (MultiDiscrete([[2, 3], [2, 2]]), CHOICE),
        (MultiBinary((2, 3)), CHOICE),
        (NESTED, CHOICE),
    ],
)
def test_a_graph_acts_as_the_policy_does(observation, action):
    state = made(observation, action)
    backend, graph = DeepBackend(state), Exported(*build.actor_from_card(state.data, state.tensors)).eval()
    batch = batch_space(observation, 6)
    batch.seed(0)
    seen = batch.sample()
    expected, _ = backend.choose(seen, None, None, None)
    with torch.no_grad():
        found, outputs = (x.numpy() for x in graph(*parts(observation, seen)))
    assert (found.dtype, found.shape) == (action.dtype, (6, *action.shape))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(outputs, axis=0).max() > 1e-3  # not the same everywhere
    np.testing.assert_allclose(outputs, backend.outputs(backend._rows(seen, None, None)), rtol=1e-4, atol=1e-5)


def test_inputs_of_similar_keys_have_names_of_their_own(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    space = Dict({"a_b": Box(-1, 1, (1,)), "a": Dict({"b": Box(-1, 1, (2,))})})
    path = export(made(space, CHOICE), tmp_path / "policy.onnx")
    names = [each.name for each in onnxruntime.InferenceSession(path).get_inputs()]
    assert sorted(names) == ["a.b", "a_b"]
