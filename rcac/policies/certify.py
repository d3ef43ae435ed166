"""A certificate for a policy in an environment with contexts, from fresh episodes: what `rcac.certify` and
`rcac-evaluate certify=true` do."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from rcac.contexts import Parameters
from rcac.envs.contexts import set_contexts
from rcac.envs.failure import StepsLost
from rcac.errors import InputError
from rcac.labels import episode_labels
from rcac.policies.certificate import Certificate, CertificateSettings, certify_measured
from rcac.policies.episodes import acting, check_autoreset, check_spaces, reported_costs
from rcac.runs.config import Env
from rcac.runs.environments import close, make_box, make_envs
from rcac.seeds import evaluation_seed

CostRange = tuple[float, float]
CostRanges = Sequence[CostRange | None]  # of an episode; None: as the environment says


def certify_env(
    env: Env,
    policy: Any,
    uncertainty: Parameters | Mapping[str, Any] | None = None,
    cost_ranges: CostRanges | None = None,
    num_envs: int = 256,
    *,
    played: Callable[[int], None] = lambda episodes: None,
    **settings: Any,
) -> Certificate:
    """Certify a policy in an environment, against the budgets of its configuration.

    `uncertainty` is a box, or a row that may have `ranges`; without them, those of the environment's file count, else what it
    declares. `played` is told of every number of episodes played; `settings` are those of `CertificateSettings`.
    """
    CertificateSettings(**settings).check()  # before anything is made
    if num_envs < 1:
        raise InputError(f"num_envs: {num_envs} given, a whole number ≥ 1 expected")
    if env.tabular:
        raise InputError(
            f"certify: {env.name} given, which carries its model and has no parameters to vary: its worst case is exact"
        )
    if env.budgets is None:
        raise InputError("budgets: not given, one for each cost expected")
    budgets, names = env.limits()
    if not budgets:
        raise InputError("budgets: none given, one for each cost expected")
    labels = episode_labels(len(budgets), names)[1:]
    envs = make_envs(env, num_envs)
    try:
        check_autoreset(envs)
        box = uncertainty if isinstance(uncertainty, Parameters) else make_box(env, envs, uncertainty)
        _check_box(envs, box)
        horizon = env.max_episode_steps or (envs.spec.max_episode_steps if envs.spec is not None else None)
        ranges = cost_ranges_of(envs, labels, horizon, cost_ranges)
        player = Player(envs, policy, box, len(budgets), played)
        return certify_measured(player, box, budgets, ranges, labels=labels, **settings)
    finally:
        close(envs)


def _check_box(envs: VectorEnv, box: Parameters) -> None:
    """Whether the environment has these parameters, and can simulate both ends of every range."""
    for end in (0.0, 1.0):
        try:
            set_contexts(envs, box.contexts(np.full((envs.num_envs, box.dimension), end)))
        except InputError as error:
            raise InputError(f"uncertainty.ranges: {error}") from error


def cost_ranges_of(
    envs: VectorEnv, labels: Sequence[str], horizon: int | None, given: CostRanges | None = None
) -> list[CostRange]:
    """The least and the largest that each cost of an episode can be: as given, else what follows from what the environment
    says of a step (`metadata["cost_range"]`) and its time limit. Steps lost are at most all of them."""
    if given is not None and (isinstance(given, str) or len(given) != len(labels)):
        expected = f"{len(labels)} expected, [low, high] or null for each of {', '.join(labels)}"
        raise InputError(f"cost_ranges: {given!r} given, {expected}")
    known: list[CostRange | None] = [None] * len(labels)
    if horizon is not None:
        per_step = envs.metadata.get("cost_range") or []
        episode = [(min(0.0, horizon * low), max(0.0, horizon * high)) for low, high in per_step]
        if isinstance(envs, StepsLost):
            known[-1] = (0.0, float(horizon))
            episode = episode[: len(labels) - 1]
        known[: len(episode)] = episode[: len(labels)]
    found = []
    for n, label in enumerate(labels):
        if given is not None and given[n] is not None:
            found.append(_range(n, given[n]))
        elif (own := known[n]) is not None:
            found.append(own)
        else:
            raise InputError(
                f"cost_ranges[{n}]: not given, and the environment does not say what {label} can be (by metadata['cost_range'] "
                "and a time limit); the least and the largest of an episode expected, like [0, 1000]"
            )
    return found


def _range(n: int, given: Any) -> CostRange:
    try:
        low, high = map(float, given)
    except (TypeError, ValueError):
        low = high = np.nan
    if not (np.isfinite(low) and np.isfinite(high) and low <= high):
        raise InputError(f"cost_ranges[{n}]: {given!r} given, finite numbers [low, high] expected")
    return low, high


class Player:
    """A `Measure`: episodes of a policy in given contexts, one for each environment at a time."""

    def __init__(
        self,
        envs: VectorEnv,
        policy: Any,
        box: Parameters,
        costs: int,
        played: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.envs, self.policy, self.box, self.costs, self.played = envs, policy, box, costs, played
        if hasattr(policy, "spaces"):
            check_spaces(policy, envs.single_observation_space, envs.single_action_space)

    def __call__(self, points: np.ndarray, episodes: int, seed: int) -> np.ndarray:
        """Costs (M, episodes, N) at points (M, d) of the unit cube."""
        return self.sums(points, episodes, seed)[..., 1:]

    def sums(self, points: np.ndarray, episodes: int, seed: int) -> np.ndarray:
        """(M, episodes, N+1) the same, with the negated return before them."""
        tasks = np.repeat(points, episodes, axis=0)  # (M·episodes, d)
        count = self.envs.num_envs
        found = np.empty((len(tasks), self.costs + 1))
        for wave, first in enumerate(range(0, len(tasks), count)):
            chosen = tasks[first : first + count]
            padded = np.concatenate([chosen, np.repeat(chosen[:1], count - len(chosen), axis=0)])
            set_contexts(self.envs, self.box.contexts(padded))
            found[first : first + count] = self._first_episodes(evaluation_seed(seed, wave), len(chosen))
            self.played(len(chosen))
        return found.reshape(len(points), episodes, -1)

    def _first_episodes(self, seed: int, wanted: int) -> np.ndarray:
        """(wanted, N+1) sums of the first episode of each of the first environments."""
        act, began = acting(self.policy, self.envs.observation_space), np.ones(self.envs.num_envs, dtype=bool)
        observations, _ = self.envs.reset(seed=seed)
        count = self.envs.num_envs
        sums, playing = np.zeros((count, self.costs + 1)), np.arange(count) < wanted
        while playing.any():
            observations, rewards, terminated, truncated, infos = self.envs.step(act(observations, began))
            began = ~playing  # what they do afterwards does not count
            ended = terminated | truncated
            step = np.column_stack([-rewards, reported_costs(infos, self.costs, count, ended)])
            sums[playing] += step[playing]
            playing &= ~ended
        return sums[:wanted]
