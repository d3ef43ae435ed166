"""The critics: one per cost, fitted to robust targets by least squares.

    minimise  E[ (V_n(s) − y_n)² ] / k_n²          V_n = k_n·z_n,   k_n = rms(c_n)/(1−γ), the size a value may have

k_n follows the costs seen so far; when it changes the last layer is divided accordingly, so that no value jumps. Before
a cost was ever other than zero, its k and so its values are zero, and the first k leaves the weights as they are: nothing
depends on the unit of a cost.
"""

import numpy as np
import torch
from torch import Tensor

from rcac.deep import networks
from rcac.deep.adam import Adam
from rcac.deep.passes import Networks
from rcac.deep.settings import DeepSettings
from rcac.deep.update import finite


class Critics:
    def __init__(self, parameters: Tensor, sizes: tuple[int, ...]) -> None:
        self.parameters = parameters  # (K, P)
        self.sizes = sizes
        self.scales = np.zeros(len(parameters))  # k (K,)
        self.adam = Adam(parameters)

    def rescale(self, scales: np.ndarray) -> None:
        """Let k (K,) be `scales`; values stay what they are, where k was not zero."""
        ratio = np.divide(scales, self.scales, out=np.ones(len(scales)), where=self.scales > 0)
        as_tensor = torch.as_tensor(ratio, dtype=self.parameters.dtype, device=self.parameters.device)
        self.parameters = networks.rescaled(self.parameters, self.sizes, as_tensor)
        self.scales = scales

    def values(self, observations: np.ndarray) -> np.ndarray:
        """V (K, B) at normalised observations (B, d)."""
        rows = torch.as_tensor(observations, dtype=self.parameters.dtype, device=self.parameters.device)
        return Networks(self.parameters, self.sizes).at(rows).outputs[:, 0].cpu().numpy() * self.scales[:, None]

    def norms(self, scope: str) -> np.ndarray:
        """‖w_n‖₂ (K,)."""
        return networks.ipm_norms(self.parameters.cpu().numpy(), self.sizes, self.scales, scope)

    def fit(
        self,
        observations: Tensor,
        targets: Tensor,
        rows: slice,
        settings: DeepSettings,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """Regress the critics `rows` on targets (K, B): the mean scaled squared errors (K,) during the last pass."""
        scales = torch.as_tensor(np.where(self.scales > 0, self.scales, 1.0), dtype=targets.dtype, device=targets.device)
        scaled = targets / scales[:, None]
        fitted, count = Networks(self.parameters, self.sizes), len(observations)
        losses = torch.zeros_like(scales)
        for _ in range(settings.critic_epochs):
            losses = torch.zeros_like(losses)
            order = torch.from_numpy(rng.permutation(count)).to(targets.device)
            batches = observations[order].split(settings.critic_batch)
            for inputs, wanted in zip(batches, scaled[:, order].split(settings.critic_batch, dim=1), strict=True):
                here = fitted.at(inputs)
                errors = here.outputs[:, 0] - wanted
                gradient = here.backward(errors[:, None] * (2.0 / len(inputs)))
                self.adam.step(self.parameters, gradient, settings.critic_lr, rows)
                losses += errors.square().sum(dim=1) / count
        finite(self.parameters, "a critic's gradient")  # Adam hands on what is not
        return losses.cpu().numpy()
