"""What a user knows about the real system: ranges of the simulator's parameters.

A context ξ is one choice of the parameters. It lies in a box, with a law p: each ξ_j uniform or log-uniform on [low_j, high_j],
independently. A policy's cost in a context is J_n(π, ξ), and

    J_n(π) = max over q in 𝒬_n of  E_{ξ~q} J_n(π, ξ)            each cost with its own adversary q_n over contexts

    risk     𝒬                        q that attains the maximum, for a law p on finitely many contexts
    worst    every q                  all mass on the largest J
    kl       KL(q‖p) ≤ ρ              q ∝ p·exp(J/β), β such that the KL is ρ
    cvar     q ≤ p/α                  the law on its worst share α
    mean     q = p                    p itself: plain randomisation

Inside, contexts are points u of the unit cube, on which the law is uniform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from rcac.errors import InputError

RISKS = {"worst": None, "mean": None, "kl": "a radius > 0", "cvar": "a share in (0, 1]"}  # kind → its parameter
DEFAULT_RISK = {"return": "mean", "cost": "worst"}
MAX_CORNERS = 1 << 10


class Range(NamedTuple):
    """The values that one parameter may have."""

    low: float
    high: float
    log: bool = False  # log-uniform rather than uniform

    @classmethod
    def parse(cls, name: str, given: Any) -> "Range":
        """From `(low, high)` or `(low, high, "log")`."""
        expected = f'ranges.{name}: {given!r} given, (low, high) or (low, high, "log") expected'
        if isinstance(given, Range):
            return given
        if not isinstance(given, Sequence) or isinstance(given, str) or len(given) not in (2, 3):
            raise InputError(expected)
        *ends, scale = given if len(given) == 3 else (*given, "linear")
        if scale not in ("log", "linear"):
            raise InputError(expected)
        try:
            low, high = (float(end) for end in ends)
        except (TypeError, ValueError):
            raise InputError(expected) from None
        if not (np.isfinite([low, high]).all() and low <= high):
            raise InputError(f"ranges.{name}: {given!r} given, finite numbers low ≤ high expected")
        if scale == "log" and low <= 0:
            raise InputError(f"ranges.{name}: {given!r} given, low > 0 expected on a log scale")
        return cls(low, high, scale == "log")

    def from_unit(self, u: np.ndarray) -> np.ndarray:
        if self.log:
            return np.clip(self.low * (self.high / self.low) ** u, self.low, self.high)
        return self.low + (self.high - self.low) * u

    def to_unit(self, values: np.ndarray) -> np.ndarray:
        if self.low == self.high:
            return np.full(np.shape(values), 0.5)
        if self.log:
            return np.log(np.asarray(values) / self.low) / np.log(self.high / self.low)
        return (np.asarray(values) - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Risk:
    """How an adversary may choose among contexts."""

    kind: str
    parameter: float = 0.0  # ρ of kl, α of cvar

    @classmethod
    def parse(cls, field: str, given: Any) -> "Risk":
        """From `"worst"`, `"mean"`, `{"kl": 1.5}` or `{"cvar": 0.1}`."""
        if isinstance(given, Risk):
            return given
        kind, parameter = given, None
        if isinstance(given, Mapping) and len(given) == 1:
            ((kind, parameter),) = given.items()
        if kind not in RISKS or (RISKS[kind] is None) != (parameter is None):
            raise InputError(f"{field}: {given!r} given, worst, mean, {{kl: radius}} or {{cvar: share}} expected")
        if parameter is None:
            return cls(kind)
        number = isinstance(parameter, int | float) and not isinstance(parameter, bool)
        if not number or not 0 < parameter <= (1 if kind == "cvar" else np.inf):
            raise InputError(f"{field}: {parameter!r} given, {RISKS[kind]} expected for {kind}")
        return cls(kind, float(parameter))

    def adversary(self, values: np.ndarray, law: np.ndarray) -> np.ndarray:
        """q (M,) for J (M,) at contexts of law p (M,)."""
        match self.kind:
            case "mean":
                return law
            case "worst":
                return _shared(values == values.max(), law)
            case "cvar":
                return _cvar(values, law, self.parameter)
            case _:
                return _tilted(values, law, self.parameter)


def _shared(where: np.ndarray, law: np.ndarray) -> np.ndarray:
    """The law on some of the contexts."""
    mass = np.where(where, law, 0.0)
    return mass / mass.sum()


def _cvar(values: np.ndarray, law: np.ndarray, share: float) -> np.ndarray:
    order = np.argsort(-values, kind="stable")
    cumulative = np.minimum(np.cumsum(law[order]) / share, 1.0)
    q = np.empty_like(law)
    q[order] = np.diff(cumulative, prepend=0.0)
    return q / q.sum()


def _tilted(values: np.ndarray, law: np.ndarray, radius: float) -> np.ndarray:
    spread = values.max() - values.min()
    top = _shared(values == values.max(), law)
    if spread == 0 or radius >= -np.log(law[values == values.max()].sum()):
        return top  # the ball holds the largest alone

    below = (values - values.max()) / spread  # in [−1, 0], so that the unit of J does not matter

    def tilt(inverse: float) -> np.ndarray:
        grown = law * np.exp(inverse * below)
        return grown / grown.sum()

    def excess(inverse: float) -> float:
        q = tilt(inverse)
        held = q > 0
        return float(q[held] @ np.log(q[held] / law[held])) - radius

    high = 1.0
    while excess(high) < 0:
        high *= 2
    return tilt(float(brentq(excess, 0.0, high, rtol=1e-12)))


class Parameters:
    """Uncertain parameters of a simulator, to train against and to certify over.

    Parameters
    ----------
    ranges : mapping
        From a parameter's name to `(low, high)`, or `(low, high, "log")` for factors.
    risk : str or mapping
        How an adversary may choose: worst, mean, `{"kl": radius}` or `{"cvar": share}`; or by term, `{"return": "mean"}`.
        The return counts by its mean and every cost by its worst case, if not given.

    Examples
    --------
    >>> import numpy as np
    >>> box = Parameters({"wind": (-2, 2), "length": (0.5, 2.0, "log")}, risk={"cost": {"kl": 2.5}})
    >>> box.names
    ('wind', 'length')
    >>> box.contexts(np.array([[0.5, 0.5]]))
    {'wind': array([0.]), 'length': array([1.])}
    """

    def __init__(self, ranges: Mapping[str, Any], risk: Any = None) -> None:
        if not isinstance(ranges, Mapping) or not ranges:
            raise InputError(f"ranges: {ranges!r} given, a dictionary like {{'wind': (-2, 2)}} expected")
        self.ranges = {str(name): Range.parse(str(name), given) for name, given in ranges.items()}
        self._risk = self._parse_risk(DEFAULT_RISK if risk is None else risk)

    @staticmethod
    def _parse_risk(given: Any) -> dict[str, Risk]:
        """The risk of the return, of costs, and of costs by their labels."""
        if isinstance(given, Mapping) and not (given.keys() <= RISKS.keys()):
            return {str(label): Risk.parse(f"risk.{label}", risk) for label, risk in {**DEFAULT_RISK, **given}.items()}
        return {"return": Risk.parse("risk", given), "cost": Risk.parse("risk", given)}

    def risks(self, labels: Sequence[str]) -> list[Risk]:
        """One for each of the `labels` (N+1,), objective first; a label that is not named is treated as `cost`."""
        if unknown := self._risk.keys() - {*labels, "return", "cost"}:
            raise InputError(
                f"risk.{min(unknown)}: given, one of {', '.join(['return', 'cost', *labels[1:]])} expected"
            )
        return [self._risk["return"], *(self._risk.get(label, self._risk["cost"]) for label in labels[1:])]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ranges)

    @property
    def dimension(self) -> int:
        return len(self.ranges)

    def contexts(self, unit: np.ndarray) -> dict[str, np.ndarray]:
        """Parameters (M,) by name, of points (M, d) of the unit cube."""
        return {name: self.ranges[name].from_unit(unit[:, j]) for j, name in enumerate(self.names)}

    def unit(self, contexts: Mapping[str, Any]) -> np.ndarray:
        """Points (M, d) of the unit cube for `contexts`, arrays by name, or (d,) for single values."""
        return np.stack([self.ranges[name].to_unit(contexts[name]) for name in self.names], axis=-1)

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, d) independent points of the law, by the generator `rng`."""
        return rng.random((count, self.dimension))

    def corners(self) -> np.ndarray:
        """(2^d, d) corners of the box, at most 1024 of them (spread evenly over all)."""
        free = [(0.0, 1.0) if r.low < r.high else (0.5,) for r in self.ranges.values()]
        count = int(np.prod([float(len(ends)) for ends in free]))
        if count <= MAX_CORNERS:
            return np.array(list(product(*free)))
        from scipy.stats import qmc  # takes longer to import than all of rcac

        points = qmc.Sobol(self.dimension, seed=0).random(MAX_CORNERS)
        return np.where([len(ends) > 1 for ends in free], np.round(points), 0.5)

    def points(self, count: int, seed: int = 0) -> np.ndarray:
        """(count, d) low-discrepancy points inside, the same for the same `seed`."""
        exponent = max(0, int(np.ceil(np.log2(max(count, 1)))))
        from scipy.stats import qmc

        return qmc.Sobol(self.dimension, seed=seed).random_base2(exponent)[:count]

    def widened(self, factor: float) -> "Parameters":
        """The box scaled by a `factor` about its centre (on its own scale), to see what happens outside."""
        ends = np.array([[0.5 - factor / 2], [0.5 + factor / 2]])
        unclipped = {}
        for name, r in self.ranges.items():
            low, high = (_unclipped(r, float(u)) for u in ends[:, 0])
            unclipped[name] = Range(low, high, r.log)
        return Parameters(unclipped, self._risk)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, from which `Parameters(**data)` makes the same again."""
        ranges = {name: [r.low, r.high, *(["log"] if r.log else [])] for name, r in self.ranges.items()}
        risk = {k: {r.kind: r.parameter} if RISKS[r.kind] else r.kind for k, r in self._risk.items()}
        return {"ranges": ranges, "risk": risk}

    def __repr__(self) -> str:
        return f"Parameters({self.as_dict()['ranges']}, risk={self.as_dict()['risk']})"


def _unclipped(r: Range, u: float) -> float:
    return r.low * (r.high / r.low) ** u if r.log else r.low + (r.high - r.low) * u
