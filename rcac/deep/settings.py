"""The parts and numbers of a deep actor-critic. An algorithm is a row of these values, nothing more."""

import math
import re
from dataclasses import dataclass

from rcac import registry
from rcac.errors import InputError
from rcac.fields import (
    COUNT,
    COUNT_OR_ZERO,
    FINITE,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    Check,
    check_fields,
    field,
    number,
    one_of,
    whole,
)

SWITCH = one_of("surrogate", "soft_surrogate", "crpo", "epigraph", "lagrangian", more=registry.switches.names)
STEP = one_of("gradient", "natural", "sqp", more=registry.steps.names)
DEPLOY = one_of("stochastic", "deterministic")
ADVANTAGE, CRITICS = one_of("gae", "q_regression"), one_of("all", "selected")
OBJECTIVE = one_of("negated", "complement")
SCOPE, SCALE = one_of("last_layer", "all"), one_of("independent", "dependent")
ACTIVATION = one_of("tanh", "relu", "elu", "silu", "gelu")
BELOW_ONE = number(lambda x: 0 <= x < 1, "a number in [0, 1)")
# Whether a device is there is known where a run begins.
DEVICE = Check(
    lambda x: bool(re.fullmatch(r"auto|(cpu|cuda|mps|xpu)(:[0-9]+)?", x)), lambda: "auto, cpu, cuda or cuda:<number>"
)


@dataclass
class DeepSettings:
    # Parts
    family: str = field("deep", one_of("deep"))  # which learner these settings are for
    switch: str = field("soft_surrogate", SWITCH)  # surrogate (hard) | soft_surrogate | crpo | epigraph | lagrangian
    step: str = field("natural", STEP)  # gradient | natural | sqp: how the actor moves
    advantage: str = field("gae", ADVANTAGE)  # gae | q_regression (one-step errors regressed on ∇log π)
    critics: str = field("all", CRITICS)  # all | selected: which critics are fitted after a step
    scope: str = field("last_layer", SCOPE)  # last_layer | all: which critic weights the IPM norm covers

    # Robustness and constraints
    radius: float = field(1e-3, NOT_NEGATIVE)  # ρ of the IPM set; 0 is not robust
    lam: float = field(50.0, POSITIVE)  # λ of the surrogate: the objective enters as J_0/λ
    objective: str = field("negated", OBJECTIVE)  # negated: c_0 = −r | complement: the paper's r_max − r (surrogates)
    reward_bound: float | None = field(None, POSITIVE, optional=True)  # r_max of complement; null: the largest seen
    width: float = field(0.5, POSITIVE)  # share of a budget, below it, where objective and cost mix (soft_surrogate)
    slack: float = field(0.0, NOT_NEGATIVE)  # ξ, discounted: aim this far below each budget (surrogate, sqp)
    integral: float = field(0.05, FRACTION)  # gain on the sum of past excesses, to aim below a budget (not lagrangian)
    tolerance: float = field(0.0, NOT_NEGATIVE)  # discounted excess that is accepted (crpo, epigraph, lagrangian)
    epigraph_phases: int = field(8, COUNT)  # bisections of the level, spread evenly over the run
    epigraph_low: float | None = field(None, FINITE, optional=True)  # lowest level of J_0; null: from the first costs
    epigraph_high: float | None = field(None, FINITE, optional=True)  # highest level of J_0; null: likewise
    kp: float = field(2.0, NOT_NEGATIVE)  # proportional gain on a constraint's relative excess (lagrangian)
    ki: float = field(1.0, NOT_NEGATIVE)  # integral gain, times multiplier_lr (lagrangian)
    kd: float = field(0.1, NOT_NEGATIVE)  # gain on an excess that rises (lagrangian)
    multiplier_init: float = field(0.001, NOT_NEGATIVE)  # first multiplier of every constraint (lagrangian)
    multiplier_lr: float = field(0.035, POSITIVE)  # learning rate of the multipliers (lagrangian)
    multiplier_max: float = field(100.0, POSITIVE)  # bound on a multiplier (lagrangian)

    # Experience
    total_steps: int = field(1_000_000, COUNT)  # environment steps, all environments together
    num_envs: int = field(32, COUNT)  # environments, stepped together
    rollout_length: int = field(128, whole(2))  # steps of every environment between updates
    gamma: float = field(0.995, BELOW_ONE)  # discount of every cost
    gae_lambda: float = field(0.98, FRACTION)  # λ of the advantages: 0 one-step, 1 to the end of the rollout
    critic_lambda: float = field(0.98, FRACTION)  # λ of the critics' targets; larger: estimates of J_n follow faster
    history: int = field(1, COUNT)  # observations that networks see, with the actions between them; 1: the present one
    window: int = field(64, COUNT)  # last finished episodes over which policies are measured
    trials: int = field(4, COUNT_OR_ZERO)  # candidates tried alone in the end, a window of episodes each; ≤ ⅒ of steps
    deploy: str = field("stochastic", DEPLOY)  # stochastic | deterministic: the way of acting that is tried and ranked
    calibrate: bool = True  # budgets bound plain episode sums, and measured ones correct J_n; false: discounted sums
    initial_states: int = field(256, COUNT)  # recent initial states at which J_n is estimated

    # Networks
    network: str | None = None  # a body registered by @rcac.register_network; null: ours, by the spaces
    actor_hidden: list[int] = field([64, 64], COUNT)  # widths of the actor's layers (behind convolutions, for images)
    critic_hidden: list[int] = field([64, 64], COUNT)  # widths of every critic's layers
    activation: str = field("tanh", ACTIVATION)  # tanh | relu | elu | silu | gelu
    layer_norm: bool = False  # LayerNorm before every activation
    shared_body: bool = False  # one body for all (actor_hidden); fitting critics then moves the policy a little
    normalize_observations: bool = True  # running mean and variance; kept with the policy
    gaussian_scale: str = field("independent", SCALE)  # independent | dependent (on the state); continuous actions
    initial_log_std: float = field(0.0, FINITE)  # log of the first std, in units of half the action range
    squash: bool = False  # continuous actions through tanh, instead of a clip to their range

    # Actor
    actor_lr: float = field(1e-3, POSITIVE)  # Adam's rate (gradient)
    actor_epochs: int = field(4, COUNT)  # passes over a batch (gradient)
    actor_batch: int = field(512, COUNT)  # samples of a minibatch (gradient)
    clip: float = field(0.2, NOT_NEGATIVE)  # samples with |π/π_old − 1| beyond it stop pulling; 0 none (gradient)
    entropy: float = field(0.0, NOT_NEGATIVE)  # weight of the entropy bonus (gradient, natural)
    normalize_advantages: bool = True  # to mean 0 and std 1 (gradient, natural)
    max_grad_norm: float = field(0.5, POSITIVE)  # gradients are shortened to this length (gradient)
    kl_radius: float = field(0.01, POSITIVE)  # mean KL(π_old‖π) that one step may use (natural, sqp)
    damping: float = field(0.05, NOT_NEGATIVE)  # on the Fisher matrix's diagonal (natural, sqp, q_regression)
    cg_iterations: int = field(10, COUNT)  # of conjugate gradient (natural, sqp, q_regression)
    fisher_states: int = field(1024, COUNT_OR_ZERO)  # states that enter the Fisher matrix; 0 all (natural, sqp)
    backtracks: int = field(15, COUNT_OR_ZERO)  # times a rejected step is shortened before it is skipped (natural, sqp)

    # Critics
    critic_lr: float = field(1e-3, POSITIVE)  # Adam's rate
    critic_epochs: int = field(2, COUNT)  # passes over a batch
    critic_batch: int = field(512, COUNT)  # samples of a minibatch

    # Schedule and machine
    anneal: float = field(1.0, FRACTION)  # last share of the run in which actor_lr and kl_radius fall linearly to zero
    device: str = field("auto", DEVICE)  # auto (cuda if there is one) | cpu | cuda | cuda:1 …
    threads: int = field(1, COUNT_OR_ZERO)  # of torch; 0 leaves them alone. For small networks one beats two

    def __post_init__(self) -> None:
        check_fields(self)
        low, high = self.epigraph_low, self.epigraph_high
        if (low is None) != (high is None):
            raise InputError(f"epigraph_low, epigraph_high: {low}, {high} given, both or neither expected")
        if low is not None and high is not None and not -math.inf < low < high < math.inf:
            raise InputError(f"epigraph_low, epigraph_high: {low}, {high} given, finite and low < high expected")
