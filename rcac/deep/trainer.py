"""The one training loop of all deep methods.

    rollout → robust targets and advantages → estimates of J_n → switch → actor step → critic fit

The methods differ in values of `DeepSettings` only. Nothing here knows of files: `rcac.runs` runs it.

Units: the critics are discounted, people count whole episodes. Budgets b on the undiscounted cost of an episode of L
steps, and measured episode sums, are multiplied by κ = (1−γ^L)/((1−γ)L) where they meet discounted values. That is
exact for a cost that is the same at every step. A cost that comes late in an episode, or an episode that ends early, is
another matter, and can be measured: with the sums of an episode, C plain and D discounted, the calibrated estimate

    J_n = κC_n + V_n(s_0) − D_n − E_n      so that   J_n ≤ κb_n   says   C_n + (V_n(s_0) − D_n − E_n)/κ ≤ b_n :

the measured cost, plus what the robust critics expect beyond it, within the budget as people mean it. E is the mean of
γ^l V_n(s_l) over episodes cut off after l steps: the critics look beyond the cut, the budget does not. For critics that are
right, V − D − E is what the adversary adds in l steps, γρ‖w_n‖(1−γ^l)/(1−γ), and nothing at radius 0. Critics that lag are not
right, so of the rest of it only as much enters as has proved to be. C is of the present policy, not of episodes that others
began: see `rcac.deep.calibration`.

A count of steps lost (`rcac.envs.failure`) comes all at once, when an episode fails, and is larger the earlier that is: no
critic can know it from the state. Critics and advantages have −1 for each step survived instead; the sums of an episode
of at most L steps are the same but for the constant L, which is added by measuring.

With a box of contexts (`rcac.deep.adversary`) J_n = κ·E_{q_n} C_n is measured alone, and advantages are weighted by context.
Policy and adversaries chase each other around the solution, so that the policies handed out are averages: of the actor's
parameters, over about the last twentieth of the run.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from rcac.contexts import Parameters
from rcac.deep import build, report, resume
from rcac.deep.acting import outputs_of
from rcac.deep.adversary import EPISODES, Adversaries
from rcac.deep.calibration import Aim, Calibration, Profile
from rcac.deep.devices import without_denormals
from rcac.deep.empirical import EmpiricalModel
from rcac.deep.episodes import Episodes, Measured
from rcac.deep.networks import Actor
from rcac.deep.regression import regress
from rcac.deep.report import UpdateStats
from rcac.deep.returns import kappa_of, robust_gae
from rcac.deep.rollout import Rollout, Trajectory
from rcac.deep.selection import Candidate, Selection, best, notes
from rcac.deep.settings import DeepSettings
from rcac.deep.spaces import Moments
from rcac.deep.steps import actor_step
from rcac.deep.steps.base import ActorStepInputs, Batch
from rcac.deep.switching import make_switch
from rcac.envs.contexts import parameters
from rcac.envs.failure import StepsLost
from rcac.errors import InputError
from rcac.labels import episode_labels
from rcac.learner import NOTHING, State, Step
from rcac.seeds import ACTIONS, CONTEXTS, MINIBATCHES, NETWORKS, environment_seed, stream

AVERAGED = 20  # parts of a run, over one of which policies are averaged


class Trainer:
    """A `Learner`. Budgets (N,) bound the undiscounted costs of an episode of `horizon` steps; with `kappa` 1 and
    settings that do not calibrate, discounted costs."""

    unit = "steps"

    def __init__(
        self,
        envs: VectorEnv,
        budgets: np.ndarray | list[float],
        settings: DeepSettings,
        seed: int,
        horizon: int,
        kappa: float | None = None,  # κ, when it is not that of the horizon
        *,
        actor: Any = None,  # the actor's body: a class or function of the space that it is given (see deep.networks)
        critic: Any = None,  # every critic's body, likewise; None: as the actor's
        labels: Sequence[str] | None = None,  # names of the constraints (N,)
        box: Parameters | None = None,  # contexts to be robust against; None: as the environments are
    ) -> None:
        self.settings, self.seed, self.horizon = settings, seed, horizon
        self.budgets = _checked_budgets(budgets)
        if seed < 0 or horizon < 1:
            raise InputError(f"seed, horizon: {seed}, {horizon} given, seed ≥ 0 and horizon ≥ 1 expected")
        count, n = len(self.budgets) + 1, envs.num_envs
        self.labels = episode_labels(count - 1, labels)
        if len(self.labels) != count:
            raise InputError(f"labels: {list(labels or [])} given, {count - 1} names expected, one for each budget")
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.device = _device(settings.device)
        self.kappa = kappa_of(settings.gamma, horizon) if kappa is None else kappa

        self.interface = build.interface(envs.single_observation_space, envs.single_action_space, settings)
        self.adversaries: Adversaries | None = None
        if box is not None:
            _check_robust(box, envs, settings)
            self.adversaries = Adversaries(box, self.labels, n, horizon, stream(seed, CONTEXTS))
        context = box.dimension if box else 0
        self.networks = build.networks(self.interface, settings, count, stream(seed, NETWORKS), actor, critic, context)
        self.actor, self.critics = self.networks.actor.to(self.device), self.networks.critics.to(self.device)
        self.actor_optimizer = _adam(self.actor, settings.actor_lr)
        self.critic_optimizer = _adam(self.critics, settings.critic_lr)
        self.action_rng, self.batch_rng = stream(seed, ACTIONS), stream(seed, MINIBATCHES)
        self.moments = Moments(len(self.interface.encoder.continuous))  # of observations
        self.cost_moments = Moments(count)
        self.episodes = Episodes(count, n, settings.gamma, settings.window)
        self.calibration, self.profile = Calibration(count), Profile(count, horizon)
        self.aim = Aim(count - 1, settings.integral)
        self.rollout = Rollout(envs, *self.interface[:3], count - 1)
        self.survival = isinstance(envs, StepsLost) and settings.calibrate  # the last cost counts steps lost
        self.initial = self._reset(environment_seed(seed))  # (k, d) recent first observations
        self.visited = self._frames(self.initial)  # (k, f) observations of the last rollout
        steps = self.kappa * horizon if settings.calibrate else 1.0 / (1.0 - settings.gamma)
        self.constants = np.zeros(count)  # of discounted sums: steps lost are κL less those survived
        self.constants[-1] = steps if self.survival else 0.0
        self.switch, self.actor_step = make_switch(settings, steps), actor_step(settings.step)
        self.model: EmpiricalModel | None = None  # where everything can be counted, and budgets bound what is counted
        states, actions = self.interface.encoder.states, self.interface.actions
        if states and actions.kind == "categorical" and settings.history == 1 and not settings.calibrate:
            self.model = EmpiricalModel(states, actions.choices[0], count)
        self.skipped = self.position = 0
        self.inexact: str | None = None  # why a resumed training is not what it would have been uninterrupted
        self.batch_steps = settings.rollout_length * n
        self._plan_trials(n)
        self.average: AveragedModel | None = None
        if self.adversaries:
            decay = max(0.0, 1.0 - AVERAGED * self.batch_steps / self.learning)
            self.average = AveragedModel(self.actor, multi_avg_fn=averaging(decay), use_buffers=True)

    def _plan_trials(self, n: int) -> None:
        """Trials take at most a tenth of all steps: fewer of them if need be, and at last a shorter one. After them the
        best acts once more in every environment, in the way that it is not deployed in."""
        settings, tenth = self.settings, self.settings.total_steps // 10
        resets = self.rollout.envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP  # a step each

        def length(rounds: int) -> int:
            return rounds * self.horizon + (rounds - 1) * resets

        self.rounds = -(-settings.window // n)  # episodes of every environment
        if self.adversaries:
            self.rounds = -(-EPISODES * min(n, len(self.adversaries.points)) // n)
        while self.rounds > 1 and length(self.rounds) * n > tenth:
            self.rounds -= 1
        self.trial_length = length(self.rounds)
        self.trial_steps = self.trial_length * n
        self.trials = 0 if self.model else min(settings.trials, tenth // self.trial_steps)
        trying = self.trials * self.trial_steps + (self.horizon * n if self.trials else 0)
        learning = settings.total_steps - trying
        self.learning = max(1, learning // self.batch_steps) * self.batch_steps  # steps before the trials
        self.total = self.learning + trying
        self.other: list[float] | None = None  # (K,) sums of the best policy in the way that it is not deployed in
        self.selection = Selection(max(1, settings.trials if self.model else self.trials))

    @property
    def finished(self) -> bool:
        return self.position >= self.total

    def step(self) -> Step:
        return self._learn() if self.position < self.learning else self._try()

    # One update

    def _learn(self) -> Step:
        settings, started = self.settings, time.perf_counter()
        if self.adversaries:
            self.adversaries.draw(self.rollout.envs)
        trajectory = self._collect(self.actor, settings.rollout_length)
        contexts = self.adversaries.follow(trajectory) if self.adversaries else None
        costs = self._by_step(trajectory)
        self.visited = self._frames(trajectory.observations[:-1][trajectory.valid])
        if self.model:
            self.model.add(trajectory)
        finished = self.episodes.record(trajectory, contexts, costs)
        progress = self.position / self.learning
        if self.adversaries:
            self.adversaries.record(finished)
            self.adversaries.update(progress)
        if self.model or (finished and self._known()):
            self._propose()
        self._follow_cost_scale(costs[:, trajectory.valid])
        norms = self.critics.norms(settings.scope)
        estimates = self._estimates(trajectory, len(finished))  # J (K,)
        batch, directions = self._batch(trajectory, settings.radius * norms, contexts, costs)
        budgets = self.budgets * self.kappa
        if settings.calibrate:
            # Policies are ranked with one standard error added, the later ones above all; a cost of rare large sums has one
            # that no budget could bear.
            reserve = np.minimum(2.0 * self.kappa * self._errors(), np.abs(budgets) / 4)
            budgets = budgets - progress * reserve
            budgets = budgets if self.switch.filters else self.aim.follow(estimates[1:], budgets)
        self.switch.begin_update(progress, trajectory.costs[0][trajectory.valid])
        weights = self.switch.weights(estimates, budgets)
        inputs = ActorStepInputs(
            actor=self.actor,
            distribution=self.networks.distribution,
            optimizer=self.actor_optimizer,
            batch=batch,
            weights=weights,
            excess=estimates[1:] - budgets + settings.slack,
            steps=self._steps_of_an_episode(),
            directions=directions,
            settings=settings,
            rate=min(1.0, (1.0 - progress) / settings.anneal) if settings.anneal else 1.0,
            rng=self.batch_rng,
        )
        chosen = np.flatnonzero(weights).tolist() if settings.critics == "selected" else list(range(len(weights)))
        with without_denormals():
            update = self.actor_step(inputs)
            losses = self.critics.fit(
                self.critic_optimizer,
                batch.observations,
                batch.targets,
                chosen,
                settings,
                self.batch_rng,
                batch.contexts,
            )
        self.skipped += update.skipped
        if settings.normalize_observations and len(self.moments.mean):
            self.moments.update(self.visited[:, self.interface.encoder.continuous])
            self.actor.preprocess.set_moments(*self.moments.scale())
        if self.average:
            self.average.update_parameters(self.actor)
        self.initial = np.concatenate([self.initial, trajectory.initial])[-settings.initial_states :]
        self.position += self.batch_steps

        stats = UpdateStats(estimates, norms, losses, update, weights, self.switch.metrics(), self.skipped)
        metrics = report.metrics(stats, self.episodes, self.budgets, self.labels, self.kappa, self.constants)
        if self.adversaries:
            metrics |= self.adversaries.metrics(self.budgets)
        metrics["time/steps_per_second"] = self.batch_steps / (time.perf_counter() - started)
        worst = self.adversaries.worst() if self.adversaries else None
        terms = report.terms(self._measured(estimates), self.budgets, self.labels, worst)
        return Step(metrics, terms, self.labels[int(np.argmax(weights))])

    def _collect(self, actor: Actor, length: int, deterministic: bool = False) -> Trajectory:
        outputs, law = outputs_of(actor), self.networks.distribution
        if deterministic:
            return self.rollout.collect(lambda rows, t: law.mode(outputs(rows)), length)
        noise = law.noise(self.action_rng, (length, self.rollout.envs.num_envs))
        return self.rollout.collect(lambda rows, t: law.sample(outputs(rows), noise[t]), length)

    def _frames(self, rows: np.ndarray) -> np.ndarray:
        """The present observations (…, f) of rows with a history."""
        return rows[..., : self.interface.encoder.size]

    def _by_step(self, trajectory: Trajectory) -> np.ndarray:
        """(K, T, n) the costs that critics learn from: those of the environment, but for steps lost."""
        if not self.survival:
            return trajectory.costs
        return np.concatenate([trajectory.costs[:-1], -trajectory.valid[None].astype(float)])

    def _follow_cost_scale(self, costs: np.ndarray) -> None:
        self.cost_moments.update(costs.T)
        self.critics.rescale(np.sqrt(self.cost_moments.square) / (1.0 - self.settings.gamma))

    def _reset(self, seed: int) -> np.ndarray:
        """Begin new episodes; the first observations (n, d)."""
        if self.adversaries:
            self.adversaries.draw(self.rollout.envs)
            self.adversaries.begin()
        return self.rollout.reset(seed)

    def _known(self) -> bool:
        """Whether there is enough to propose a policy by."""
        return self.adversaries.measured if self.adversaries else self.episodes.full

    def _batch(
        self, trajectory: Trajectory, margins: np.ndarray, contexts: np.ndarray | None, costs: np.ndarray
    ) -> tuple[Batch, Tensor | None]:
        """The transitions with advantages and targets, and natural directions where the advantages are regressed."""
        settings, adversaries = self.settings, self.adversaries
        length, n = trajectory.valid.shape

        def seen(which: Any) -> np.ndarray | None:
            return adversaries.inputs(contexts[which].reshape(-1)) if adversaries and contexts is not None else None

        everywhere = self.critics.values(trajectory.observations.reshape((length + 1) * n, -1), seen(...))
        values = everywhere.reshape(-1, length + 1, n)
        next_values = values[:, 1:].copy()
        if len(trajectory.final):
            at = trajectory.final_at
            next_values[:, at[:, 0], at[:, 1]] = self.critics.values(trajectory.final, seen((at[:, 0], at[:, 1])))
        returns = robust_gae(
            costs,
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
        rows, actions = (
            torch.from_numpy(x).to(self.device)
            for x in (trajectory.observations[:-1][valid], trajectory.actions[valid])
        )
        advantages, directions, inputs = self.tensor(returns.advantages[:, valid]), None, None
        if adversaries and contexts is not None:
            which = contexts[:-1][valid]
            inputs = torch.from_numpy(adversaries.inputs(which)).to(self.device)
            weights = self.tensor(adversaries.weights(which))
            advantages = weights * (advantages - (weights * advantages).mean(dim=1, keepdim=True))
            steps = adversaries.steps()  # of an episode, under each adversary: in L_n, as it is in J_n
            advantages *= self.tensor(steps / steps.mean())[:, None]
        if settings.advantage == "q_regression":
            errors, law = self.tensor(returns.errors[:, valid]), self.networks.distribution
            fit = regress(self.actor, law, rows, actions, errors, settings.damping, settings.cg_iterations)
            advantages, directions = fit.advantages, fit.directions
        return Batch(rows, actions, advantages, self.tensor(returns.targets[:, valid]), inputs), directions

    # Estimates

    def _estimates(self, trajectory: Trajectory, finished: int) -> np.ndarray:
        """J (K,): V(s_0), or what was measured makes of it once an episode has finished; `finished`: how many just did."""
        if self.adversaries:
            return self.kappa * self.adversaries.sums()
        values, costs = self.critics.values(self.initial).mean(axis=1), trajectory.costs[:, trajectory.valid]
        if not self.settings.calibrate:
            return values
        steps = self.profile.record(costs, self.episodes.times[trajectory.valid])
        if not self.episodes.count:
            return values
        plain, discounted, left, last = self.episodes.latest(finished)
        worth = self.profile.worth(steps, self.episodes.lengths())
        beyond = (self.critics.values(last) * left).T
        self.calibration.record(costs.sum(axis=1), worth, plain, discounted + beyond, self.kappa)
        horizon = (1.0 - self.settings.gamma ** self.episodes.mean_length()) / (1.0 - self.settings.gamma)
        margins = self.settings.gamma * self.settings.radius * self.critics.norms(self.settings.scope) * horizon
        return self.calibration.estimate(values, margins, self.kappa)

    def _steps_of_an_episode(self) -> float:
        """What an advantage that is the same at every step comes to in J_n: κl for plain sums, else 1/(1−γ)."""
        if not self.settings.calibrate:
            return 1.0 / (1.0 - self.settings.gamma)
        if self.adversaries:
            return self.kappa * float(self.adversaries.steps().mean())
        return self.kappa * (self.episodes.mean_length() if self.episodes.count else self.horizon)

    def _errors(self) -> np.ndarray:
        """(N,) standard errors of the constraints' measured sums."""
        if self.adversaries or not self.episodes.count:  # the mass of likely worst contexts counts errors already
            return np.zeros(len(self.budgets))
        return self.episodes.standard_errors()[1:]

    def _sums(self, plain: np.ndarray, discounted: np.ndarray) -> np.ndarray:
        """(K,) of measured episodes, in the units of the budgets: plain, or what discounted ones come to."""
        return plain if self.settings.calibrate else discounted / self.kappa

    def _measured(self, estimates: np.ndarray) -> np.ndarray:
        """(K,) sums of the window's episodes; before any has finished, what the estimates come to."""
        if self.adversaries or not self.episodes.count:
            return estimates / self.kappa
        return self._sums(self.episodes.mean(), self.episodes.mean_discounted())

    # The policy to hand out

    def _propose(self) -> None:
        """The policy that just acted, by the window's episodes (or at once by a trial on what was counted)."""
        robust = self.adversaries.sums() if self.adversaries else np.zeros(len(self.labels))
        sums, count = self._measured(self.kappa * robust).tolist(), len(self.episodes.finished)
        length = self.episodes.mean_length() if count else self.horizon
        errors = self._sums(*[self.episodes.standard_errors()] * 2).tolist() if count else [0.0] * len(sums)
        actor = self.average.module if self.average else self.actor
        candidate = Candidate(resume.module_arrays(actor), sums, length, count, self.position, errors)
        part = self.selection.part(self.position / self.learning)
        self.selection.candidates[part] = self._best([self.selection.candidates[part], candidate])

    def _best(self, candidates: list[Candidate | None]) -> Candidate | None:
        margins = self.settings.radius * self.critics.norms(self.settings.scope)
        budgets = self.kappa * self.budgets
        if self.model:  # a trial by all that is known now
            candidates = [c and self._counted(self.model, c) for c in candidates]
        return best(candidates, lambda j: self.switch.merit(j, budgets), margins, self.kappa, self.settings.gamma)

    def _counted(self, model: EmpiricalModel, candidate: Candidate) -> Candidate:
        """What all transitions say of a policy, in the units of the budgets."""
        outputs = outputs_of(self._frozen(candidate.tensors))(np.eye(model.states, dtype=np.float32))
        table = self.networks.distribution.probabilities(outputs)  # type: ignore[attr-defined]
        sums = model.returns(table, self.initial.argmax(axis=1), self.settings.gamma) / self.kappa
        return replace(
            candidate, measured=sums.tolist(), errors=[0.0] * len(sums), episodes=self.episodes.count, tried=True
        )

    def _frozen(self, tensors: dict[str, np.ndarray]) -> Actor:
        frozen = copy.deepcopy(self.actor)
        resume.load_arrays(frozen, tensors)
        return frozen

    def _try(self) -> Step:
        """One candidate acts alone, from fresh initial states, as it would be deployed; at last the best one the other way."""
        started, trial = time.perf_counter(), (self.position - self.learning) // self.trial_steps
        deterministic, last = self.settings.deploy == "deterministic", trial == self.trials
        candidate = self._best(self.selection.candidates) if last else self.selection.candidates[trial]
        # Where no window was filled in that part, the last policy is tried.
        tensors = candidate.tensors if candidate else resume.module_arrays(self.actor)
        if last:
            measured = self._measure(tensors, not deterministic, 1, self.horizon)
        else:
            measured = self._measure(tensors, deterministic, self.rounds, self.trial_length)
        sums = self._sums(measured.plain, measured.discounted)
        taken = (self.horizon if last else self.trial_length) * self.rollout.envs.num_envs
        if last:
            self.other = sums.tolist()
        else:
            position = candidate.position if candidate else self.learning
            errors = self._sums(measured.errors, measured.errors).tolist()
            tried = Candidate(tensors, sums.tolist(), measured.length, measured.episodes, position, errors, tried=True)
            self.selection.candidates[trial] = tried
        self.position += taken
        shown = not last and self.trials > 1  # a single trial is in the summary, as is the other way of acting
        metrics = report.trial(measured, self.labels) if shown else {}
        metrics["time/steps_per_second"] = taken / (time.perf_counter() - started)
        return Step(metrics, report.terms(sums, self.budgets, self.labels), NOTHING)

    def _measure(self, tensors: dict[str, np.ndarray], deterministic: bool, rounds: int, length: int) -> Measured:
        """The first episodes of every environment."""
        actor = self._frozen(tensors)
        n, contexts = self.rollout.envs.num_envs, None
        if self.adversaries:
            contexts = self.adversaries.trial(n)
            self.adversaries.choose(self.rollout.envs, contexts)
        self.rollout.reset(environment_seed(self.seed, self.position))
        episodes = Episodes(len(self.labels), n, self.settings.gamma, None)
        for start in range(0, length, self.settings.rollout_length):
            part = min(self.settings.rollout_length, length - start)
            episodes.record(self._collect(actor, part, deterministic))
        measured = episodes.first_of_each(rounds)
        if self.adversaries and contexts is not None:
            where, sums = episodes.of_each(rounds)
            measured = measured._replace(plain=self.adversaries.judged(contexts[where], sums))
        return measured

    def summary(self) -> dict[str, Any]:
        chosen = self._best(self.selection.candidates)
        return report.summary(
            chosen,
            self.budgets,
            self.labels,
            self._notes(chosen),
            self.settings.deploy,
            self.other,
            self._measured(np.zeros(len(self.labels))).tolist() if self.episodes.finished else [],
            len(self.episodes.finished),
            reason="all steps taken" if self.finished else "in progress",
            steps=self.position,
            episodes=self.episodes.count,
            best_at=chosen.position if chosen else self.position,
            skipped=self.skipped,
        )

    def _notes(self, chosen: Candidate | None) -> list[str]:
        """What a reader of the result should know."""
        found = notes(self.selection.candidates, chosen, self.settings.window, len(self.episodes.finished))
        if self.total > self.settings.total_steps:
            found.append(f"total_steps {self.settings.total_steps}, but one rollout takes {self.batch_steps}")
        return found

    def policy(self) -> State:
        """The best candidate; the present policy while no window of episodes has been filled."""
        chosen = self._best(self.selection.candidates)
        tensors = chosen.tensors if chosen else resume.module_arrays(self.actor)
        build.check_tensors(tensors)
        card = build.card(self.interface, self.settings, self.networks.name) | {
            "budgets": self.budgets.tolist(),
            "labels": self.labels,
            "horizon": self.horizon,
            "seed": self.seed,
            "position": chosen.position if chosen else self.position,
            "measured": chosen.measured if chosen else [],
            "settings": asdict(self.settings),
        }
        return State(tensors, card)

    def images(self) -> dict[str, np.ndarray]:
        return {}

    # Saving and resuming

    @property
    def parts(self) -> dict[str, resume.Part]:
        parts: dict[str, Any] = {
            "actor": resume.ModulePart(self.actor),
            "critics": resume.ModulePart(self.critics),
            "actor_optimizer": resume.OptimizerPart(self.actor_optimizer),
            "critic_optimizer": resume.OptimizerPart(self.critic_optimizer),
            "action_rng": resume.GeneratorPart(self.action_rng),
            "batch_rng": resume.GeneratorPart(self.batch_rng),
            "moments": self.moments,
            "cost_moments": self.cost_moments,
            "episodes": self.episodes,
            "calibration": self.calibration,
            "profile": self.profile,
            "aim": self.aim,
            "rollout": self.rollout,
            "switch": self.switch,
            "selection": self.selection,
        }
        average = resume.ModulePart(self.average) if self.average else None
        more = {"model": self.model, "adversaries": self.adversaries, "average": average}
        return parts | {name: part for name, part in more.items() if part is not None}

    def state(self) -> State:
        tensors, data = resume.save(self.parts)
        own = {
            "position": self.position,
            "skipped": self.skipped,
            "other": self.other,
            "inexact": self.inexact,
        }
        return State({**tensors, "initial": self.initial.copy()}, {**data, **own})

    def load(self, state: State) -> None:
        resume.restore(self.parts, state)
        own = resume.module_arrays(self.actor)
        build.check_tensors(own)
        for candidate in filter(None, self.selection.candidates):
            build.check_tensors(candidate.tensors)
            resume.check_shapes(own, candidate.tensors)
        self.initial = np.array(state.tensors["initial"])
        self.position, self.skipped = int(state.data["position"]), int(state.data["skipped"])
        self.other = state.data["other"]
        self.inexact = self.rollout.inexact or state.data["inexact"]
        if self.rollout.inexact is not None:
            self.restart_environments()

    def restart_environments(self) -> None:
        """Begin new episodes in the middle of a run, from a seed of their own."""
        self._reset(environment_seed(self.seed, self.position))
        self.episodes.clear()

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.tensor(np.asarray(array), dtype=torch.float32, device=self.device)


def _check_robust(box: Parameters, envs: VectorEnv, settings: DeepSettings) -> None:
    if not parameters(envs):
        raise InputError(
            f"uncertainty: parameters given, but {envs.unwrapped} has none to vary; nominal or ipm expected"
        )
    if settings.advantage == "q_regression":
        raise InputError("advantage: q_regression given, gae expected with uncertain parameters")
    if not settings.calibrate:
        raise InputError("calibrate: false given, true expected with uncertain parameters")


def averaging(decay: float) -> Callable[..., None]:
    """For torch's `AveragedModel`: running means, but of whole numbers and masks in a user's network the present ones."""
    mean = get_ema_multi_avg_fn(decay)

    def update(averages: list[Tensor], present: list[Tensor], count: Any) -> None:
        if averages[0].is_floating_point():
            mean(averages, present, count)
        else:
            for average, now in zip(averages, present, strict=True):
                average.copy_(now)

    return update


def _adam(module: torch.nn.Module, rate: float) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), lr=rate, fused=True)


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
