"""The one training loop of all deep methods.

    rollout → robust targets and advantages → estimates of J_n → switch → actor step → critic fit

The methods differ in values of `DeepSettings` only. Nothing here knows of files: `rcac.experiment` runs it.

Units: the critics are discounted, people count whole episodes. Budgets b on the undiscounted cost of an episode of L
steps, and measured episode sums, are multiplied by κ = (1−γ^L)/((1−γ)L) where they meet discounted values. That is
exact for a cost that is the same at every step. A cost that comes late in an episode, or an episode that ends early, is
another matter, and can be measured: with the sums of recent episodes, C plain and D discounted, the calibrated estimate

    J_n = κC_n + V_n(s_0) − D_n − E_n      so that   J_n ≤ κb_n   says   C_n + (V_n(s_0) − D_n − E_n)/κ ≤ b_n :

the measured cost, plus what the robust critics expect beyond it, within the budget as people mean it. E is the mean of
γ^l V_n(s_l) over episodes cut off after l steps: the critics look beyond the cut, the budget does not. For critics that are
right, V − D − E is what the adversary adds in l steps, and nothing at radius 0.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from rcac.deep import networks, report, resume
from rcac.deep.adam import Adam
from rcac.deep.best import Candidate, best, first_episodes
from rcac.deep.critics import Critics
from rcac.deep.episodes import Episodes
from rcac.deep.forward import Actor, actor_shape, noise, sample, softmax
from rcac.deep.gradient import gradient_step
from rcac.deep.level import Switching
from rcac.deep.natural import natural_step
from rcac.deep.regression import regress
from rcac.deep.report import Facts
from rcac.deep.returns import discounted_share, robust_gae
from rcac.deep.rollout import Rollout, Trajectory
from rcac.deep.seeds import ACTIONS, MINIBATCHES, NETWORKS, environment_seed, stream
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Moments, action_codec, normalize, observation_encoder
from rcac.deep.sqp import sqp_step
from rcac.deep.tally import Tally
from rcac.deep.update import Batch, Taken, Task
from rcac.errors import InputError
from rcac.learner import State, Step
from rcac.switch import Epigraph


class Trainer:
    """A `Learner`. Budgets (N,) bound the undiscounted costs of an episode of `horizon` steps; with `share` κ = 1 and
    settings that do not calibrate, discounted costs."""

    unit = "steps"

    def __init__(
        self,
        envs: VectorEnv,
        budgets: np.ndarray | list[float],
        settings: DeepSettings,
        seed: int,
        horizon: int,
        share: float | None = None,  # κ, when it is not that of the horizon
    ) -> None:
        self.settings, self.seed, self.horizon = settings, seed, horizon
        self.budgets = _checked_budgets(budgets)
        if seed < 0 or horizon < 1:
            raise InputError(f"seed, horizon: {seed}, {horizon} given, seed ≥ 0 and horizon ≥ 1 expected")
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.device = _device(settings.device)
        self.share = discounted_share(settings.gamma, horizon) if share is None else share
        self.encoder = observation_encoder(envs.single_observation_space)
        self.actions = action_codec(envs.single_action_space)
        self.shape = actor_shape(
            self.encoder.size, settings.actor_hidden, self.actions.kind, self.actions.count, settings.gaussian_scale
        )
        count = len(self.budgets) + 1

        rng = stream(seed, NETWORKS)
        self.actor = self.tensor(networks.initial_actor(rng, self.shape, settings.initial_log_std))
        self.actor_adam = Adam(self.actor[None])
        sizes = (self.encoder.size, *settings.critic_hidden, 1)
        self.critics = Critics(self.tensor(networks.initial_rows(rng, sizes, count, 1e-3)), sizes)
        self.action_rng, self.batch_rng = stream(seed, ACTIONS), stream(seed, MINIBATCHES)
        self.moments = Moments(self.encoder.size)  # of observations
        self.cost_moments = Moments(count)
        self.episodes = Episodes(count, envs.num_envs, settings.gamma, settings.window)
        self.rollout = Rollout(envs, self.encoder, self.actions, count - 1)
        self.initial = self.rollout.reset(environment_seed(seed))  # (k, d) recent first observations
        self.visited = self.initial  # (k, d) observations of the last rollout
        self.tally: Tally | None = None  # where everything can be counted, and budgets bound what is counted
        if self.encoder.categories and self.actions.kind == "categorical" and not settings.calibrate:
            self.tally = Tally(self.encoder.size, self.actions.count, count)
        self.switching = Switching(settings)
        self.skipped = 0
        self.position = 0
        self.batch_steps, self.trial_steps = settings.rollout_length * envs.num_envs, horizon * envs.num_envs
        self.trials = 0 if self.tally else min(settings.trials, settings.total_steps // (5 * self.trial_steps))
        learning = settings.total_steps - self.trials * self.trial_steps
        self.learning = max(1, learning // self.batch_steps) * self.batch_steps  # steps before the trials
        self.total = self.learning + self.trials * self.trial_steps
        parts = max(1, settings.trials if self.tally else self.trials)
        self.candidates: list[Candidate | None] = [None] * parts  # the best of each part of the run

    @property
    def finished(self) -> bool:
        return self.position >= self.total

    # One update

    def step(self) -> Step:
        return self._learn() if self.position < self.learning else self._try()

    def _learn(self) -> Step:
        settings = self.settings
        started = time.perf_counter()
        mean, deviation = self.moments.scale()
        trajectory = self._collect(self.actor.cpu().numpy(), mean, deviation, settings.rollout_length)
        self.visited = trajectory.observations[:-1][trajectory.valid]
        finished = self.episodes.record(trajectory)
        self._follow_cost_scale(trajectory)
        norms = self.critics.norms(settings.scope)
        margins = settings.radius * norms
        values = self.critics.values(normalize(self.initial, mean, deviation)).mean(axis=1)  # V(s_0) (K,)
        estimates = self._calibrated(values, mean, deviation) if settings.calibrate else values  # J (K,)
        if self.tally or (finished and self.episodes.full):
            self._offer(self._policy_tensors(mean, deviation))
        batch, directions = self._batch(trajectory, margins, mean, deviation)
        budgets = self.budgets * self.share
        progress = self.position / self.learning
        switch = self.switching.at(progress, trajectory.costs[0][trajectory.valid], estimates, budgets)
        index = switch.choose(estimates, budgets)
        task = Task(
            shape=self.shape,
            parameters=self.actor,
            batch=batch,
            chosen=index,
            weight=switch.weight(index),
            excess=estimates[1:] - budgets + settings.slack,
            steps=self._steps_of_an_episode(),
            directions=directions,
            settings=settings,
            rate=1.0 - progress if settings.anneal else 1.0,
            rng=self.batch_rng,
        )
        taken = self._steps[settings.step](task)
        self.actor = taken.parameters.detach()
        self.skipped += taken.skipped
        rows = slice(index, index + 1) if settings.critics == "selected" else slice(None)
        losses = self.critics.fit(batch.observations, batch.targets, rows, settings, self.batch_rng)
        if settings.normalize_observations and not self.encoder.categories:
            self.moments.update(trajectory.observations[:-1][trajectory.valid])
        self.initial = np.concatenate([self.initial, trajectory.initial])[-settings.initial_states :]
        self.position += self.batch_steps

        level = switch.level if isinstance(switch, Epigraph) else None
        facts = Facts(estimates, norms, losses, taken, index, level, self.skipped)
        metrics = report.metrics(facts, self.episodes, self.budgets, self.share)
        metrics["time/steps_per_second"] = self.batch_steps / (time.perf_counter() - started)
        label = report.labels(len(self.budgets))[index]
        return Step(metrics, report.terms(self._measured(estimates), self.budgets), label)

    @property
    def _steps(self) -> dict[str, Callable[[Task], Taken]]:
        gradient: Callable[[Task], Taken] = lambda task: gradient_step(task, self.actor_adam)  # noqa: E731
        return {"gradient": gradient, "natural": natural_step, "sqp": sqp_step}

    def _collect(self, parameters: np.ndarray, mean: np.ndarray, deviation: np.ndarray, length: int) -> Trajectory:
        actor = Actor(self.shape, parameters)
        randomness = noise(self.shape, self.action_rng, (length, self.rollout.envs.num_envs))

        def act(observations: np.ndarray, t: int) -> np.ndarray:
            outputs = actor.outputs(normalize(observations, mean, deviation))
            return sample(self.shape, outputs, randomness[t])

        trajectory = self.rollout.collect(act, length)
        if self.tally:
            self.tally.add(trajectory)
        return trajectory

    def _follow_cost_scale(self, trajectory: Trajectory) -> None:
        self.cost_moments.update(trajectory.costs[:, trajectory.valid].T)
        self.critics.rescale(np.sqrt(self.cost_moments.square) / (1.0 - self.settings.gamma))

    def _batch(
        self, trajectory: Trajectory, margins: np.ndarray, mean: np.ndarray, deviation: np.ndarray
    ) -> tuple[Batch, Tensor | None]:
        """The transitions with advantages and targets, and natural directions where the advantages are regressed."""
        settings = self.settings
        length, copies = trajectory.valid.shape
        observations = normalize(trajectory.observations, mean, deviation)  # (T+1, n, d)
        values = self.critics.values(observations.reshape(-1, self.encoder.size)).reshape(-1, length + 1, copies)
        next_values = values[:, 1:].copy()
        if len(trajectory.final):
            at = trajectory.final_at
            next_values[:, at[:, 0], at[:, 1]] = self.critics.values(normalize(trajectory.final, mean, deviation))
        returns = robust_gae(
            trajectory.costs,
            values[:, :-1],
            next_values,
            trajectory.terminated,
            trajectory.truncated,
            margins,
            settings.gamma,
            settings.gae_lambda,
            settings.critic_lambda,
        )
        valid = trajectory.valid
        rows = self.tensor(observations[:-1][valid])
        actions = torch.from_numpy(trajectory.actions[valid]).to(self.device)
        advantages, directions = self.tensor(returns.advantages[:, valid]), None
        if settings.advantage == "q_regression":
            errors = self.tensor(returns.errors[:, valid])
            fit = regress(self.shape, self.actor, rows, actions, errors, settings.damping, settings.cg_iterations)
            advantages, directions = fit.advantages, fit.directions
        return Batch(rows, actions, advantages, self.tensor(returns.targets[:, valid])), directions

    # Switching and ranking

    def _calibrated(self, values: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
        """κC + V(s_0) − D − E (K,), or V(s_0) before any episode has finished."""
        if not self.episodes.count:
            return values
        left, last = self.episodes.cut_off()
        beyond = self.critics.values(normalize(last, mean, deviation)) @ left / len(left)  # E
        return self.share * self.episodes.mean() + values - self.episodes.mean_discounted() - beyond

    def _steps_of_an_episode(self) -> float:
        """What an advantage that is the same at every step comes to in J_n: κl for plain sums, else 1/(1−γ)."""
        if not self.settings.calibrate:
            return 1.0 / (1.0 - self.settings.gamma)
        return self.share * (self.episodes.mean_length() if self.episodes.count else self.horizon)

    def _best(self, candidates: list[Candidate | None]) -> Candidate | None:
        margins = self.settings.radius * self.critics.norms(self.settings.scope)
        ranking, budgets = self.switching.ranking(), self.share * self.budgets
        if self.tally:  # by all that is known now
            candidates = [c and replace(c, measured=self._counted(self.tally, c.tensors)) for c in candidates]
        return best(candidates, lambda j: ranking.merit(j, budgets), margins, self.share, self.settings.gamma)

    def _counted(self, tally: Tally, tensors: dict[str, np.ndarray]) -> list[float]:
        """What all transitions say of a policy, in the units of the budgets."""
        states = np.eye(self.encoder.size, dtype=np.float32)
        seen = normalize(states, tensors["observation_mean"], tensors["observation_deviation"])
        policy = softmax(Actor(self.shape, tensors["actor"]).outputs(seen))
        return (tally.returns(policy, self.initial.argmax(axis=1), self.settings.gamma) / self.share).tolist()

    def _offer(self, tensors: dict[str, np.ndarray]) -> None:
        """The policy that just acted, by the window's episodes (or by what was counted: see `_best`)."""
        sums = self._measured(np.zeros(len(self.budgets) + 1))
        length = self.episodes.mean_length() if self.episodes.count else self.horizon
        candidate = Candidate(tensors, sums.tolist(), length, self.position)
        part = self.position * len(self.candidates) // self.learning
        self.candidates[part] = self._best([candidate, self.candidates[part]])

    def _try(self) -> Step:
        """One candidate acts alone, from fresh initial states."""
        started = time.perf_counter()
        trial = (self.position - self.learning) // self.trial_steps
        candidate = self.candidates[trial]
        # Where no window was filled in that part, the last policy is tried.
        tensors = candidate.tensors if candidate else self._policy_tensors(*self.moments.scale())
        position = candidate.position if candidate else self.learning
        self.rollout.reset(environment_seed(self.seed, self.position))
        scale = tensors["observation_mean"], tensors["observation_deviation"]
        trajectory = self._collect(tensors["actor"], *scale, self.horizon)
        plain, length = first_episodes(trajectory, 1.0)
        sums = self._sums(plain, first_episodes(trajectory, self.settings.gamma)[0])
        self.candidates[trial] = Candidate(tensors, sums.tolist(), length, position, tried=True)
        self.position += self.trial_steps
        metrics = report.trial(plain, length)
        metrics["time/steps_per_second"] = self.trial_steps / (time.perf_counter() - started)
        return Step(metrics, report.terms(sums, self.budgets), "nothing")

    # Reports

    def _sums(self, plain: np.ndarray, discounted: np.ndarray) -> np.ndarray:
        """(K,) of measured episodes, in the units of the budgets: plain, or what discounted ones come to."""
        return plain if self.settings.calibrate else discounted / self.share

    def _measured(self, estimates: np.ndarray) -> np.ndarray:
        """(K,) sums of the window's episodes; before any has finished, what the estimates come to."""
        if not self.episodes.count:
            return estimates / self.share
        return self._sums(self.episodes.mean(), self.episodes.mean_discounted())

    def summary(self) -> dict[str, Any]:
        chosen = self._best(self.candidates)
        return report.summary(chosen, self.episodes, self.budgets, self.position, self.total, self.skipped)

    def images(self) -> dict[str, np.ndarray]:
        return {}

    # The policy

    def _policy_tensors(self, mean: np.ndarray, deviation: np.ndarray) -> dict[str, np.ndarray]:
        actor = self.actor.cpu().numpy().copy()
        return {"actor": actor, "observation_mean": mean, "observation_deviation": deviation}

    def policy(self) -> State:
        """The best by measured episodes; the present one while no window of episodes has been filled."""
        chosen = self._best(self.candidates)
        tensors = chosen.tensors if chosen else self._policy_tensors(*self.moments.scale())
        card = {
            "kind": "deep",
            "network": {"sizes": list(self.shape.sizes), "tail": self.shape.tail},
            "observation": self.encoder.card(),
            "action": self.actions.card(),
            "settings": asdict(self.settings),
            "budgets": self.budgets.tolist(),
            "horizon": self.horizon,
            "seed": self.seed,
            "position": chosen.position if chosen else self.position,
            "measured": chosen.measured if chosen else [],
        }
        return State(tensors, card)

    # Putting down and taking up

    def state(self) -> State:
        return resume.save(self)

    def load(self, state: State) -> None:
        resume.restore(self, state)

    def restart_environments(self) -> None:
        """Begin new episodes in the middle of a run, from a seed of their own."""
        self.rollout.reset(environment_seed(self.seed, self.position))
        self.episodes.clear()

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.tensor(np.asarray(array), dtype=torch.float32, device=self.device)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # is it there, and does it hold data?
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0]
        raise InputError(f"device: {name!r} given, auto, cpu, cuda or cuda:<number> expected ({why})") from error
    return device


def _checked_budgets(budgets: np.ndarray | list[float]) -> np.ndarray:
    array = np.asarray(budgets, dtype=np.float64).reshape(-1)
    for index, value in enumerate(array):
        if not np.isfinite(value):
            raise InputError(f"budgets[{index}]: {value} given, a finite number expected")
    return array
