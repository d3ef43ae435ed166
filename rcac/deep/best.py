"""The best policy so far, by measured episodes.

An episode outlasts many updates, so what a window of episodes measured belongs to no single policy: it is credited to
the one that acted in the middle of them, which is why the recent ones are kept.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

RECENT = 64  # policies kept; of a window that reaches further back, the oldest kept one gets the credit


class Snapshot(NamedTuple):
    position: int  # environment steps before it acted
    tensors: dict[str, np.ndarray]


@dataclass
class Best:
    tensors: dict[str, np.ndarray] = field(default_factory=dict)  # of the policy; empty: none measured yet
    merit: list[float] = field(default_factory=list)  # lexicographic, smaller is better
    measured: list[float] = field(default_factory=list)  # (K,) mean episode sums, cost form
    position: int = 0
    recent: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=RECENT))

    def acting(self, position: int, tensors: dict[str, np.ndarray]) -> None:
        """From `position` on, this policy acts."""
        self.recent.append(Snapshot(position, tensors))

    def offer(self, merit: tuple[float, ...], measured: np.ndarray, middle: float) -> None:
        """Episodes whose middle lies at position `middle` measured this; a later policy wins a tie."""
        if self.tensors and list(merit) > self.merit:
            return
        earlier = [snapshot for snapshot in self.recent if snapshot.position <= middle]
        credited = earlier[-1] if earlier else self.recent[0]
        self.tensors, self.position = credited.tensors, credited.position
        self.merit, self.measured = list(merit), measured.tolist()
