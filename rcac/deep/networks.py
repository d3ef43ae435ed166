"""Actor and critics: a body that turns an observation into features, and a linear head on them.

    actor     outputs(s) = W h(s) + b            what describes the action's distribution
    critics   V_n(s) = k_n·z_n(s),  z_n = w_nᵀh_n(s) + b_n         k_n a positive scale, so that z_n is of order one

A body is any module with an `out_features`, a width. It is given the observation in the structure of its space: a tensor
(B, …), or a dict of them for a Dict (keys of nested spaces joined by a dot), a Tuple (keys "0", "1", …) or a history.
Vectors arrive normalised, images as floats with channels first, discrete values one-hot.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Tuple
from torch import Tensor, nn

from rcac.deep.custom import Inputs, make_body
from rcac.deep.distributions import Distribution, Gaussian
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Encoder, History
from rcac.deep.tanh import Tanh
from rcac.errors import InputError

CLIP = 10.0  # a normalised observation further out than this many stds is held there
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}
ACTOR_GAIN, CRITIC_GAIN = 0.01, 1e-3  # of the heads at first: nearly the same action and value everywhere
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride: for images of at least 36 × 36
SMALL = ((32, 3, 2), (64, 3, 2))

Body = nn.Module  # with `out_features`
BodyMaker = Callable[["Preprocess"], Body]  # from what prepares its inputs


class Input(NamedTuple):
    """One part of what a body is given."""

    shape: tuple[int, ...]  # batch axis left out
    kind: str  # vector | image | one_hot | bits


class Preprocess(nn.Module):
    """Rows of numbers (B, d), see `rcac.deep.spaces`, as a network takes them. The moments are set from outside."""

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder, history: History) -> None:
        super().__init__()
        self.leaves, self.history = encoder.leaves, history
        self.structured = isinstance(encoder.space, Dict | Tuple)
        self.register_buffer("mean", torch.zeros(len(encoder.continuous)))
        self.register_buffer("std", torch.ones(len(encoder.continuous)))
        self.alone = len(self.leaves) == 1 and history.length == 1
        self.names = [leaf.key or "observation" for leaf in self.leaves]
        for name in (taken := [*self.names, *(["actions"] if history.length > 1 else [])]):
            if taken.count(name) > 1:
                raise InputError(f"observation space: {name!r} given as the key of two parts, a key for each expected")

    @property
    def inputs(self) -> dict[str, "Input"]:
        """What a body is given, by key, in the order of a row."""
        k, found = self.history.length, {}
        for name, leaf in zip(self.names, self.leaves, strict=True):
            shape = leaf.shape if k == 1 else (k, *leaf.shape)
            if k > 1 and leaf.kind == "image":
                shape = (k * leaf.shape[0], *leaf.shape[1:])
            found[name] = Input(shape, leaf.kind)
        if k > 1:
            found["actions"] = Input((k - 1, self.history.action), "vector")
        return found

    @property
    def space(self) -> Any:
        """Of what a body is given."""
        ends = {"vector": (-np.inf, np.inf)}
        parts: dict[str, Any] = {
            key: Box(*ends.get(kind, (0.0, 1.0)), shape, np.float32) for key, (shape, kind) in self.inputs.items()
        }
        return next(iter(parts.values())) if self.alone else Dict(parts)

    def set_moments(self, mean: np.ndarray, std: np.ndarray) -> None:
        for buffer, values in ((self.mean, mean), (self.std, std)):
            buffer.copy_(torch.from_numpy(values).to(buffer.device))

    def forward(self, rows: Tensor) -> Inputs:
        k, frame = self.history.length, self.history.frame
        frames = rows if k == 1 else rows[:, : k * frame].unflatten(1, (k, frame))
        parts, first = {}, 0
        for name, leaf in zip(self.names, self.leaves, strict=True):
            part = frames[..., leaf.start : leaf.start + leaf.size] if len(self.leaves) > 1 else frames
            if leaf.kind == "vector":
                mean, std = self.mean[first : first + leaf.size], self.std[first : first + leaf.size]
                part = ((part.to(mean.dtype) - mean) / std).clamp(-CLIP, CLIP)
                first += leaf.size
            parts[name] = self._image(leaf, part) if leaf.kind == "image" else part.unflatten(-1, leaf.shape)
        if k > 1:
            parts["actions"] = rows[:, k * frame :].unflatten(1, (k - 1, self.history.action))
        return next(iter(parts.values())) if self.alone else parts

    def _image(self, leaf: Any, part: Tensor) -> Tensor:
        """(B, k·C, H, W) in [0, 1] where the ends are known."""
        low, high = float(leaf.space.low.min()), float(leaf.space.high.max())
        image = part.unflatten(-1, leaf.space.shape).to(self.mean.dtype)
        if math.isfinite(high - low):
            image = (image - low) / (high - low) if low else image / high
        if len(leaf.space.shape) == 2:
            image = image.unsqueeze(-3)
        elif leaf.channels_last:
            image = image.movedim(-1, -3)
        return image if image.ndim == 4 else image.flatten(1, 2)


class MLP(nn.Module):
    """Linear layers, each followed by LayerNorm if asked for, and the activation."""

    def __init__(self, inputs: int, widths: list[int], activation: str = "tanh", layer_norm: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.out_features = inputs
        for width in widths:
            layers += [nn.Linear(self.out_features, width), *([nn.LayerNorm(width)] if layer_norm else [])]
            layers.append(ACTIVATIONS[activation]())
            self.out_features = width
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs.flatten(1))


class Convolutions(nn.Module):
    """Features of images (C, H, W): the network of the Atari papers, or a smaller one for small images."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        large = min(shape[1:]) >= 36
        layers: list[nn.Module] = []
        channels, size = shape[0], shape[1:]
        for width, kernel, stride in NATURE if large else SMALL:
            padding = 0 if large else kernel // 2
            layers += [nn.Conv2d(channels, width, kernel, stride, padding), nn.ReLU()]
            channels, size = width, tuple((n + 2 * padding - kernel) // stride + 1 for n in size)
        self.layers = nn.Sequential(*layers)
        self.out_features = channels * math.prod(size)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).flatten(1)


class StandardBody(nn.Module):
    """Ours: an MLP for vectors; convolutions for images, then an MLP; for several keys a body each, joined by an MLP."""

    def __init__(
        self, inputs: dict[str, Input], by_key: bool, widths: list[int], activation: str, layer_norm: bool
    ) -> None:
        super().__init__()
        self.keys = list(inputs)
        self.bodies, total = nn.ModuleList(), 0
        if by_key or any(kind == "image" for _, kind in inputs.values()):
            own = widths[:1] if len(inputs) > 1 else []
            for shape, kind in inputs.values():
                body = Convolutions(shape) if kind == "image" else MLP(math.prod(shape), own, activation, layer_norm)
                self.bodies.append(body)
                total += body.out_features
        else:  # the parts are joined as they are
            total = sum(math.prod(shape) for shape, _ in inputs.values())
        self.joint = MLP(total, widths, activation, layer_norm)
        self.out_features = self.joint.out_features

    @property
    def plain(self) -> bool:
        """Only linear layers with tanh or ReLU between them."""
        kinds = (nn.Linear, nn.Tanh, nn.ReLU)
        return not self.bodies and all(isinstance(layer, kinds) for layer in self.joint.layers)

    def forward(self, inputs: Inputs) -> Tensor:
        parts = [inputs[key] for key in self.keys] if isinstance(inputs, dict) else [inputs]
        if self.bodies:
            parts = [body(part) for body, part in zip(self.bodies, parts, strict=True)]
        flat = [part.flatten(1) for part in parts]
        return self.joint(flat[0] if len(flat) == 1 else torch.cat(flat, dim=1))


class Actor(nn.Module):
    """Outputs (B, o) for rows (B, d)."""

    def __init__(
        self,
        preprocess: Preprocess,
        body: Body,
        distribution: Distribution,
        rng: np.random.Generator,
        log_std: float,
        std_of_state: bool,
    ) -> None:
        super().__init__()
        self.preprocess, self.body = preprocess, body
        tail = distribution.count if isinstance(distribution, Gaussian) and not std_of_state else 0
        self.head = linear_head(body, distribution.outputs - tail, ACTOR_GAIN, rng)
        if isinstance(distribution, Gaussian) and std_of_state:
            with torch.no_grad():
                self.head.bias[distribution.count :] = log_std
        # A log std that does not depend on the state: outputs that are parameters
        self.log_std = nn.Parameter(torch.full((tail,), log_std)) if tail else None

    def forward(self, rows: Tensor) -> Tensor:
        outputs = self.head(self.body(self.preprocess(rows)))
        if self.log_std is not None:
            outputs = torch.cat([outputs, self.log_std.expand(outputs.shape[0], -1)], dim=1)
        return outputs


def linear_head(body: Body, outputs: int, gain: float, rng: np.random.Generator) -> nn.Linear:
    head = nn.Linear(cast(int, body.out_features), outputs)
    orthogonal_(head, gain, rng)
    return head


# First weights


def orthogonal_(module: nn.Module, gain: float, rng: np.random.Generator) -> None:
    """Orthogonal weights and zero biases in every linear and convolutional layer, drawn from our own generator."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            b, a = len(layer.weight), layer.weight[0].numel()  # outputs, inputs
            q, r = np.linalg.qr(rng.standard_normal((max(a, b), min(a, b))))
            q = q * np.sign(np.diagonal(r))
            weight = gain * (q if a >= b else q.T)  # (in, out)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight.T.copy()).view_as(layer.weight))
                if layer.bias is not None:
                    layer.bias.zero_()


# Building


def body_maker(settings: DeepSettings, widths: list[int], rng: np.random.Generator, custom: Any) -> BodyMaker:
    """Ours, or the user's: see `rcac.deep.custom`."""

    def ours(pre: Preprocess) -> Body:
        body = StandardBody(pre.inputs, pre.structured, widths, settings.activation, settings.layer_norm)
        orthogonal_(body, math.sqrt(2.0), rng)
        return body

    def theirs(pre: Preprocess) -> Body:
        return make_body(custom, pre.space, int(rng.integers(2**63 - 1)))

    return ours if custom is None else theirs
