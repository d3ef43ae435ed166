"""A trained actor as a policy uses it: observations in, actions out, with a memory where it was trained with a history."""

from typing import Any, NamedTuple

import numpy as np

from rcac.deep.acting import outputs_of
from rcac.deep.build import actor_from_card
from rcac.deep.distributions import Categorical, distribution
from rcac.errors import InputError
from rcac.learner import State


class Memory(NamedTuple):
    """The history of B streams of observations, up to the last action."""

    rows: np.ndarray  # (B, d)
    actions: np.ndarray  # (B, a)


class DeepBackend:
    """See `rcac.policies.policy.Backend`."""

    def __init__(self, state: State, network: Any = None) -> None:
        (self.encoder, self.history, self.actions), self.actor = actor_from_card(state.data, state.tensors, network)
        self.distribution = distribution(self.actions)
        self.outputs = outputs_of(self.actor)

    def choose(
        self, observations: Any, rng: np.random.Generator | None, memory: Memory | None, starts: np.ndarray | None
    ) -> tuple[np.ndarray, Memory | None]:
        rows = self._rows(observations, memory, starts)
        outputs = self._outputs(rows)
        if rng is None:
            own = self.distribution.mode(outputs)
        else:
            own = self.distribution.sample(outputs, self.distribution.noise(rng, (len(rows),)))
        after = Memory(rows, self.actions.describe(own)) if self.history.length > 1 else None
        return self.actions.raw(own), after

    def probabilities(self, observations: Any, memory: Memory | None) -> np.ndarray:
        if not isinstance(self.distribution, Categorical):
            raise InputError(f"probabilities: the actions are {self.actions.space}, a Discrete space expected")
        return self.distribution.probabilities(self._outputs(self._rows(observations, memory, None)))

    def _outputs(self, rows: np.ndarray) -> np.ndarray:
        """Of the network; weights that are finite, but huge, can still make NaN of an observation."""
        with np.errstate(all="ignore"):
            outputs = self.outputs(rows)
        if not np.isfinite(outputs).all():
            raise InputError("policy: its network returned a number that is not finite, weights of usual size expected")
        return outputs

    def _rows(self, observations: Any, memory: Memory | None, starts: np.ndarray | None) -> np.ndarray:
        try:
            frames = self.encoder(observations)
        except InputError:
            raise
        except (TypeError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"observation: {error}; one of {self.encoder.space} expected") from error
        self.encoder.check_finite(frames)
        if self.history.length == 1 or memory is None:
            return self.history.first(frames)
        if len(memory.rows) != len(frames):
            raise InputError(
                f"observations: {len(frames)} given, {len(memory.rows)} expected as before; reset() begins anew"
            )
        rows = self.history.next(memory.rows, memory.actions, frames)
        if starts is not None and starts.any():
            rows[starts] = self.history.first(frames[starts])
        return rows
