"""What an episode of the present policy costs: measured sums, filtered, and as much of the critics as has proved right.

Episodes that have just ended were lived under several policies, the oldest as old as they are long. The steps since the last
update are the present policy's alone. They are worth k_t episodes: what arises at their times of an episode, usually, over
what arises in a whole one. So with their sums s_t

    y_t = s_t/k_t = x_t + noise,   x_{t+1} = x_t + drift

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

FORGET = 0.01  # of what profile, noise, drift and weight are known by, with each update that tells of them
PARTS = 20  # of an episode
SURE = 5.0  # updates' worth of evidence against the critics to begin with
ARRAYS = ("level", "discounted", "variance", "noise", "drift", "product", "square", "beyond")
COUNTS = ("count", "since", "spreads")


class Profile:
    """When in an episode costs arise: means of |c| over a step (K, PARTS) in each part of the horizon."""

    def __init__(self, costs: int, horizon: int) -> None:
        self.length = horizon / PARTS  # of a part
        self.sums, self.steps = np.zeros((costs, PARTS)), np.zeros(PARTS)

    def record(self, costs: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Steps with these costs (K, B) at these times (B,) of their episodes; how many were in each part."""
        parts = np.minimum(times / self.length, PARTS - 1).astype(np.int64)
        steps = np.bincount(parts, minlength=PARTS)
        sums = [np.bincount(parts, weights, PARTS) for weights in np.abs(costs)]
        self.sums, self.steps = (1 - FORGET) * self.sums + sums, (1 - FORGET) * self.steps + steps
        return steps

    def worth(self, steps: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(K,) how many episodes of these lengths (m,) such steps (PARTS,) are worth. Where nothing has cost yet, or in parts
        not met yet, a step is a step."""
        total = self.sums.sum(axis=1, keepdims=True)
        mean = np.divide(total, self.steps.sum(), out=np.ones_like(total), where=total > 0)
        means = np.divide(
            self.sums, self.steps, out=np.repeat(mean, PARTS, axis=1), where=(self.steps > 0) & (total > 0)
        )
        starts = self.length * np.arange(PARTS)
        whole = np.clip(lengths[:, None] - starts, 0.0, self.length).mean(axis=0)  # an episode's steps in each part
        return np.asarray(means @ steps / np.maximum(means @ whole, 1e-300))

    def state(self) -> State:
        return State({"sums": self.sums.copy(), "steps": self.steps.copy()}, {})

    def load(self, state: State) -> None:
        self.sums, self.steps = state.tensors["sums"], state.tensors["steps"]


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
        self.count, self.since = 0, 0  # updates; those since the last that finished an episode
        self.spreads = 0  # updates that finished several, which is how noise shows

    def record(
        self, sums: np.ndarray, worth: np.ndarray, finished: np.ndarray, discounted: np.ndarray, kappa: float
    ) -> None:
        """The steps since the last update: their sums (K,) and how many episodes they are worth (K,); and the episodes that
        they finished: sums (k, K) plain, and discounted with what lies behind a cut. k may be 0, but not at first."""
        self.since += 1
        self.variance = self.variance + np.maximum(self.drift, 0.0)
        k = len(finished)
        if k > 1:
            self.spreads += 1
            self.noise = self.noise + max(FORGET, 1.0 / self.spreads) * (finished.var(axis=0, ddof=1) - self.noise)
        if self.count == 0:
            self.level, self.discounted = finished.mean(axis=0), discounted.mean(axis=0)
            self.variance = self.noise / k
            self.drift = self.noise / k  # nothing is known of it yet: half of the next is believed
        else:
            rate = max(FORGET, 1.0 / (self.count + 1))
            surprise = np.divide(sums, worth, out=self.level.copy(), where=worth > 0) - self.level  # ν
            self.product = (1 - FORGET) * self.product + kappa * surprise * self.beyond
            self.square = (1 - FORGET) * self.square + self.beyond**2
            error = np.divide(self.noise, worth, out=np.full_like(self.noise, np.inf), where=worth > 0)
            known = self.variance + error
            gain = np.divide(self.variance, known, out=np.ones_like(known), where=known > 0)
            gain = np.where(worth > 0, gain, 0.0)
            # E ν² = P' + q + σ²/k, with P' what was left after the update before; little is learnt from less than an episode
            left = self.variance - np.maximum(self.drift, 0.0)
            seen = surprise**2 - np.where(worth > 0, error, 0.0) - left
            self.drift = self.drift + rate * np.minimum(worth, 1.0) * (seen - self.drift)
            self.level = self.level + gain * surprise
            self.variance = (1 - gain) * self.variance
            if k:
                gain = 1 - (1 - gain) ** self.since
                self.discounted = self.discounted + gain * (discounted.mean(axis=0) - self.discounted)
        self.count += 1
        if k:
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
        return State(
            {name: getattr(self, name).copy() for name in ARRAYS}, {name: getattr(self, name) for name in COUNTS}
        )

    def load(self, state: State) -> None:
        for name in ARRAYS:
            setattr(self, name, state.tensors[name])
        for name in COUNTS:
            setattr(self, name, int(state.data[name]))


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
