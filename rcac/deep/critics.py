"""The critics: one per cost, fitted to robust targets by least squares.

    minimise  E[ (V_n(s) − y_n)² ] / k_n²          V_n = k_n·z_n,   k_n = rms(c_n)/(1−γ), the size a value may have

k_n follows the costs seen so far; when it changes the head is divided accordingly, so that no value jumps. Before
a cost was ever other than zero, its k and so its values are zero, and the first k leaves the weights as they are: nothing
depends on the unit of a cost.

Critics also see the context of an episode, where there is one (`rcac.deep.adversary`): a layer behind the body mixes its
features with the context.

    ‖w_n‖₂      last_layer: k_n times the head's weight          all: with every other parameter but the head's bias
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from rcac.deep.networks import CRITIC_GAIN, Body, Preprocess, linear_head, orthogonal_
from rcac.deep.plain import Pass, Stack, is_plain, joined_inputs
from rcac.deep.settings import DeepSettings
from rcac.deep.steps.base import CHUNK, finite, minibatches
from rcac.deep.tanh import Tanh


class Critics(nn.Module):
    """K of them: a body and a head each. Bodies may be one and the same."""

    scales: Tensor

    def __init__(
        self, preprocess: Preprocess, bodies: Iterable[Body], rng: np.random.Generator, context: int = 0
    ) -> None:
        """The head of a critic is drawn when its body has been made: an iterable of bodies is read one by one. `context`
        is how many numbers a context has."""
        super().__init__()
        self.preprocess = preprocess
        self.bodies, self.heads, self.mixers = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for body in bodies:
            self.bodies.append(body)
            head = linear_head(body, 1, CRITIC_GAIN, rng)
            self.heads.append(head)
            if context:
                width = head.in_features
                self.mixers.append(nn.Sequential(nn.Linear(width + context, width), Tanh()))
                orthogonal_(self.mixers[-1], 1.0, rng)
        self.register_buffer("scales", torch.zeros(len(self.heads), dtype=torch.float64))  # k (K,)

    def forward(self, rows: Tensor, contexts: Tensor | None = None, only: list[int] | None = None) -> Tensor:
        """z (K, B) at rows (B, d) in contexts (B, c), if there are any; of some critics, if asked for."""
        inputs, features, outputs = self.preprocess(rows), {}, []
        for n in range(len(self.heads)) if only is None else only:
            body = self.bodies[n]
            if body not in features:  # one that is shared is evaluated once
                features[body] = body(inputs)
            seen = features[body]
            if self.mixers and contexts is not None:
                seen = self.mixers[n](torch.cat([seen, contexts], dim=1))
            outputs.append(self.heads[n](seen).squeeze(1))
        return torch.stack(outputs)

    def values(self, rows: np.ndarray, contexts: np.ndarray | None = None) -> np.ndarray:
        """V (K, B) float64 at rows (B, d), in contexts (B, c) if there are any."""
        given = (torch.from_numpy(x).to(self.scales.device).split(CHUNK) for x in (rows, contexts) if x is not None)
        with torch.no_grad():
            parts = [self(*part) for part in zip(*given, strict=True)]
            return (torch.cat(parts, dim=1).double() * self.scales[:, None]).cpu().numpy()

    def rescale(self, scales: np.ndarray) -> None:
        """Let k (K,) be `scales`; values stay what they are, where k was not zero."""
        old = self.scales.cpu().numpy()
        ratio = np.divide(scales, old, out=np.ones(len(scales)), where=old > 0)
        with torch.no_grad():
            self.scales.copy_(torch.from_numpy(scales).to(self.scales.device))
            for head, r in zip(self.heads, ratio.tolist(), strict=True):
                for p in head.parameters():
                    p.div_(r)

    def norms(self, scope: str) -> np.ndarray:
        """‖w_n‖₂ (K,)."""
        with torch.no_grad():
            squares = (
                torch.cat([next(head.parameters()).double().square().sum(dim=1) for head in self.heads])
                * self.scales**2
            )
            if scope == "all":
                zero = torch.zeros_like(squares[0])
                squares = squares + torch.stack([_square(body, zero) for body in self.bodies])
                if self.mixers:
                    squares = squares + torch.stack([_square(mixer, zero) for mixer in self.mixers])
            return squares.sqrt().cpu().numpy()

    def fit(
        self,
        optimizer: torch.optim.Optimizer,
        rows: Tensor,
        targets: Tensor,
        chosen: list[int],
        settings: DeepSettings,
        rng: np.random.Generator,
        contexts: Tensor | None = None,
    ) -> np.ndarray:
        """Regress the chosen critics on targets (K, B): the mean scaled squared errors (K,) during the last pass."""
        scales = torch.where(self.scales > 0, self.scales, 1.0).to(targets.dtype)
        scaled = (targets / scales[:, None])[chosen].T.contiguous()
        stacks = self._stacks(chosen)
        inputs = joined_inputs(self, rows) if stacks else rows
        given = [inputs] if contexts is None else [inputs, contexts]
        losses = torch.zeros_like(scales[chosen])
        for _ in range(settings.critic_epochs):
            losses = torch.zeros_like(losses)
            for wanted, *states in minibatches(settings.critic_batch, rng, scaled, *given):
                optimizer.zero_grad()
                if stacks:
                    squares = squared_errors(stacks, wanted, *states)
                else:
                    squares = (self(*states, only=chosen) - wanted.T).square().sum(dim=1)
                    (squares.sum() / len(wanted)).backward()
                optimizer.step()
                losses += squares.detach()
        finite(torch.cat([p.detach().flatten() for p in self.parameters()]), "a critic's gradient")
        found = np.zeros(len(scales))
        found[chosen] = losses.cpu().numpy() / len(rows)
        return found

    def _stacks(self, chosen: list[int]) -> list[Stack] | None:
        """Critics whose passes need no graph, if all are such."""
        if len(set(self.bodies)) < len(self.bodies) or not all(is_plain(body) for body in self.bodies):
            return None
        found = []
        for n in chosen:
            layers = self.bodies[n].joint.layers  # type: ignore[union-attr]
            if self.mixers:
                joined_at = sum(isinstance(layer, nn.Linear) for layer in layers)  # type: ignore[union-attr]
                found.append(Stack([*layers, *self.mixers[n], self.heads[n]], joined_at))  # type: ignore
            else:
                found.append(Stack([*layers, self.heads[n]]))  # type: ignore
        return found


def squared_errors(stacks: list[Stack], wanted: Tensor, rows: Tensor, contexts: Tensor | None = None) -> Tensor:
    """(K,) sums over a minibatch with targets (B, K); the gradients of their mean are put where autograd puts them."""
    sums = []
    for stack, column in zip(stacks, wanted.unbind(dim=1), strict=True):
        passed = Pass(stack, rows, contexts)
        errors = passed.outputs - column[:, None]
        for p, gradient in zip(stack.parameters, passed.transposed_times(errors * (2.0 / len(wanted))), strict=True):
            p.grad = gradient
        sums.append(errors.square().sum())
    return torch.stack(sums)


def _square(body: Body, zero: Tensor) -> Tensor:
    # [zero] for a body without parameters
    return torch.stack([p.double().square().sum() for p in body.parameters()] or [zero]).sum()
