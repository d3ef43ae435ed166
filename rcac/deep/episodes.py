"""What episodes really returned, as measured in the rollouts: plain and discounted sums of every cost."""

from collections import deque
from typing import NamedTuple

import numpy as np

from rcac.deep.rollout import Trajectory
from rcac.learner import State


class Episode(NamedTuple):
    plain: np.ndarray  # Σ c (K,)
    discounted: np.ndarray  # Σ γ^t c (K,)
    length: int  # l
    left: float  # γ^l where it was cut off (truncated), 0 where it came to its end
    last: np.ndarray  # s_l (d,), its final observation
    env: int  # where it was
    context: int  # in which it was, by `rcac.deep.adversary`; else 0


class Measured(NamedTuple):
    """Means over some episodes."""

    plain: np.ndarray  # Σ c (K,)
    discounted: np.ndarray  # Σ γ^t c (K,)
    length: float
    episodes: int  # how many
    errors: np.ndarray  # standard errors of the plain sums (K,)


class Episodes:
    """Sums of the episodes in progress (K, n), and the last `window` finished ones (None: all)."""

    def __init__(self, costs: int, num_envs: int, gamma: float, window: int | None) -> None:
        self.gamma = gamma
        self.plain = np.zeros((costs, num_envs))  # Σ c
        self.discounted = np.zeros((costs, num_envs))  # Σ γ^t c
        self.factor = np.ones(num_envs)  # γ^t
        self.length = np.zeros(num_envs, dtype=np.int64)
        self.finished: deque[Episode] = deque(maxlen=window)
        self.count = 0  # finished since the start
        self.times = np.zeros((0, num_envs), dtype=np.int64)  # in their episodes, of the steps recorded last

    def clear(self) -> None:
        """Forget the episodes in progress."""
        self.plain[:], self.discounted[:], self.factor[:], self.length[:] = 0.0, 0.0, 1.0, 0

    def record(
        self, trajectory: Trajectory, contexts: np.ndarray | None = None, costs: np.ndarray | None = None
    ) -> list[Episode]:
        """Add a rollout's rows, in contexts (T+1, n) if there are any; returns the episodes it finished. `costs` (K, T, n)
        are those of the discounted sums, where critics learn from others than the environment's."""
        ended = []
        self.times = np.zeros(trajectory.valid.shape, dtype=np.int64)
        done = trajectory.terminated | trajectory.truncated
        elsewhere = {
            (t, env): row for (t, env), row in zip(trajectory.final_at.tolist(), trajectory.final, strict=True)
        }
        for t, valid in enumerate(trajectory.valid):
            self.times[t] = self.length
            self.plain += trajectory.costs[:, t]  # zero where not valid
            self.discounted += self.factor * (trajectory.costs if costs is None else costs)[:, t]
            self.factor = np.where(valid, self.factor * self.gamma, self.factor)
            self.length += valid
            if done[t].any():
                for env in np.flatnonzero(done[t]):
                    sums = self.plain[:, env].copy(), self.discounted[:, env].copy()
                    left = 0.0 if trajectory.terminated[t, env] else float(self.factor[env])
                    last = elsewhere.get((t, int(env)), trajectory.observations[t + 1, env])
                    context = 0 if contexts is None else int(contexts[t, env])
                    ended.append(Episode(*sums, int(self.length[env]), left, last.copy(), int(env), context))
                self.plain[:, done[t]] = self.discounted[:, done[t]] = 0.0
                self.factor[done[t]], self.length[done[t]] = 1.0, 0
        self.finished.extend(ended)
        self.count += len(ended)
        return ended

    @property
    def full(self) -> bool:
        return len(self.finished) == self.finished.maxlen

    def mean(self) -> np.ndarray:
        """(K,) mean plain sums over the window, cost form."""
        return np.mean([episode.plain for episode in self.finished], axis=0)

    def mean_discounted(self) -> np.ndarray:
        """(K,) mean discounted sums over the window, cost form."""
        return np.mean([episode.discounted for episode in self.finished], axis=0)

    def cut_off(self) -> tuple[np.ndarray, np.ndarray]:
        """γ^l (m,) and final observations (m, d) over the window; γ^l is 0 for episodes that came to their end."""
        return np.array([episode.left for episode in self.finished]), np.array(
            [episode.last for episode in self.finished]
        )

    def latest(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of the last `count` episodes (those in the window): plain and discounted sums (m, K), γ^l (m,), s_l (m, d)."""
        rows = list(self.finished)[len(self.finished) - min(count, len(self.finished)) :]
        names = ("plain", "discounted", "left", "last")
        empty = [np.zeros((0, len(self.plain)))] * 2 + [np.zeros(0), np.stack([e.last for e in self.finished])[:0]]
        return tuple(np.stack([getattr(e, name) for e in rows]) for name in names) if rows else tuple(empty)  # type: ignore[return-value]

    def lengths(self) -> np.ndarray:
        """(m,) over the window."""
        return np.array([episode.length for episode in self.finished])

    def mean_length(self) -> float:
        return float(np.mean([episode.length for episode in self.finished]))

    def first_of_each(self, rounds: int) -> Measured:
        """The first `rounds` episodes of every environment (the first to end anywhere would be the short ones); one that
        has not ended counts as far as it came."""
        rows = [row[1:] for row in self._first(rounds)]
        plain, discounted, length = (np.mean(column, axis=0) for column in zip(*rows, strict=True))
        return Measured(plain, discounted, float(length), len(rows), _standard_errors([row[0] for row in rows]))

    def of_each(self, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Environments (E,) and plain sums (E, K) of these episodes."""
        rows = self._first(rounds)
        return np.array([row[0] for row in rows]), np.stack([row[1] for row in rows])

    def _first(self, rounds: int) -> list[tuple[int, np.ndarray, np.ndarray, int]]:
        """Environment, plain and discounted sums, and length."""
        missing = np.full(len(self.length), rounds)
        rows = []
        for episode in self.finished:
            if missing[episode.env]:
                rows.append((episode.env, episode.plain, episode.discounted, episode.length))
                missing[episode.env] -= 1
        for env in np.flatnonzero((missing > 0) & (self.length > 0)).tolist():
            rows.append((env, self.plain[:, env], self.discounted[:, env], int(self.length[env])))
        return rows

    def standard_errors(self) -> np.ndarray:
        """(K,) of the mean plain sums over the window."""
        return _standard_errors([episode.plain for episode in self.finished])

    def state(self) -> State:
        costs, count = len(self.plain), len(self.finished)
        left, last = self.cut_off()
        tensors = {
            "plain": self.plain.copy(),
            "discounted": self.discounted.copy(),
            "factor": self.factor.copy(),
            "length": self.length.copy(),
            "finished_plain": np.array([e.plain for e in self.finished]).reshape(-1, costs),
            "finished_discounted": np.array([e.discounted for e in self.finished]).reshape(-1, costs),
            "finished_length": np.array([e.length for e in self.finished], dtype=np.int64),
            "finished_left": left,
            "finished_last": last.reshape(count, -1 if count else 0),
            "finished_env": np.array([e.env for e in self.finished], dtype=np.int64),
            "finished_context": np.array([e.context for e in self.finished], dtype=np.int64),
        }
        return State(tensors, {"count": self.count})

    def load(self, state: State) -> None:
        for name in ("plain", "discounted", "factor", "length"):
            setattr(self, name, state.tensors[name])
        self.finished.clear()
        parts = (state.tensors[f"finished_{name}"] for name in Episode._fields)
        for plain, discounted, length, left, last, env, context in zip(*parts, strict=True):
            self.finished.append(Episode(plain, discounted, int(length), float(left), last, int(env), int(context)))
        self.count = int(state.data["count"])


def _standard_errors(sums: list[np.ndarray]) -> np.ndarray:
    """(K,) of the mean of rows (K,); of one row nothing is known, and 0 is said."""
    return np.std(sums, axis=0, ddof=1) / np.sqrt(len(sums)) if len(sums) > 1 else np.zeros_like(sums[0])
