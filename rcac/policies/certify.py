"""`rcac.certify`: a certificate for a policy in an environment with contexts, from fresh episodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rcac.contexts import Parameters
from rcac.envs.contexts import parameters, set_contexts
from rcac.errors import InputError
from rcac.policies.certificate import Certificate, certify_measured
from rcac.policies.episodes import acting, check_spaces, reported_costs
from rcac.seeds import evaluation_seed

CostRanges = Sequence[tuple[float, float]]


def declared(envs: VectorEnv, names: Sequence[str] | None = None) -> Parameters:
    """The box that an environment declares: the ranges of its parameters, or of some of them."""
    known = parameters(envs)
    ranges = {
        name: (known[name].low, known[name].high, known[name].scale)
        for name in (names or known)
        if name in known and known[name].low < known[name].high
    }
    if not ranges:
        raise InputError("uncertainty: not given, and the environment declares no parameters: ranges expected")
    return Parameters(ranges)


def cost_ranges_of(envs: VectorEnv, costs: int, horizon: int | None) -> CostRanges:
    """The least and the largest cost of an episode, from what the environment says of a step."""
    per_step = envs.metadata.get("cost_range")
    if per_step is None or len(per_step) < costs or horizon is None:
        raise InputError(
            "cost_ranges: not given, and the environment has no metadata['cost_range'] and time limit: "
            "the least and the largest cost of an episode expected, like [(0, 1000)]"
        )
    return [(min(0.0, horizon * low), max(0.0, horizon * high)) for low, high in per_step[:costs]]


class Player:
    """A `Measure`: episodes of a policy in given contexts, one for each environment at a time."""

    def __init__(self, envs: VectorEnv, policy: Any, box: Parameters, costs: int) -> None:
        self.envs, self.policy, self.box, self.costs = envs, policy, box, costs
        if hasattr(policy, "spaces"):
            check_spaces(policy, envs.single_observation_space, envs.single_action_space)

    def __call__(self, points: np.ndarray, episodes: int, seed: int) -> np.ndarray:
        """Costs (M, episodes, N) at points (M, d) of the unit cube."""
        tasks = np.repeat(points, episodes, axis=0)  # (M·episodes, d)
        count = self.envs.num_envs
        found = np.empty((len(tasks), self.costs))
        for wave, first in enumerate(range(0, len(tasks), count)):
            chosen = tasks[first : first + count]
            padded = np.concatenate([chosen, np.repeat(chosen[:1], count - len(chosen), axis=0)])
            set_contexts(self.envs, self.box.contexts(padded))
            found[first : first + count] = self._first_episodes(evaluation_seed(seed, wave), len(chosen))
        return found.reshape(len(points), episodes, self.costs)

    def _first_episodes(self, seed: int, wanted: int) -> np.ndarray:
        """(wanted, N) costs of the first episode of each of the first environments."""
        act, began = acting(self.policy, self.envs.observation_space), np.ones(self.envs.num_envs, dtype=bool)
        observations, _ = self.envs.reset(seed=seed)
        sums, playing = np.zeros((self.envs.num_envs, self.costs)), np.arange(self.envs.num_envs) < wanted
        while playing.any():
            observations, _, terminated, truncated, infos = self.envs.step(act(observations, began))
            began = ~playing  # what they do afterwards does not count
            ended = terminated | truncated
            sums[playing] += reported_costs(infos, self.costs, self.envs.num_envs, ended)[playing]
            playing &= ~ended
        return sums[:wanted]


def certify_policy(
    envs: VectorEnv,
    policy: Any,
    budgets: Sequence[float],
    box: Parameters | None,
    cost_ranges: CostRanges | None,
    horizon: int | None,
    **settings: Any,
) -> Certificate:
    """Certify a policy in environments that take contexts."""
    if not len(budgets):
        raise InputError("budgets: none given, one for each cost expected")
    box = box or declared(envs)
    if unknown := set(box.names) - parameters(envs).keys():
        for name in unknown:  # a field that is not declared may still be there
            set_contexts(envs, {name: np.full(envs.num_envs, box.ranges[name].low)})
    ranges = cost_ranges or cost_ranges_of(envs, len(budgets), horizon)
    if len(ranges) != len(budgets):
        raise InputError(f"cost_ranges: {len(ranges)} given, {len(budgets)} expected, one for each budget")
    return certify_measured(Player(envs, policy, box, len(budgets)), box, budgets, ranges, **settings)
