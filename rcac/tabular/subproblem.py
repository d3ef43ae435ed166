"""The convex problem that RSQP solves for each step, around the policy π_t (S, A).

Every cost k is modelled by the largest of P linear pieces, one for each kernel in the bundle, and a curvature κ_k:

    m_k(π) = max_p [ e_kp + ⟨g_kp, π − π_t⟩ ] + κ_k D(π),      D(π) = Σ_s w(s) KL(π_s‖π_t,s)

    min over π   m_0(π) + D(π)/α + Σ_n ν_n (m_n(π))₊           (κ_0 = 0)

Its dual has a weight y_kp ≥ 0 for each piece, with Σ_p y_0p = 1 and Σ_p y_np ≤ ν_n:

    max over y   Σ y_kp e_kp − λ Σ_s w(s) log Σ_a π_t·exp(−G/(λw)),      G = Σ y_kp g_kp,      λ = 1/α + Σ_n κ_n Σ_p y_np,

which is concave, and π ∝ π_t·exp(−G/(λw)). The multipliers are μ_n = Σ_p y_np. It is solved by Newton's method: on the free
coordinates where there is one piece (the smooth case, with as many unknowns as constraints), along a central path otherwise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from rcac.tabular.steps import SMALLEST, tilt

Array = NDArray[np.float64]
CENTRAL = 1e-10  # where the central path ends: the duality gap for each weight
MAX_NEWTON = 60


@dataclass(frozen=True)
class Subproblem:
    policy: Array  # π_t (S, A)
    slopes: Array  # g (N+1, P, S, A), mean zero under π_t
    offsets: Array  # e (N+1, P): the largest of e_0 is 0, e_n counts from the budget
    weights: Array  # w (S,)
    curvatures: Array  # κ (N+1,), that of the objective 0
    trust: float  # α

    @property
    def excess(self) -> Array:
        """m_n(π_t), (N,)."""
        excess: Array = self.offsets[1:].max(axis=1)
        return excess

    def step(self, y: Array) -> Array:
        return tilt(self.policy, -self._combined(y) / self._price(y))

    def _combined(self, y: Array) -> Array:
        """G/w, (S, A)."""
        return np.tensordot(y, self.slopes, 2) / np.maximum(self.weights, 1e-300)[:, None]

    def _price(self, y: Array) -> float:
        """λ, of a unit of D."""
        return 1 / self.trust + float(self.curvatures @ y.sum(axis=1))

    def distance(self, proposal: Array) -> float:
        """D."""
        grown = np.log(np.maximum(proposal, SMALLEST)) - np.log(np.maximum(self.policy, SMALLEST))
        return max(float(self.weights @ np.einsum("sa,sa->s", proposal, grown)), 0.0)

    def linear(self, proposal: Array) -> Array:
        """The pieces at a policy, (N+1, P)."""
        pieces: Array = self.offsets + np.einsum("kpsa,sa->kp", self.slopes, proposal)
        return pieces

    def model(self, proposal: Array) -> Array:
        """m_k, (N+1,)."""
        largest: Array = self.linear(proposal).max(axis=1)
        return largest + self.curvatures * self.distance(proposal)

    def decrease(self, proposal: Array, penalties: Array) -> float:
        """What the model promises in the merit; a step that moves away from a budget may promise nothing."""
        after = self.model(proposal)
        objective = after[0] + self.distance(proposal) / self.trust
        return max(float(penalties @ (np.maximum(self.excess, 0) - np.maximum(after[1:], 0)) - objective), 0.0)

    def gap(self, y: Array, penalties: Array) -> float:
        """By weak duality, what any policy can gain in the merit to first order is at most this."""
        slope = np.tensordot(y, self.slopes, 2)
        return float(-slope.min(axis=1).sum() - np.sum(y * self.offsets) + penalties @ np.maximum(self.excess, 0))

    # The dual

    def solve(self, penalties: Array, start: Array) -> Array:
        """The weights y (N+1, P); `start` (N,) guesses the multipliers."""
        if self.offsets.shape[1] > 1:
            return self._follow_path(penalties)
        return np.concatenate([[1.0], self._multipliers(penalties, start)])[:, None]

    def _dual(self, y: Array) -> tuple[float, Array, Array]:
        """The dual's value, gradient (N+1, P), and minus its Hessian ((N+1)P, (N+1)P)."""
        combined, price = self._combined(y), self._price(y)
        logits = np.log(np.maximum(self.policy, SMALLEST)) - combined / price
        top = logits.max(axis=1, keepdims=True)
        grown = np.exp(logits - top)
        total = grown.sum(axis=1, keepdims=True)
        proposal = grown / total
        log_z = (top + np.log(total))[:, 0]
        value = float(np.sum(y * self.offsets) - price * np.sum(self.weights * log_z))
        gradient = self.linear(proposal) + (self.curvatures * self.distance(proposal))[:, None]
        scaled = self.slopes / np.maximum(self.weights, 1e-300)[:, None]
        bent = scaled - (self.curvatures / price)[:, None, None, None] * combined
        flat = (bent - np.einsum("kpsa,sa->kps", bent, proposal)[..., None]).reshape(y.size, -1)
        hessian = (flat * (proposal * self.weights[:, None]).ravel()) @ flat.T / price
        return value, gradient, hessian

    def _follow_path(self, penalties: Array) -> Array:
        """Maximise the dual + τ (Σ log y + Σ_n log(ν_n − Σ_p y_np)) while τ falls."""
        terms, pieces = self.offsets.shape
        shares = np.concatenate([[1.0], penalties / 2])
        y = np.repeat(shares[:, None] / pieces, pieces, axis=1)
        blocks = np.kron(np.eye(terms)[1:], np.ones(pieces))  # (N, (N+1)P)
        sums = np.concatenate([np.ones(pieces), np.zeros(y.size - pieces)])

        def barrier(y: Array, tau: float) -> float:
            left = penalties - y[1:].sum(axis=1)
            return tau * float(np.log(y).sum() + np.log(left).sum())

        tau = 1.0
        value, gradient, hessian = self._dual(y)
        for _ in range(MAX_NEWTON):
            left = penalties - y[1:].sum(axis=1)
            scale = y.ravel()  # the unknowns are relative changes, which keeps the system well conditioned
            slope = gradient.ravel() + tau / scale - blocks.T @ (tau / left)
            near = blocks * scale / left[:, None]
            matrix = hessian * np.outer(scale, scale) / tau + np.eye(len(scale)) + near.T @ near
            bordered = np.block([[matrix, (sums * scale)[:, None]], [(sums * scale)[None], np.zeros((1, 1))]])
            try:
                relative = np.linalg.solve(bordered, np.append(slope * scale / tau, 0.0))[:-1]
            except np.linalg.LinAlgError:  # at the end of the path, by rounding: y is as good as it gets
                break
            move = (relative * scale).reshape(y.shape)
            growth = -move[1:].sum(axis=1) / left
            length = min(1.0, 0.95 / max(float((-move / y).max()), float((-growth).max(initial=0.0)), 1e-300))
            before, rise = value + barrier(y, tau), float(slope @ move.ravel())
            while True:
                trial = y + length * move
                found = self._dual(trial)
                if found[0] + barrier(trial, tau) >= before + 1e-4 * length * rise - 1e-13 * abs(before):
                    y, (value, gradient, hessian) = trial, found
                    break
                length /= 2
                if length < 1e-10:
                    return y
            if tau <= CENTRAL and rise <= y.size * tau:
                break
            if rise <= 0.5 * y.size * tau or length > 0.5:
                tau = max(0.1 * tau, CENTRAL)
        return y

    def _multipliers(self, penalties: Array, start: Array) -> Array:
        """One piece: Newton on the free coordinates of 0 ≤ μ ≤ ν; where the dual is flat and Newton fails (a step so long
        that π is deterministic), bisection for one constraint, the central path for several."""
        mu = np.clip(start, 0, penalties)
        if not len(mu):
            return mu

        def dual(mu: Array) -> tuple[float, Array, Array]:
            value, gradient, hessian = self._dual(np.concatenate([[1.0], mu])[:, None])
            return value, gradient[1:, 0], hessian[1:, 1:]

        value, gradient, hessian = dual(mu)
        close = 1e-10 * max(
            1.0, float(np.abs(self.excess).max())
        )  # of the linearised constraints: far below the margin
        for _ in range(MAX_NEWTON):
            free = ~(((mu <= 0) & (gradient <= 0)) | ((mu >= penalties) & (gradient >= 0)))
            if not free.any() or np.abs(gradient[free]).max() <= close:
                break
            block, newton = hessian[np.ix_(free, free)], np.zeros_like(mu)
            ridge = 1e-12 * max(float(np.trace(block)), 1e-300)
            newton[free] = np.linalg.solve(block + ridge * np.eye(len(block)), gradient[free])
            trial = np.clip(mu + newton, 0, penalties)
            found = dual(trial)
            if not (np.isfinite(trial).all() and found[0] >= value + 1e-4 * gradient @ (trial - mu)):
                return self._bisect(penalties) if len(mu) == 1 else self._follow_path(penalties)[1:, 0]
            moved = float(np.abs(trial - mu).max())
            if found[0] >= value:
                mu, (value, gradient, hessian) = trial, found
            if moved <= 1e-13 * max(1.0, float(mu.max())):
                break
        return mu

    def _bisect(self, penalties: Array) -> Array:
        """One constraint: the dual's derivative falls along its multiplier."""

        def slope(x: float) -> float:
            return float(self.model(self.step(np.array([[1.0], [x]])))[1])

        if slope(0.0) <= 0:
            return np.zeros(1)
        if slope(penalties[0]) >= 0:
            return penalties
        return np.array([brentq(slope, 0.0, penalties[0], xtol=1e-14 * penalties[0], rtol=1e-13)])
