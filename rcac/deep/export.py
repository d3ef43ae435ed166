"""A policy as one graph that runs without this package: TorchScript (`.pt`) or ONNX (`.onnx`).

in     observations as the environment gives them, with a batch axis first: one input, or one for each key of a Dict (its
       name) or Tuple. With a history of k: k observations on a second axis, newest first (repeat the first one at an
       episode's beginning), and `actions` (B, k−1, a), newest first: one-hot, bits, or where in its range a number is
       (from −1 to 1); zero before the first.
out    `action`, the mode, as the environment takes it, and `outputs`, what describes the distribution: logits of
       choices or bits, or mean and log std of numbers in [−1, 1] before they are scaled (before tanh, if squashed)
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiDiscrete
from torch import Tensor, nn

from rcac.deep.build import Interface, actor_from_card
from rcac.deep.networks import Actor
from rcac.deep.spaces import Leaf
from rcac.errors import InputError
from rcac.learner import State


class Exported(nn.Module):
    low: Tensor  # of a Box, see `rcac.deep.spaces.Scale`
    high: Tensor
    centre: Tensor
    half_range: Tensor
    reach: Tensor

    def __init__(self, between: Interface, actor: Actor) -> None:
        super().__init__()
        self.encoder, self.history, self.actions = between
        self.actor = actor
        if self.actions.kind == "gaussian":
            for name, values in self.actions.scale._asdict().items():
                # `half` would hide a method of modules
                self.register_buffer(
                    name.replace("half", "half_range"), torch.tensor(values.astype(self.actions.space.dtype))
                )

    def names(self) -> list[str]:
        keys = [leaf.key or "observation" for leaf in self.encoder.leaves]
        names = [key.replace(".", "_") for key in keys]
        names = names if len(set(names)) == len(keys) else keys
        return [*names, "actions"] if self.history.length > 1 else names

    def examples(self, count: int) -> tuple[Tensor, ...]:
        """Observations of the space, to trace with."""
        k = self.history.length
        lead = (count,) if k == 1 else (count, k)
        found = []
        for leaf in self.encoder.leaves:
            flat = [np.asarray(leaf.space.sample()) for _ in range(int(np.prod(lead)))]
            found.append(torch.from_numpy(np.stack(flat)).unflatten(0, lead))
        return (*found, torch.zeros(count, k - 1, self.history.action)) if k > 1 else tuple(found)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        k, leading = self.history.length, 1 if self.history.length == 1 else 2
        parts = [self._encode(leaf, x, leading) for leaf, x in zip(self.encoder.leaves, inputs, strict=False)]
        rows = parts[0] if len(parts) == 1 else torch.cat([part.float() for part in parts], dim=-1)
        if k > 1:
            rows = torch.cat([rows.float().flatten(1), inputs[-1].flatten(1)], dim=1)
        outputs = self.actor(rows)
        return self._mode(outputs), outputs

    def _encode(self, leaf: Leaf, values: Tensor, leading: int) -> Tensor:
        space = leaf.space
        if leaf.kind != "one_hot":
            flat = values.flatten(leading) if values.ndim > leading else values.unsqueeze(-1)
            return flat if flat.dtype == torch.uint8 else flat.float()
        single = isinstance(space, Discrete)
        counts, starts = (
            ([int(space.n)], [int(space.start)])
            if single
            else (space.nvec.ravel().tolist(), space.start.ravel().tolist())
        )
        columns = values.unsqueeze(-1) if single else values.flatten(leading)
        parts = [
            (columns[..., j : j + 1] - start == torch.arange(count, device=values.device)).float()
            for j, (count, start) in enumerate(zip(counts, starts, strict=True))
        ]
        return torch.cat(parts, dim=-1)

    def _mode(self, outputs: Tensor) -> Tensor:
        space = self.actions.space
        if self.actions.choices:
            parts = [part.argmax(dim=1) for part in outputs.split(self.actions.choices, dim=1)]
            if isinstance(space, Discrete):
                return parts[0] + int(space.start)
            assert isinstance(space, MultiDiscrete)
            parts = [part + start for part, start in zip(parts, space.start.ravel().tolist(), strict=True)]
            return torch.stack(parts, dim=1).unflatten(1, space.shape)
        if self.actions.kind == "bernoulli":
            return (outputs > 0).to(torch.int8).unflatten(1, space.shape)
        mean = outputs[:, : self.actions.count]
        inside = (
            torch.tanh(mean) if self.actions.squash else torch.minimum(torch.maximum(mean, -self.reach), self.reach)
        )
        scaled = torch.minimum(torch.maximum(self.half_range * inside + self.centre, self.low), self.high)
        return scaled.to(self.low.dtype).reshape(-1, *space.shape)


def export(state: State, path: Path, network: Any = None) -> Path:
    """Write `path`, a .pt or an .onnx file."""
    if path.suffix not in (".pt", ".onnx"):
        raise InputError(f"path: {str(path)!r} given, a name that ends in .pt or .onnx expected")
    module = Exported(*actor_from_card(state.data, state.tensors, network)).eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    inputs = module.examples(3)
    if path.suffix == ".pt":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a format that is old, and wanted for that
            torch.jit.trace(module, inputs).save(str(path))
        return path
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"path: {str(path)!r} given, but onnx is not installed; pip install 'rcac[onnx]'") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it says for each graph that torchvision is not there
    batch = torch.export.Dim("batch")
    program = torch.onnx.export(
        module,
        inputs,
        input_names=module.names(),
        output_names=["action", "outputs"],
        dynamic_shapes=(tuple({0: batch} for _ in inputs),),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(str(path))
    return path
