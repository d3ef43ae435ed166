"""Adversaries over the simulator's parameters: one for each cost, on particles of the box of contexts.

    J_n(π) = max over q in 𝒬_n of  E_{ξ~q} J_n(π, ξ)          (`rcac.contexts`; by Danskin its gradient is that under q_n)

The particles are law points (low-discrepancy, with the law's mass on them) and search points (corners, the centre, and
others that move to where a cost is large): `worst` ranges over all of them, the other risks over the law points. What a
context costs is *measured*: the sums of its own recent episodes, of which the later count more. Sums that cannot be told
apart by their standard errors share the mass of `worst`:

    q* ∝ exp((C − max C)/τ),    τ = e/√2, e the standard error of a context's mean

(the largest of many means is one that had bad luck; E_{q*} C is about as large as the largest true mean, rather above it
than below). Adversaries come in gradually, q* ← (1−s)p + s·q*, s rising to 1 over the first half of the run. J_n is measured
by q*, while gradients and copies go by its running mean q: contexts that were bad lately are not forgotten as soon as the
policy has mended them, or it would break one by mending another. One batch serves all costs:
the copies act in contexts drawn from a mixture μ of the uniform law and every q_n, and the advantages of cost n are
weighted by w_n(ξ) ∝ q_n(ξ)·l(ξ)/f(ξ): l is the length of an episode there, f its share of the batch.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from gymnasium.vector import VectorEnv

from rcac.contexts import Parameters
from rcac.deep.episodes import Episode
from rcac.deep.rollout import Trajectory
from rcac.envs.contexts import set_contexts
from rcac.learner import State

LAW = 32  # law points
SEARCH = 32  # search points, the corners and the centre included; with more than 31 corners, as many as these are
FORGET = 0.3  # weight of a context's newest episode in its mean sums
EPISODES = 8  # of every context in a trial
MEMORY = 0.95  # of the adversaries, from update to update
GRADUAL = 0.5  # of the run, until the adversaries are there in full
MOVE_EVERY = 25  # updates between two moves of a search point
FARTHEST, NEAREST = 0.3, 0.03  # standard deviation of a move, in the unit cube: at first, and at the end of the run
LARGEST = 8.0  # weight of a transition


class Adversaries:
    """What each of K costs' adversaries knows and does; n copies act in the contexts that it sets."""

    def __init__(
        self, box: Parameters, labels: Sequence[str], num_envs: int, horizon: int, rng: np.random.Generator
    ) -> None:
        self.box, self.risks, self.rng, self.horizon = box, box.risks(labels), rng, horizon
        corners = box.corners()
        centre = np.full((1, box.dimension), 0.5)
        self.fixed = LAW + len(corners) + 1  # particles that stay where they are
        law = box.points(LAW, seed=1)
        moving = box.points(max(0, SEARCH - len(corners) - 1), seed=2)
        self.points = np.concatenate([law, corners, centre, moving])  # (M, d) of the unit cube
        count, costs = len(self.points), len(labels)
        self.law = np.where(np.arange(count) < LAW, 1.0 / LAW, 0.0)  # p (M,)
        self.seen = np.zeros(count)  # weight of the episodes of a context, 1 for one
        self.mean = np.zeros((costs, count))  # C (K, M) of plain sums, cost form
        self.square = np.zeros((costs, count))  # of their squares
        self.length = np.full(count, float(horizon))  # l (M,)
        self.sharp = np.tile(self.law, (costs, 1))  # q* (K, M)
        self.adversary = np.tile(self.law, (costs, 1))  # q (K, M)
        self.present = np.zeros(num_envs, dtype=np.int64)  # context of each copy's episode
        self.following = np.zeros(num_envs, dtype=np.int64)  # and of its next one
        self.moves = 0

    # Where the copies act

    def draw(self, envs: VectorEnv) -> None:
        """Choose each copy's next context by μ, which takes effect when its present episode ends."""
        count, n = len(self.points), envs.num_envs
        mixture = 0.5 / count + 0.5 * self.adversary.mean(axis=0)
        places = (np.arange(n) + self.rng.random()) / n  # systematic: as many copies as μ says, up to one
        chosen = np.searchsorted(np.cumsum(mixture) / mixture.sum(), places, side="right").clip(max=count - 1)
        self.choose(envs, self.rng.permutation(chosen))

    def choose(self, envs: VectorEnv, following: np.ndarray) -> None:
        self.following = following
        set_contexts(envs, self.box.contexts(self.points[following]))

    def begin(self) -> None:
        """All copies have been reset."""
        self.present = self.following.copy()

    def follow(self, trajectory: Trajectory) -> np.ndarray:
        """(T+1, n) the contexts of a rollout's rows."""
        rows = np.empty((len(trajectory.begun) + 1, len(self.present)), dtype=np.int64)
        rows[0] = self.present
        for t, begun in enumerate(trajectory.begun):
            rows[t + 1] = np.where(begun, self.following, rows[t])
        self.present = rows[-1].copy()
        return rows

    def inputs(self, which: np.ndarray) -> np.ndarray:
        """(…, d) float32 in [−1, 1]: contexts as the critics see them."""
        return (2.0 * self.points[which] - 1.0).astype(np.float32)

    # What was measured

    def record(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            at = episode.context
            rate = max(FORGET, 1.0 / (self.seen[at] + 1.0))
            self.mean[:, at] += rate * (episode.plain - self.mean[:, at])
            self.square[:, at] += rate * (episode.plain**2 - self.square[:, at])
            self.length[at] += rate * (episode.length - self.length[at])
            self.seen[at] += 1.0

    @property
    def measured(self) -> bool:
        return bool((self.seen > 0).all())

    def measurements(self) -> tuple[np.ndarray, np.ndarray]:
        """Points (M', d) of the contexts in which an episode has ended, and their mean sums (K, M')."""
        there = self.seen > 0
        return self.points[there], self.mean[:, there]

    def errors(self) -> np.ndarray:
        """(K,) the standard error of a context's mean sum: episodes of one context differ by the pooled variance."""
        often = self.seen > 1
        if not often.any():
            return np.zeros(len(self.mean))
        weights = np.maximum(FORGET / (2.0 - FORGET), 1.0 / np.maximum(self.seen, 1.0))  # Σ of squared weights
        variance = np.maximum(self.square - self.mean**2, 0.0) / (1.0 - weights.clip(max=0.5))
        return np.sqrt((variance[:, often] * weights[often]).mean(axis=1))

    def update(self, progress: float) -> None:
        """Every cost's adversary by what is known now."""
        share = min(1.0, progress / GRADUAL)
        errors = self.errors()
        for n, risk in enumerate(self.risks):
            if risk.kind == "worst":
                best = likely_worst(self.mean[n], errors[n])
            else:
                best = np.zeros(len(self.points))
                best[:LAW] = risk.adversary(self.mean[n, :LAW], self.law[:LAW])
            self.sharp[n] = (1.0 - share) * self.law + share * best
        self.adversary = MEMORY * self.adversary + (1.0 - MEMORY) * self.sharp
        self.moves += 1
        if self.moves % MOVE_EVERY == 0 and len(self.points) > self.fixed:
            self._move(progress)

    def _move(self, progress: float) -> None:
        """The search point of the smallest scores starts anew near the worst context of a cost, one after the other."""
        constraints = [n for n, risk in enumerate(self.risks) if risk.kind == "worst"]
        if not constraints:
            return
        cost = constraints[self.moves // MOVE_EVERY % len(constraints)]
        least = self.fixed + int(np.argmin(self.adversary[constraints, self.fixed :].max(axis=0)))
        parent = int(np.argmax(self.mean[cost]))
        if parent == least:
            return
        spread = FARTHEST * (NEAREST / FARTHEST) ** progress
        moved = self.points[parent] + spread * self.rng.standard_normal(self.box.dimension)
        busy = np.flatnonzero((self.present == least) | (self.following == least))
        if len(busy):  # its episodes are still of the old place
            return
        self.points[least] = moved.clip(0.0, 1.0)
        for array in (self.mean, self.square):
            array[:, least] = array[:, parent]
        self.length[least], self.seen[least] = self.length[parent], 1.0

    def sums(self) -> np.ndarray:
        """(K,) E_{q_n} C_n: measured, plain, cost form."""
        return (self.sharp * self.mean).sum(axis=1)

    def worst(self) -> np.ndarray:
        """(K,) the mean sum of each cost's worst context."""
        return self.mean.max(axis=1)

    def steps(self) -> np.ndarray:
        """(K,) steps of an episode under q_n."""
        return self.adversary @ self.length

    def weights(self, contexts: np.ndarray) -> np.ndarray:
        """w (K, B) of transitions in contexts (B,), of mean 1."""
        share = np.bincount(contexts, minlength=len(self.points)) / len(contexts)
        wanted = self.adversary * self.length * (share > 0)
        ratio = np.divide(wanted, share, out=np.zeros_like(wanted), where=share > 0)
        ratio /= np.maximum((ratio * share).sum(axis=1, keepdims=True), 1e-12)
        weights = ratio.clip(max=LARGEST)[:, contexts]
        return weights / weights.mean(axis=1, keepdims=True)

    # Trials

    def trial(self, num_envs: int) -> np.ndarray:
        """(n,) a context for each copy: all of them, or where there are more, those of the largest costs and law points."""
        if num_envs >= len(self.points):
            return np.arange(num_envs) % len(self.points)
        order = [*np.argsort(-self.mean[1:], axis=1).T.ravel()[: num_envs // 2], *range(len(self.points))]
        return np.array(list(dict.fromkeys(int(k) for k in order))[:num_envs])

    def judged(self, contexts: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """(K,) what the sums (E, K) of a trial's episodes in these contexts (E,) come to under each risk."""
        which, inverse, counts = np.unique(contexts, return_inverse=True, return_counts=True)
        means = np.stack([np.bincount(inverse, column) / counts for column in sums.T])  # (K, M)
        spread = ((sums.T - means[:, inverse]) ** 2).sum(axis=1) / max(1, len(contexts) - len(which))
        errors = np.sqrt(spread * (1.0 / counts).mean())
        law = self.law[which] if self.law[which].any() else np.ones(len(which))
        out = []
        for risk, row, error in zip(self.risks, means, errors, strict=True):
            held = law > 0
            if risk.kind == "worst":
                out.append(float(likely_worst(row, error) @ row))
            else:
                out.append(float(risk.adversary(row[held], law[held] / law[held].sum()) @ row[held]))
        return np.array(out)

    def metrics(self, budgets: np.ndarray) -> dict[str, float]:
        """For each cost its worst context, its cost there, and how concentrated the adversary is (1: on one context)."""
        found: dict[str, float] = {}
        for n in range(1, len(self.mean)):
            worst = int(np.argmax(self.mean[n]))
            found[f"cost/{n}/worst_context"] = float(self.mean[n, worst])
            found[f"cost/{n}/worst_context_excess"] = float(self.mean[n, worst] - budgets[n - 1])
            found[f"adversary/{n}/concentration"] = float((self.adversary[n] ** 2).sum())
            for name, values in self.box.contexts(self.points[[worst]]).items():
                found[f"adversary/{n}/worst/{name}"] = float(values[0])
        return found

    # Saving

    ARRAYS = ("points", "seen", "mean", "square", "length", "sharp", "adversary", "present", "following")

    def state(self) -> State:
        tensors = {name: getattr(self, name).copy() for name in self.ARRAYS}
        return State(tensors, {"moves": self.moves, "rng": self.rng.bit_generator.state})

    def load(self, state: State) -> None:
        for name in self.ARRAYS:
            setattr(self, name, np.array(state.tensors[name]))
        self.moves = int(state.data["moves"])
        self.rng.bit_generator.state = state.data["rng"]


def likely_worst(means: np.ndarray, error: float) -> np.ndarray:
    """q* (M,) for means (M,) with this standard error."""
    grown = (
        np.exp((means - means.max()) / (error / np.sqrt(2.0))) if error > 0 else (means == means.max()).astype(float)
    )
    return np.asarray(grown / grown.sum())
