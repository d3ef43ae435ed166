"""Saving any environment in the middle of an episode, by its seed and the actions taken since.

Every episode gets a seed of its own, derived from that of the last seeded reset. So an episode in progress can be
replayed, and its observations show whether the environment is deterministic given seed and actions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

OPTION = "rcac.replay"  # of reset: {first seed: `ReplayedEpisode`}


class ReplayedEpisode(NamedTuple):
    number: int  # of resets since the one with the first seed
    actions: Sequence[Any]  # so far


class Replay(gym.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of each copy in a vector environment."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.place: tuple[int, int] | None = None  # the last seed given, and the number of resets since
        self._over = False  # played again up to its end: the next step is the reset that the vector environment forgot

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._over = False
        again: ReplayedEpisode | None = (options or {}).get(OPTION, {}).get(seed)
        if again is not None and seed is not None:
            self.place = seed, again.number
            observation, info = self.env.reset(seed=self._seed())
            for action in again.actions:
                observation, _, terminated, truncated, info = self.env.step(action)
                self._over = terminated or truncated
            return observation, info
        if seed is not None:
            self.place = seed, 0
        elif self.place is not None:
            self.place = self.place[0], self.place[1] + 1
        return self.env.reset(seed=self._seed(), options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._over:
            observation, info = self.reset()
            return observation, 0.0, False, False, info
        return self.env.step(action)

    def _seed(self) -> int | None:
        """31 bits, as environments take them."""
        if self.place is None or self.place[1] == 0:
            return self.place and self.place[0]
        return int(np.random.SeedSequence(self.place).generate_state(1)[0] >> 1)


def places(envs: VectorEnv[Any, Any, Any]) -> list[tuple[int, int]] | None:
    """The first seed of each environment, and the number of its episode; None unless all can be played again."""
    inner: Any = envs.unwrapped
    if not hasattr(inner, "call") or not all(inner.call("has_wrapper_attr", "place")):
        return None
    found = list(inner.get_attr("place"))
    return None if None in found else found
