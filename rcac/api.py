"""Training and testing from Python: `rcac.train`, `rcac.evaluate_policy`, `rcac.certify`.

    result = rcac.train("rcac/NoisyCartPole-v0", budgets=[200.0], algo="rcac_npg", total_steps=300_000)
    action = result.policy(observation)

The command line does the same: both end in `rcac.runs.train`.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from rcac import registry
from rcac.contexts import Parameters
from rcac.errors import InputError
from rcac.learner import Learner, Step, Term
from rcac.policies.certificate import Certificate
from rcac.policies.certify import CostRanges, certify_env
from rcac.policies.episodes import play
from rcac.policies.policy import Policy
from rcac.runs import given, modules
from rcac.runs import train as runs
from rcac.runs.arguments import describe_env, describe_run
from rcac.runs.build import Built, Modules
from rcac.runs.config import LOGGERS, read_config
from rcac.runs.environments import close, make_envs
from rcac.runs.loop import Callback

CostFunction = Callable[..., Any]  # (observation, action, next_observation, reward, info) -> a number or N of them


@dataclass(frozen=True)
class Result:
    """What a training came to."""

    policy: Policy  # the best by measured episodes (or exact values), never just the last
    summary: dict[str, Any]  # return, costs, budgets, feasible, why it stopped, …
    history: dict[str, np.ndarray]  # every metric by name, a value for each step: pandas.DataFrame(result.history)
    reason: str  # finished, SIGINT (Ctrl-C), SIGTERM or callback
    folder: Path | None = None  # None: nothing was written

    @property
    def finished(self) -> bool:
        return self.reason == "finished"

    def __repr__(self) -> str:
        verdict = {True: "feasible", False: "infeasible", None: "not measured"}[self.summary.get("feasible")]
        return f"Result({self.reason}, {verdict}, {len(self.history['position'])} updates, folder={self.folder})"


class Update:
    """One step of a training, as a callback sees it."""

    def __init__(self, learner: Learner, step: Step, policy: Callable[[], Policy]) -> None:
        self._policy = policy
        self.position, self.total = learner.position, learner.total  # environment steps, or evaluations
        self.metrics: dict[str, float] = step.metrics  # by name; what is added here is logged too
        self.terms: tuple[Term, ...] = step.terms  # return and costs against their budgets

    @cached_property
    def policy(self) -> Policy:
        """The best so far."""
        return self._policy()


UpdateCallback = Callable[[Update], bool | None]


class _Calling(Callback):
    """A user's function as a callback of the loop."""

    def __init__(self, function: UpdateCallback, policy: Callable[[], Policy]) -> None:
        self._function, self._policy = function, policy

    def on_step(self, learner: Learner, step: Step) -> bool | None:
        answer = self._function(Update(learner, step, self._policy))
        for name, value in step.metrics.items():
            if not isinstance(value, Real):
                raise InputError(f"metrics[{name!r}]: {value!r} given by a callback, a number expected")
        return bool(answer) if isinstance(answer, np.bool_) else answer


def train(
    env: given.EnvGiven | None = None,
    budgets: Sequence[float] | Mapping[str, float] | None = None,
    algo: str | None = None,
    *,
    seed: int = 0,
    cost: CostFunction | str | None = None,
    actor: Any = None,
    critic: Any = None,
    callback: UpdateCallback | Sequence[UpdateCallback] = (),
    folder: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool | None = None,
    loggers: Sequence[str] = LOGGERS,
    max_episode_steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vectorization: str = "auto",
    uncertainty: str | Mapping[str, Any] | Parameters | None = None,
    failure_budget: float | None = None,
    preset: str | None = None,
    **settings: Any,
) -> Result:
    """Train a policy that keeps its costs within their budgets.

    Parameters
    ----------
    env : str, function or VectorEnv
        An id of Gymnasium's registry (`"package:id"` imports the package first), a function that makes an `Env`, or a
        `VectorEnv`, which stays open. Its steps report costs in `info["costs"]` or `info["cost"]`.
    budgets : sequence or mapping
        On the sum of each cost over an episode, like `[25.0]`. A mapping names the costs, like `{"fuel": 5.0}`; they may
        then stand under these names in `info`, or in a dictionary `info["costs"]`. Environments of ours have budgets of
        their own; those of a model are discounted.
    algo : str
        A name of `rcac.registry`; `rsqp` for ids of ours that carry a model, else `rcac_npg`, if not given.
    seed : int
        Of everything random: the same seed gives the same result.
    cost : function or str
        `(observation, action, next_observation, reward, info) -> cost` (a number, or one for each budget), where the
        environment reports none; or the name of one that is registered.
    actor, critic : torch.nn.Module or function
        Bodies of your own for deep methods, with an `out_features`: a class or function of the space of what it will
        be given, or a module, of which copies are taken. Without `critic`, critics have the actor's.
    callback : function, or several
        Called with an `Update` after every step; may add to `update.metrics`, and stops the training by returning False.
    folder : str or Path
        A new folder for checkpoints, metrics, policy and plots. Nothing is written unless it is given.
    resume : str or Path
        The folder of a run to continue, as it was configured. What were Python objects (functions, modules) is given
        again; anything else must not be.
    progress : bool
        Show a bar, or a line now and then; if not given, on a terminal or in a notebook.
    loggers : sequence of str
        Where metrics go if there is a folder: csv, tensorboard, wandb, or any that is registered.
    max_episode_steps : int
        Of an episode, where the environment has no limit registered.
    env_kwargs : mapping
        Arguments of the environment.
    vectorization : str
        vector (the environment's own), sync, async (a process for each copy), or auto.
    uncertainty : str, mapping or Parameters
        For deep methods: `rcac.Parameters({"wind": (-2, 2)})`, or just the ranges, to train against the worst of the
        simulator's parameters; "parameters" for the environment's own ranges, "ipm", "nominal". For tabular methods:
        the name of a set, or `{"name": …}` with its parameters; `kl_ball` if not given.
    failure_budget : float
        How many steps an episode may lose to termination, on average: a further cost with a critic of its own.
    preset : str
        "paper": the settings of the paper, where it has any for this method and environment; what is given counts first.
    **settings
        Any setting of the algorithm: `total_steps=300_000`, `num_envs=8`, `rollout_length=256`, `lam=50.0`, …

    Returns
    -------
    Result
        With `policy`, `summary` and `history`. After Ctrl-C, of the training so far.

    Examples
    --------
    >>> import rcac
    >>> result = rcac.train("rcac/NoisyCartPole-v0", budgets=[200.0], total_steps=2000, num_envs=4, rollout_length=64)
    >>> result.summary["budgets"]
    [200.0]
    """
    functions = [callback] if callable(callback) or not isinstance(callback, Sequence) else list(callback)
    for function in functions:
        if not callable(function):
            raise InputError(f"callback: {function!r} given, a function of an Update expected")

    def make_callbacks(built: Built) -> list[Callback]:
        return [_Calling(function, lambda: Policy(built.policy(), network=actor)) for function in functions]

    options: Any = {"modules": Modules(actor, critic), "callbacks": make_callbacks}
    name = registry.use_cost(cost) if callable(cost) else cost
    if resume is not None:
        _check_alone(
            budgets=budgets, algo=algo, folder=folder, uncertainty=uncertainty, preset=preset, seed=seed or None,
            cost=None if callable(cost) else cost, max_episode_steps=max_episode_steps, env_kwargs=env_kwargs,
            failure_budget=failure_budget, vectorization=None if vectorization == "auto" else vectorization,
            loggers=None if list(loggers) == list(LOGGERS) else loggers, **settings,
        )  # fmt: skip
        if isinstance(env, str):
            modules.load(env)
        elif env is not None:
            given.register(env, read_config(Path(resume)).env.cost_names)
        return _result(runs.resume(resume, _shown(progress), **options), actor)
    if env is None:
        raise InputError("env: not given, an id, a function that makes an Env, or a VectorEnv expected")
    place = describe_env(
        env, budgets, name, max_episode_steps, env_kwargs, vectorization, failure_budget=failure_budget, preset=preset
    )
    config = describe_run(
        place, algo, uncertainty, settings, preset=preset, seed=seed, progress=_shown(progress), loggers=list(loggers)
    )
    if folder is not None:
        return _result(runs.train(config, folder, **options), actor)
    return _result(runs.train_in_memory(config, **options), actor)


def _result(done: runs.Trained | runs.TrainedInMemory, actor: Any) -> Result:
    if done.policy is None:
        raise KeyboardInterrupt("stopped before the first step")
    folder = done.folder if isinstance(done, runs.Trained) else None
    return Result(Policy(done.policy, network=actor), done.summary, done.history, done.outcome.reason, folder)


def _shown(progress: bool | None) -> bool:
    if progress is not None:
        return progress
    with contextlib.suppress(ModuleNotFoundError):  # no bar without rich
        from rich.console import Console

        console = Console(stderr=True)
        return console.is_terminal or console.is_jupyter
    return False


def _check_alone(**others: Any) -> None:
    for name, value in others.items():
        if value is not None:
            raise InputError(f"{name}: {value!r} given with resume, which keeps a run's own configuration")


# Testing


@dataclass(frozen=True)
class EpisodeScores:
    """Of E episodes, in the order in which they ended."""

    returns: np.ndarray  # (E,) sums of rewards
    costs: np.ndarray  # (E, N) sums of each cost
    lengths: np.ndarray  # (E,)

    def __repr__(self) -> str:
        costs = np.array2string(self.costs.mean(axis=0), precision=4)
        return f"EpisodeScores({len(self.returns)} episodes, mean return {self.returns.mean():.4g}, mean costs {costs})"


def evaluate_policy(
    policy: Any,
    env: given.EnvGiven,
    episodes: int = 100,
    seed: int = 0,
    *,
    num_envs: int = 32,
    cost: CostFunction | str | None = None,
    max_episode_steps: int | None = None,
    **env_kwargs: Any,
) -> EpisodeScores:
    """Play whole episodes with a policy, as many with each copy of the environment as with any other.

    Parameters
    ----------
    policy : Policy or function
        Of `rcac.train` or `rcac.load_policy`; or any function from an observation to an action.
    env : str, function or VectorEnv
        As for `rcac.train`.
    episodes : int
        How many.
    seed : int
        Of the episodes; the same seed gives the same ones to every policy.
    num_envs : int
        Copies that are stepped together.
    cost : function or str
        As for `rcac.train`.
    max_episode_steps : int
        Of an episode, where the environment has no limit registered.
    **env_kwargs
        Arguments of the environment: `wind=1.0`.

    Returns
    -------
    EpisodeScores
        Returns, costs and lengths of every episode.

    Examples
    --------
    >>> import rcac
    >>> scores = rcac.evaluate_policy(lambda observation: 0, "rcac/NoisyCartPole-v0", episodes=10, wind=1.0)
    >>> scores.costs.shape
    (10, 1)
    """
    for key, value in (("episodes", episodes), ("num_envs", num_envs)):
        if not isinstance(value, int) or value < 1:
            raise InputError(f"{key}: {value!r} given, a whole number ≥ 1 expected")
    name = registry.use_cost(cost) if callable(cost) else cost
    names = getattr(policy, "card", {}).get("labels", [])[1:] or None
    place = describe_env(env, [], name, max_episode_steps, env_kwargs, cost_names=names)
    envs = make_envs(place.env, place.num_envs or min(num_envs, episodes))
    try:
        found = play(envs, policy, episodes, seed)
    finally:
        close(envs)
    return EpisodeScores(-found.sums[:, 0], found.sums[:, 1:], found.lengths)


def certify(
    policy: Any,
    env: given.EnvGiven,
    budgets: Sequence[float] | Mapping[str, float] | None = None,
    uncertainty: Parameters | Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    episodes: int = 8,
    seed: int = 0,
    *,
    contexts: int = 300,
    search_episodes: int = 4096,
    final_episodes: int = 4096,
    cost_ranges: CostRanges | None = None,
    num_envs: int = 256,
    cost: CostFunction | str | None = None,
    max_episode_steps: int | None = None,
    failure_budget: float | None = None,
    **env_kwargs: Any,
) -> Certificate:
    """What fresh episodes say about a policy's costs over ranges of the environment's parameters, with a confidence.

    Parameters
    ----------
    policy : Policy or function
        Of `rcac.train` or `rcac.load_policy`; or any function from an observation to an action.
    env : str, function or VectorEnv
        As for `rcac.train`; it must have contexts (see `rcac.envs.contexts`).
    budgets : sequence or mapping
        On the sum of each cost over an episode; environments of ours have budgets of their own.
    uncertainty : Parameters or mapping
        The box of parameters, like `{"wind": (-2, 2), "length": (0.5, 2, "log")}`; if not given, the ranges that training
        with `uncertainty="parameters"` has: those of the environment's file, or what it declares.
    confidence : float
        With which all statements hold together.
    episodes : int
        In each of the contexts from the law.
    seed : int
        Of contexts and episodes.
    contexts : int
        Drawn from the law of the box, for the shares of contexts and of episodes above a budget.
    search_episodes, final_episodes : int
        To find the worst context, at most, and fresh ones there.
    cost_ranges : sequence of (low, high)
        The least and the largest of each cost of an episode, None where the environment says it: by
        `metadata["cost_range"]`, of a step, and its time limit.
    failure_budget : float
        As for `rcac.train`.
    num_envs, cost, max_episode_steps, **env_kwargs
        As for `rcac.evaluate_policy`.

    Returns
    -------
    Certificate
        `certificate.certified`, `certificate.statements()`, for each cost the bounds (`certificate.costs`), and
        `certificate.save(folder)` for `certificate.json` and its figure.

    Examples
    --------
    >>> import rcac
    >>> made = rcac.certify(lambda observation: int(observation[2] > 0), "rcac/NoisyCartPole-v0", [200.0], {"wind": (-1, 1)},
    ...                     contexts=4, episodes=1, search_episodes=16, final_episodes=16, num_envs=16)
    >>> made.certified  # 16 episodes are too few to say anything
    False
    """
    box = uncertainty if isinstance(uncertainty, Parameters | None) else Parameters(uncertainty)
    name = registry.use_cost(cost) if callable(cost) else cost
    place = describe_env(env, budgets, name, max_episode_steps, env_kwargs, failure_budget=failure_budget)
    return certify_env(
        place.env, policy, box, cost_ranges, place.num_envs or num_envs, confidence=confidence, contexts=contexts,
        episodes=episodes, search_episodes=search_episodes, final_episodes=final_episodes, seed=seed,
    )  # fmt: skip
