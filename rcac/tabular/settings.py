"""The parts and numbers of a tabular method. A method is a row of these values, nothing more."""

from dataclasses import dataclass

from rcac.fields import COUNT, NOT_NEGATIVE, POSITIVE, TRUE_OR_FALSE, check_fields, field, one_of

SWITCH = one_of("surrogate", "crpo", "epigraph", "lagrangian")
STEP = one_of("natural", "softmax", "projected", "sqp")
OBJECTIVE, START = one_of("negated", "complement"), one_of("uniform", "random")


@dataclass
class TabularSettings:
    # Parts
    family: str = field("tabular", one_of("tabular"))  # which learner these settings are for
    switch: str = field("crpo", SWITCH)  # surrogate | crpo | epigraph | lagrangian: which cost to descend
    step: str = field("sqp", STEP)  # natural | softmax (natural by θ − α F⁻¹∇J) | projected | sqp: how the policy moves

    # Constraints
    lam: float = field(50.0, POSITIVE)  # λ of the surrogate: the objective enters as J_0/λ
    objective: str = field("negated", OBJECTIVE)  # negated: c_0 = −r | complement: r_max − r (surrogate)
    slack: float | None = field(0.0, NOT_NEGATIVE, optional=True)  # ξ (surrogate); null: enough for feasibility
    tolerance: float = field(0.0, NOT_NEGATIVE)  # excess over a budget that crpo and lagrangian accept
    multiplier_lr: float = field(1.0, POSITIVE)  # step of the multipliers on a budget's relative excess (lagrangian)

    # Work
    iterations: int = field(1000, COUNT)  # robust evaluations, the first policy's included
    levels: int = field(10, COUNT)  # bisections of the objective's level, sharing the iterations evenly (epigraph)
    restart: bool = field(False, TRUE_OR_FALSE)  # every level begins at the first policy, as in the paper (epigraph)
    step_size: float = field(1.0, POSITIVE)  # α of the natural, softmax and projected steps; sqp finds its own
    stationarity: float = field(1e-6, NOT_NEGATIVE)  # sqp stops when first-order improvements (relative) are smaller
    margin: float = field(1e-7, NOT_NEGATIVE)  # sqp aims this far (relative) inside each budget
    starts: int = field(1, COUNT)  # sqp: further starts are random; the best answer counts
    start: str = field("uniform", START)  # first policy: uniform | random (softmax of N(0, 1) samples)

    # Evaluation; what is handed out is evaluated exactly whatever these are
    samples: int | None = field(None, COUNT, optional=True)  # τ of the sampled evaluator (kl_penalty); null: exact
    noise: float = field(0.0, NOT_NEGATIVE)  # std of an error in every J and Q, relative to the largest |Q| of its cost

    def __post_init__(self) -> None:
        check_fields(self)
