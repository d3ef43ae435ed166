"""Failure as a cost: the steps that an episode loses by its termination.

A policy that falls at once incurs no other cost. This cost, whose budget is the mean number of steps that may be lost per
episode, keeps a policy from avoiding the other costs by falling.
"""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

LABEL = "steps lost"


class StepsLost(VectorWrapper):
    """Adds L − t to the costs (n, N) of `infos["costs"]` where an episode of at most L steps is terminated after t."""

    def __init__(self, env: VectorEnv, max_episode_steps: int) -> None:
        super().__init__(env)
        self.max_episode_steps = max_episode_steps
        self.same_step = env.metadata.get("autoreset_mode") == AutoresetMode.SAME_STEP
        self.elapsed = np.zeros(env.num_envs, dtype=np.int64)  # (n,) steps of the present episodes
        self.resetting = np.zeros(env.num_envs, dtype=bool)  # (n,) copies that the next step resets
        if hasattr(env, "get_state"):  # it can be saved in the middle of an episode
            self.get_state, self.set_state = self._get_state, self._set_state

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.elapsed[:], self.resetting[:] = 0, False
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self.elapsed = np.where(self.resetting, 0, self.elapsed + 1)
        lost = np.where(terminated & ~self.resetting, self.max_episode_steps - self.elapsed, 0).astype(float)
        done = np.asarray(terminated) | np.asarray(truncated)
        infos = dict(infos)
        if "final_info" in infos:
            infos["final_info"] = self._with(infos["final_info"], lost)
        infos = self._with(infos, lost)
        if self.same_step:
            self.elapsed[done] = 0
        else:
            self.resetting = done
        return observations, rewards, terminated, truncated, infos

    def _with(self, infos: dict[str, Any], lost: np.ndarray) -> dict[str, Any]:
        """The same with one more cost; an environment that reports none has this one alone."""
        key = next((key for key in ("costs", "cost") if key in infos), None)
        if key is None:
            return {**infos, "costs": lost[:, None]}
        present = np.asarray(infos.get(f"_{key}", np.ones(len(lost), dtype=bool)))
        first = np.asarray(infos[key])
        if first.dtype == object:  # rows of the copies that have one
            width = len(np.ravel(first[present][0])) if present.any() else 0
            rows = np.zeros((len(lost), width))
            rows[present] = [np.ravel(row) for row in first[present]]
        else:
            rows = first.reshape(len(lost), -1)
        return {**infos, "costs": np.column_stack([rows, lost]), "_costs": present}

    def _get_state(self) -> dict[str, Any]:
        own = {"lost.elapsed": self.elapsed.copy(), "lost.resetting": self.resetting.copy()}
        return {**self.env.get_state(), **own}  # type: ignore[attr-defined]

    def _set_state(self, state: dict[str, Any]) -> None:
        rest = dict(state)
        self.elapsed, self.resetting = (np.array(rest.pop(f"lost.{name}")) for name in ("elapsed", "resetting"))
        self.env.set_state(rest)  # type: ignore[attr-defined]
