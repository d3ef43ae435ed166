"""An actor's outputs for a few rows in NumPy, as an environment's step needs them.

A plain stack of linear layers with tanh or ReLU is copied into NumPy, where a small pass takes a third of torch's time.
That is a short cut, never the architecture: any other module is called as it is, on its own device.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from rcac.deep.networks import CLIP, Actor, StandardBody

Outputs = Callable[[np.ndarray], np.ndarray]  # rows (B, d) → outputs (B, o)


def outputs_of(actor: Actor) -> Outputs:
    """With the actor's present weights; what is done to them later may not be seen."""
    return _numpy_copy(actor) or _module(actor)


def _module(actor: Actor) -> Outputs:
    device = actor.head.weight.device

    def outputs(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return actor(torch.from_numpy(rows).to(device)).cpu().numpy()

    return outputs


def _numpy_copy(actor: Actor) -> Outputs | None:
    body, pre = actor.body, actor.preprocess
    if not (isinstance(body, StandardBody) and body.plain) or rows_are_bytes(actor):
        return None
    arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in actor.state_dict().items()}
    layers: list[tuple[np.ndarray, np.ndarray] | Callable] = []
    for index, layer in enumerate(body.joint.layers):
        if isinstance(layer, nn.Linear):
            name = f"body.joint.layers.{index}"
            layers.append((np.ascontiguousarray(arrays[f"{name}.weight"].T), arrays[f"{name}.bias"]))
        else:
            layers.append(np.tanh if isinstance(layer, nn.Tanh) else _relu)
    head, bias, tail = np.ascontiguousarray(arrays["head.weight"].T), arrays["head.bias"], arrays.get("log_std")
    # Of the numbers of a row, those that are normalised: mean 0 and std 1 leave the others alone, up to the clip
    k, frame, vectors = pre.history.length, pre.history.frame, [x for x in pre.leaves if x.kind == "vector"]
    mean, std = np.zeros(frame, np.float32), np.ones(frame, np.float32)
    for leaf in vectors:
        mean[leaf.start : leaf.start + leaf.size], std[leaf.start : leaf.start + leaf.size] = (
            arrays["preprocess.mean"],
            arrays["preprocess.std"],
        )
    mean, std = np.tile(mean, k), np.tile(std, k)

    def outputs(rows: np.ndarray) -> np.ndarray:
        hidden = rows
        if vectors:
            hidden = np.clip((rows[:, : k * frame] - mean) / std, -CLIP, CLIP)
            if k > 1:
                hidden = np.concatenate([hidden, rows[:, k * frame :]], axis=1)
        for layer in layers:
            if callable(layer):
                layer(hidden, out=hidden)
            else:
                hidden = hidden @ layer[0]
                hidden += layer[1]
        found = hidden @ head + bias
        return (
            found if tail is None else np.concatenate([found, np.broadcast_to(tail, (len(found), len(tail)))], axis=1)
        )

    return outputs


def rows_are_bytes(actor: Actor) -> bool:
    return actor.preprocess.history.length == 1 and all(x.space.dtype == np.uint8 for x in actor.preprocess.leaves)


def _relu(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0, out=out)
