"""What an episode of the present policy costs: measured sums, filtered, and as much of the critics as has proved right.

    y_t = x_t + noise,   x_{t+1} = x_t + drift          y_t the mean sum of the k_t episodes that finished with update t

x is followed by the Kalman filter of a random walk, each cost by its own. The noise σ² of one episode is the mean square
within the episodes that finish together; the drift q per update is what the filter's surprises show beyond the noise:

    ν = y − x̂,    E ν² = P + σ²/k      gain g = P/(P + σ²/k),    x̂ ← x̂ + gν,    P ← (1−g)P,    and P ← P + q each update

The critics may know more than the episodes that have ended. What they say beyond them, m = V(s_0) − D − E − margin (see the
trainer), enters with the weight that would have predicted the episodes after it best,

    J = κx̂ + margin + w·m,            w = clip( Σ κν·m / Σ m², 0, 1 )          sums that forget, m as of before ν

so w is zero until critics are seen to be right, and stays there if they lag behind. The margin is what the adversary adds.

What is measured lags behind a policy that moves, and steps bring a cost down by less than their linear models say. So a
policy that is held at a budget rests above it. The integral of the excess says by how much to aim below it (as the integral
part of a PID controller does):

    a ← clip( a + rate·(J − b), 0, |b|/2 ),       aim at b − a
"""

import numpy as np

from rcac.learner import State

FORGET = 0.01  # of what noise, drift and weight are known by, with each update that finished episodes
SURE = 5.0  # updates' worth of evidence against the critics to begin with
ARRAYS = ("level", "discounted", "variance", "noise", "drift", "product", "square", "beyond")


class Calibration:
    """K costs, all arrays (K,)."""

    def __init__(self, costs: int) -> None:
        self.level = np.zeros(costs)  # x̂, plain sums
        self.discounted = np.zeros(costs)  # D + E, filtered with the gains of x̂
        self.variance = np.zeros(costs)  # P
        self.noise = np.zeros(costs)  # σ²
        self.drift = np.zeros(costs)  # q; a mean of what is seen, which may be below zero
        self.product, self.square = np.zeros((2, costs))  # Σ κν·m, Σ m²
        self.beyond = np.zeros(costs)  # m
        self.count, self.since = 0, 0  # updates that finished episodes; updates since the last of these

    def record(self, plain: np.ndarray, discounted: np.ndarray, kappa: float) -> None:
        """Episodes that finished with this update: sums (k, K) plain, and discounted with what lies behind a cut.
        k may be 0."""
        self.since += 1
        self.variance = self.variance + np.maximum(self.drift, 0.0)
        k = len(plain)
        if k == 0:
            return
        mean, within = plain.mean(axis=0), plain.var(axis=0, ddof=1) if k > 1 else self.noise
        if self.count == 0:
            self.level, self.discounted, self.noise = mean, discounted.mean(axis=0), within
            self.variance = within / k
            self.drift = within / k  # nothing is known of it yet: half of the next is believed
        else:
            rate = max(FORGET, 1.0 / (self.count + 1))
            surprise = mean - self.level  # ν
            self.product = (1 - FORGET) * self.product + kappa * surprise * self.beyond
            self.square = (1 - FORGET) * self.square + self.beyond**2
            self.noise = self.noise + rate * (within - self.noise)
            error = self.noise / k
            gain = np.divide(
                self.variance, self.variance + error, out=np.ones_like(error), where=self.variance + error > 0
            )
            # E ν² = P' + q·updates + σ²/k, with P' what was left after the episodes before
            left = self.variance - np.maximum(self.drift, 0.0) * self.since
            self.drift = self.drift + rate * ((surprise**2 - error - left) / self.since - self.drift)
            self.level = self.level + gain * surprise
            self.discounted = self.discounted + gain * (discounted.mean(axis=0) - self.discounted)
            self.variance = (1 - gain) * self.variance
        self.count += 1
        self.since = 0

    @property
    def weight(self) -> np.ndarray:
        """w (K,)"""
        doubt = self.square + SURE * self.square / max(1, self.count)
        return np.clip(np.divide(self.product, doubt, out=np.zeros_like(doubt), where=doubt > 0), 0.0, 1.0)

    def estimate(self, values: np.ndarray, margins: np.ndarray, kappa: float) -> np.ndarray:
        """J (K,), with V(s_0) (K,) and the adversary's margins (K,)."""
        self.beyond = values - self.discounted - margins
        return kappa * self.level + margins + self.weight * self.beyond

    def state(self) -> State:
        return State({name: getattr(self, name).copy() for name in ARRAYS}, {"count": self.count, "since": self.since})

    def load(self, state: State) -> None:
        for name in ARRAYS:
            setattr(self, name, state.tensors[name])
        self.count, self.since = int(state.data["count"]), int(state.data["since"])


class Aim:
    """How far below each budget to aim: a (N,)."""

    def __init__(self, costs: int, rate: float) -> None:
        self.below, self.rate = np.zeros(costs), rate

    def follow(self, returns: np.ndarray, budgets: np.ndarray) -> np.ndarray:
        """The budgets to aim at, after an update that saw J (N,)."""
        self.below = np.clip(self.below + self.rate * (returns - budgets), 0.0, np.abs(budgets) / 2)
        return np.asarray(budgets - self.below)

    def state(self) -> State:
        return State({"below": self.below.copy()}, {})

    def load(self, state: State) -> None:
        self.below = state.tensors["below"]
