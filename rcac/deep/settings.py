"""The parts and numbers of a deep actor-critic. An algorithm is a row of these values, nothing more."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rcac.errors import InputError


@dataclass
class DeepSettings:
    # Parts
    family: str = "deep"  # which learner these settings are for
    switch: str = "surrogate"  # surrogate | crpo | epigraph: which cost to descend, and how policies are ranked
    step: str = "natural"  # gradient | natural | sqp: how the actor moves
    advantage: str = "gae"  # gae | q_regression (one-step errors regressed on ∇log π)
    critics: str = "all"  # all | selected: which critics are fitted after a step
    scope: str = "last_layer"  # last_layer | all: which critic weights the IPM norm covers

    # Robustness and constraints
    radius: float = 1e-3  # ρ of the IPM set; 0 is not robust
    lam: float = 50.0  # λ of the surrogate: the objective enters as J_0/λ
    slack: float = 0.0  # ξ ≥ 0, in discounted units: aim this far below each budget (surrogate, sqp)
    tolerance: float = 0.0  # excess over a budget that is accepted, in discounted units (crpo, epigraph)
    epigraph_phases: int = 8  # bisections of the level, spread evenly over the run
    epigraph_low: float | None = None  # lowest level of J_0; None: from the costs of the first rollout
    epigraph_high: float | None = None  # highest level of J_0; None: likewise

    # Experience
    total_steps: int = 1_000_000  # environment steps, all copies together
    num_envs: int = 32  # environment copies
    rollout_length: int = 128  # steps of every copy between updates
    gamma: float = 0.995  # discount of every cost
    gae_lambda: float = 0.98  # λ of the advantages: 0 one-step, 1 to the end of the rollout
    critic_lambda: float = 0.98  # λ of the critics' targets; a larger one lets the estimates of J_n follow faster
    window: int = 64  # last finished episodes over which policies are measured
    trials: int = 4  # candidates that act alone for an episode of every copy in the end; at most a fifth of all steps
    calibrate: bool = True  # budgets bound plain episode sums, so measured ones correct the estimates of J_n (see
    # rcac.deep.trainer); False: the budgets, once multiplied by κ, bound discounted sums
    initial_states: int = 256  # recent initial states at which J_n is estimated

    # Networks
    actor_hidden: list[int] = field(default_factory=lambda: [64, 64])  # widths of the actor's tanh layers
    critic_hidden: list[int] = field(default_factory=lambda: [64, 64])  # widths of every critic's tanh layers
    normalize_observations: bool = True  # running mean and variance; kept with the policy
    gaussian_scale: str = "independent"  # independent | dependent (on the state); continuous actions
    initial_log_std: float = 0.0  # log of the first scale, in units of half the action range

    # Actor
    actor_lr: float = 1e-3  # Adam's rate (gradient)
    actor_epochs: int = 4  # passes over a batch (gradient)
    actor_batch: int = 512  # samples of a minibatch (gradient)
    clip: float = 0.2  # bound on |π/π_old − 1| beyond which a sample stops pulling; 0 none (gradient)
    entropy: float = 0.0  # weight of the entropy bonus (gradient, natural)
    normalize_advantages: bool = True  # to mean 0 and deviation 1 (gradient, natural)
    max_grad_norm: float = 0.5  # gradients are shortened to this length (gradient)
    kl_radius: float = 0.01  # mean KL(π_old‖π) that one step may use (natural, sqp)
    damping: float = 0.05  # added to the Fisher matrix's diagonal (natural, sqp, q_regression)
    cg_iterations: int = 10  # of conjugate gradient (natural, sqp, q_regression)
    fisher_states: int = 1024  # states of a batch that enter the Fisher matrix; 0 all (natural, sqp)
    backtracks: int = 15  # times a refused step is shortened before it is given up (natural, sqp)

    # Critics
    critic_lr: float = 1e-3  # Adam's rate
    critic_epochs: int = 2  # passes over a batch
    critic_batch: int = 512  # samples of a minibatch

    # Schedule and machine
    anneal: bool = True  # the actor's learning rate and KL radius fall linearly to zero
    device: str = "auto"  # auto (cuda if there is one) | cpu | cuda | cuda:1 …
    threads: int = 1  # of torch; 0 leaves them alone. For small networks one beats two

    def __post_init__(self) -> None:
        validate(self)


Test = tuple[Callable[[float], bool], str]

_positive: Test = (lambda x: 0 < x < math.inf, "a positive finite number")
_not_negative: Test = (lambda x: 0 <= x < math.inf, "a finite number ≥ 0")
_finite: Test = (math.isfinite, "a finite number")
_fraction: Test = (lambda x: 0 <= x <= 1, "a number in [0, 1]")
_count: Test = (lambda x: isinstance(x, int) and x >= 1, "a whole number ≥ 1")
_count_or_zero: Test = (lambda x: isinstance(x, int) and x >= 0, "a whole number ≥ 0")

CHOICES = {
    "family": ("deep",),
    "switch": ("surrogate", "crpo", "epigraph"),
    "step": ("gradient", "natural", "sqp"),
    "advantage": ("gae", "q_regression"),
    "critics": ("all", "selected"),
    "scope": ("last_layer", "all"),
    "gaussian_scale": ("independent", "dependent"),
}

DEVICE = r"auto|(cpu|cuda|mps|xpu)(:[0-9]+)?"  # whether it is there is known where a run begins

RANGES: dict[str, Test] = {
    "radius": _not_negative,
    "lam": _positive,
    "slack": _not_negative,
    "tolerance": _not_negative,
    "epigraph_phases": _count,
    "total_steps": _count,
    "num_envs": _count,
    "rollout_length": (lambda x: isinstance(x, int) and x >= 2, "a whole number ≥ 2"),  # one step may only reset
    "gamma": (lambda x: 0 <= x < 1, "a number in [0, 1)"),
    "gae_lambda": _fraction,
    "critic_lambda": _fraction,
    "window": _count,
    "trials": _count_or_zero,
    "initial_states": _count,
    "initial_log_std": _finite,
    "actor_lr": _positive,
    "actor_epochs": _count,
    "actor_batch": _count,
    "clip": _not_negative,
    "entropy": _not_negative,
    "max_grad_norm": _positive,
    "kl_radius": _positive,
    "damping": _not_negative,
    "cg_iterations": _count,
    "fisher_states": _count_or_zero,
    "backtracks": _count_or_zero,
    "critic_lr": _positive,
    "critic_epochs": _count,
    "critic_batch": _count,
    "threads": _count_or_zero,
}


def validate(settings: DeepSettings) -> None:
    """Raise InputError on the first value that cannot be used."""
    for name, allowed in CHOICES.items():
        value = getattr(settings, name)
        if value not in allowed:
            raise InputError(f"{name}: {value!r} given, one of {', '.join(allowed)} expected")
    for name, (holds, expected) in RANGES.items():
        value = getattr(settings, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
            raise InputError(f"{name}: {value!r} given, {expected} expected")
    for name in ("actor_hidden", "critic_hidden"):
        for index, width in enumerate(getattr(settings, name)):
            if isinstance(width, bool) or not isinstance(width, int) or width < 1:
                raise InputError(f"{name}[{index}]: {width!r} given, a whole number ≥ 1 expected")
    if not re.fullmatch(DEVICE, settings.device):
        raise InputError(f"device: {settings.device!r} given, auto, cpu, cuda or cuda:<number> expected")
    low, high = settings.epigraph_low, settings.epigraph_high
    if (low is None) != (high is None):
        raise InputError(f"epigraph_low, epigraph_high: {low}, {high} given, both or neither expected")
    if low is not None and high is not None and not -math.inf < low < high < math.inf:
        raise InputError(f"epigraph_low, epigraph_high: {low}, {high} given, finite and low < high expected")
