"""A problem estimated from logged transitions (s, a, c_0..c_N, s'), with how far the estimate may be off.

    counts n(s,a),    P̂(s'|s,a) = (n(s,a,s') + κ) / (n(s,a) + κ|R(s)|)  for s' in R(s),    ĉ_k(s,a) = mean of the logged costs

with smoothing κ ≥ 0 over R(s), the states that may follow s. `prior="all"`: every state, so a kernel that needs the prior
is dense. `prior="observed"`: those seen to follow s under any action (s itself where none was), so the kernel stays sparse.
A pair that was never seen goes to each state of R(s) alike, at the mean of all costs.

    With probability ≥ 1 − δ, for all (s,a) at once,
    ½‖P(·|s,a) − P̃(·|s,a)‖₁ ≤ ½ √( 2 (ln(2^m − 2) + ln(SA n(n+1)/δ)) / n )      with n = n(s,a)

for the empirical P̃ and rows with at most m successors. For one pair and a count fixed beforehand this is the bound of
Weissman et al. (2003) at level δ/(SA n(n+1)). A log's counts are random, and may depend on what was drawn: a policy that
learns visits some pairs because of where they led, and a log may end when it looks well. But the k-th visit to a pair
draws from P(·|s,a) whatever came before, so the first n draws are independent for each fixed n, and a union bound over the
pairs and all n ≥ 1 (Σ 1/(n(n+1)) = 1) covers whichever n the log ends with. So the promise holds for any log in which each
s' was drawn by the one true kernel and no transition was left out because of its s'.

Smoothing moves the estimate by at most κ|R(s)|/(n + κ|R(s)|) more. The radius of a pair that was never seen is 1: nothing
is known.

Weissman's bound takes each of the 2^m − 2 sets B of successors at the variance of a fair coin. Chernoff's bound for the same sets,
at the same level and with the same promise, follows the variance as Bernstein's does, and is never the weaker one:

    n·kl(P̃(B), P(B)) ≤ ln(2^m − 2) + ln(SA n(n+1)/δ),      kl(x, p) = x ln(x/p) + (1−x) ln((1−x)/(1−p)).

With p₁ the largest entry of P̃, every P̃(B) is at most 1 − p₁ or at least p₁, and the total variation is at most the largest P(B) − P̃(B)
that this leaves to such a set: little where one successor has most of the mass.

χ² and KL need an interval for every entry, l ≤ P(s'|s,a) ≤ u: all p with n·kl(P̃(s'|s,a), p) ≤ ln(2S) + ln(SA n(n+1)/δ), on both sides
and for all S entries, again for any log. States that were never seen to follow have l = 0; at most m − (those seen) of them have mass at
all, and together 1 − Σ l. A divergence is convex in P, so that each entry adds most at an end of its interval:

    χ²  Σ (P − P̂)²/P̂,      KL  Σ P ln(P/P̂) ≤ ln(1 + χ²).

These balls keep the support of P̂. So they hold the true kernel, with that probability, if P̂ reaches every state that P does: always
with smoothing over `prior="all"`; else it is for the user to know.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.special import rel_entr, xlogy

from rcac.errors import InputError

if TYPE_CHECKING:
    from rcac.problem import RCMDP

DENSE_LIMIT = 10**8  # entries of the largest dense kernel that is made: 0.8 GB


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimated problem and what it rests on."""

    problem: "RCMDP"
    counts: np.ndarray  # (S, A)
    transitions: sp.csr_array  # (S·A, S) n(s,a,s')
    prior: np.ndarray  # (S,) κ|R(s)|, the counts that smoothing added to each pair
    successors: int  # the most that any pair was seen to have

    def total_variation_radius(
        self, confidence: float = 0.95, successors: int | None = None, *, bernstein: bool = False
    ) -> np.ndarray:
        """(S, A) radii for `TotalVariation` such that the true kernel is in the set with this probability, however the
        log was made: the formula of this module.

        `successors`: no pair of the true model has more (m above; all S states when not given). Without it, radii are
        below 1 only where n(s,a) is well above S. `bernstein`: the radii that follow the variance, never larger, with the same promise.
        """
        states, actions = self.counts.shape
        most = self._most(confidence, successors)
        if states == 1:
            return np.zeros((1, actions))
        seen = np.maximum(self.counts, 1)
        drawn = np.zeros_like(self.counts, dtype=float)  # with one successor there is nothing to estimate
        if most > 1:
            shapes = most * np.log(2) + np.log1p(-(2.0 ** (1 - min(most, 1000))))  # ln(2^m − 2)
            share = np.log(states * actions / (1 - confidence)) + np.log(seen) + np.log(seen + 1)  # ln(SA n(n+1)/δ)
            drawn = 0.5 * np.sqrt(2 * (shapes + share) / seen)
            if bernstein:
                drawn = _largest_deviation((shapes + share) / seen, self._largest_entry())
        moved = self.prior[:, None] / (seen + self.prior[:, None])
        return np.where(self.counts > 0, np.minimum(drawn + moved, 1.0), 1.0)

    def chi_square_radius(self, confidence: float = 0.95, successors: int | None = None) -> np.ndarray:
        """(S, A) radii for `ChiSquare` such that the true kernel is in the set with this probability, however the log was made, if the
        estimate reaches every state that the true kernel does (`smoothing` > 0). Where nothing is known, all of the support."""
        return self._divergence(confidence, self._most(confidence, successors), "chi_square")

    def kl_radius(self, confidence: float = 0.95, successors: int | None = None) -> np.ndarray:
        """(S, A) radii for `KLBall`, with the promise of `chi_square_radius`."""
        return self._divergence(confidence, self._most(confidence, successors), "kl")

    def _largest_entry(self) -> np.ndarray:
        """p₁, (S, A); 0 for pairs never seen."""
        largest: np.ndarray = self.transitions.max(axis=1).toarray().reshape(self.counts.shape)
        shares: np.ndarray = largest / np.maximum(self.counts, 1)
        return shares

    def _most(self, confidence: float, successors: int | None) -> int:
        """m, with both arguments checked."""
        if not 0 < _number("confidence", confidence) < 1:
            raise InputError(f"confidence: {confidence} given, a number in (0, 1) expected")
        states = len(self.counts)
        most = states if successors is None else _whole("successors", successors)
        if not self.successors <= most <= states:
            raise InputError(f"successors: {most} given, {self.successors} (as many were seen) to {states} expected")
        return most

    def _divergence(self, confidence: float, most: int, kind: str) -> np.ndarray:
        """Radii from the intervals of all entries."""
        states, actions = self.counts.shape
        n = np.maximum(self.counts.ravel(), 1)
        level = np.log(2 * states) + np.log(states * actions / (1 - confidence)) + np.log(n) + np.log(n + 1.0)  # (S·A,)
        seen, prior = self.transitions, np.repeat(self.prior, actions)
        owner = np.repeat(np.arange(len(n)), np.diff(seen.indptr))
        low, high = chernoff_interval(seen.data, n[owner], level[owner])
        if most == 1:  # nothing is drawn
            low, high = np.ones_like(low), np.ones_like(high)
        possible = np.diff(self.problem.rows.indptr) - np.diff(
            seen.indptr
        )  # states of R(s) that were not seen to follow
        smoothing = prior / np.maximum(np.diff(self.problem.rows.indptr), 1)  # κ, where it is needed
        model, unseen = (seen.data + smoothing[owner]) / (n + prior)[owner], smoothing / (n + prior)  # P̂
        highest = -np.expm1(-level / n)  # u of a state that was not seen
        hidden = np.minimum(
            (most - np.diff(seen.indptr)) * highest, 1 - np.bincount(owner, weights=low, minlength=len(n))
        )  # mass that may be there
        at_ends = np.maximum(_DIVERGENCES[kind](low, model), _DIVERGENCES[kind](high, model))
        found = np.bincount(owner, weights=at_ends, minlength=len(n))
        rows = self.problem.rows
        smallest = np.minimum.reduceat(rows.data, rows.indptr[:-1])
        whole = 1 / smallest - 1 if kind == "chi_square" else -np.log(smallest)  # all of the support
        ratio = np.divide(highest, unseen, out=np.ones_like(unseen), where=(unseen > 0) & (possible > 0))
        grown = ratio if kind == "chi_square" else np.maximum(np.log(ratio), 0)
        found = found + np.where(possible > 0, np.maximum(hidden, 0) * grown, 0) + possible * unseen
        if kind == "kl":
            found = np.minimum(found, np.log1p(self._divergence(confidence, most, "chi_square").ravel()))
        return np.where(self.counts.ravel() > 0, np.minimum(found, whole), whole).reshape(states, actions)


# What an entry P adds to a divergence from P̂; convex in P, and 0 at P̂
_DIVERGENCES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "chi_square": lambda p, model: (p - model) ** 2 / model,
    "kl": lambda p, model: xlogy(p, p / model) - p + model,
}


def _largest_deviation(level: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """A bound on u(x) − x for all x ≤ 1 − largest and all x ≥ largest, where u is the upper end of kl(x, u) ≤ level.

    u(x) − x is concave (kl is convex in both). So it is largest at 1 − largest where it rises there, and at largest where it
    falls; otherwise √(level/2) holds for every x (Pinsker)."""
    anywhere = np.sqrt(level / 2)
    found = np.zeros_like(level)
    for x, rising in ((1 - largest, True), (largest, False)):
        u = chernoff_interval(x, np.ones_like(x), level)[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.log(u * (1 - x) / (x * (1 - u))) * u * (1 - u) / (u - x)  # u'(x)
        known = np.where((x == 0) | (x == 1), True, slope >= 1 if rising else slope <= 1)
        found = np.maximum(found, np.where(known, u - x, anywhere))
    bound: np.ndarray = np.minimum(found, anywhere)
    return bound


def chernoff_interval(successes: np.ndarray, n: np.ndarray, level: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The p with n·kl(successes/n, p) ≤ level: from bisection, on the safe side."""
    share = successes / n
    ends = []
    for outer in (np.zeros_like(share), np.ones_like(share)):
        inner = share.copy()
        for _ in range(55):
            middle = 0.5 * (inner + outer)
            inside = n * (rel_entr(share, middle) + rel_entr(1 - share, 1 - middle)) <= level
            inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
        ends.append(outer)
    return ends[0], ends[1]


def from_transitions(
    make: "type[RCMDP]",
    states: np.ndarray,  # (T,) int
    actions: np.ndarray,  # (T,) int
    costs: np.ndarray,  # (T, N+1), objective first, cost form
    next_states: np.ndarray,  # (T,) int
    *,
    num_states: int,
    num_actions: int,
    budgets: np.ndarray,  # (N,)
    discount: float,
    initial: np.ndarray | None = None,  # (S,), uniform when not given
    smoothing: float = 0.0,  # κ
    prior: str = "all",  # all | observed: R(s), where smoothing and pairs that were never seen may go
) -> Estimate:
    """Estimate kernel and costs from a log, as `RCMDP.from_transitions`: see the formulas of this module.

    Parameters
    ----------
    make : type
        The class of the problem; not given to the method of that name.
    states, actions, next_states : arrays (T,)
        Whole numbers.
    costs : array (T, N+1)
        Objective first, in cost form: a reward is negated.
    num_states, num_actions : int
        Of the problem.
    budgets, discount, initial
        As of `RCMDP`; `initial` is uniform, if not given.
    smoothing : float
        Counts that are added for each pair, spread over where it may go.
    prior : str
        all, or observed: where smoothing, and pairs never seen, may go. The second keeps large problems sparse.

    Returns
    -------
    Estimate
        `problem`, counts, and the radii that a confidence asks for.

    Examples
    --------
    See `RCMDP.from_transitions`.
    """
    num_states, num_actions = _whole("num_states", num_states), _whole("num_actions", num_actions)
    states, actions, next_states = (
        _indices(name, values, limit)
        for name, values, limit in (
            ("states", states, num_states),
            ("actions", actions, num_actions),
            ("next_states", next_states, num_states),
        )
    )
    if not len(states) == len(actions) == len(next_states) > 0:
        raise InputError(
            f"states, actions, next_states: {len(states)}, {len(actions)}, {len(next_states)} given, equal lengths > 0 expected"
        )
    costs = _costs(costs, len(states))
    if not 0 <= _number("smoothing", smoothing) < np.inf:
        raise InputError(f"smoothing: {smoothing} given, a finite number ≥ 0 expected")
    if prior not in ("all", "observed"):
        raise InputError(f"prior: {prior!r} given, 'all' or 'observed' expected")
    pairs = states * num_actions + actions
    size = num_states * num_actions
    seen = np.bincount(pairs, minlength=size)  # (S·A,)
    reached = _counts(pairs, next_states, size, num_states)  # n(s,a,s')
    counted = reached.copy()  # what follows may divide it
    weight = np.where(seen > 0, float(smoothing), 1.0)  # of each state of R(s); a pair never seen has nothing else
    if prior == "observed":
        follows = _followers(states, next_states, num_states)
        possible = np.diff(follows.indptr)  # |R(s)|
        rows = np.flatnonzero(weight)
        added = sp.csr_array(follows[rows // num_actions].multiply(weight[rows, None]))
        model = _normalised(reached + _placed(added, rows, size))
    else:
        possible = np.full(num_states, num_states)
        model = _with_all(reached, weight, num_actions) if weight.any() else _normalised(reached)
    means = np.stack([np.bincount(pairs, weights=c, minlength=size) for c in costs.T]) / np.maximum(seen, 1)
    means = np.where(seen > 0, means, costs.mean(axis=0)[:, None])
    if initial is None:
        initial = np.full(num_states, 1 / num_states)
    problem = make(model, means.reshape(-1, num_states, num_actions), budgets, initial, discount)
    most = int(np.diff(reached.indptr).max())
    return Estimate(problem, seen.reshape(num_states, num_actions), counted, smoothing * possible, most)


def _counts(rows: np.ndarray, columns: np.ndarray, height: int, width: int) -> sp.csr_array:
    """How often each (row, column) occurs."""
    matrix = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=(height, width))
    matrix.sum_duplicates()
    return matrix


def _followers(states: np.ndarray, next_states: np.ndarray, num_states: int) -> sp.csr_array:
    """(S, S) ones at R(s): the states seen to follow s, or s itself where none was."""
    alone = np.flatnonzero(np.bincount(states, minlength=num_states) == 0)
    matrix = _counts(np.concatenate([states, alone]), np.concatenate([next_states, alone]), num_states, num_states)
    matrix.data[:] = 1.0
    return matrix


def _placed(matrix: sp.csr_array, rows: np.ndarray, height: int) -> sp.csr_array:
    """The matrix whose rows `rows`, in rising order, are those given; all others are empty."""
    lengths = np.zeros(height, np.int64)
    lengths[rows] = np.diff(matrix.indptr)
    start = np.concatenate([[0], np.cumsum(lengths)])
    return sp.csr_array((matrix.data, matrix.indices, start), shape=(height, matrix.shape[1]))


def _normalised(matrix: sp.csr_array) -> sp.csr_array:
    """Rows divided by their sums."""
    sums = matrix.sum(axis=1)
    matrix.data /= np.repeat(sums, np.diff(matrix.indptr))
    return matrix


def _with_all(reached: sp.csr_array, weight: np.ndarray, num_actions: int) -> np.ndarray:
    """The kernel (S, A, S) with `weight` (S·A,) added at every state."""
    size, num_states = reached.shape
    if size * num_states > DENSE_LIMIT:
        raise InputError(
            f"prior: 'all' given, 'observed' expected for {num_states} states × {num_actions} actions: smoothing, and pairs "
            f"that were never seen ({int((np.diff(reached.indptr) == 0).sum())} here), would fill {size * num_states:.1e} entries"
        )
    kernel: np.ndarray = reached.toarray() + weight[:, None]
    kernel /= kernel.sum(axis=1, keepdims=True)
    return kernel.reshape(num_states, num_actions, num_states)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str | bool) or np.ndim(value) != 0:
        raise InputError(f"{name}: {value!r} given, a number expected")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name}: {value!r} given, a number expected") from None


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}: {value!r} given, a whole number ≥ 1 expected")
    return int(value)


def _costs(values: Any, count: int) -> np.ndarray:
    expected = f"({count}, N+1), objective first, expected"
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise InputError(f"costs: not an array of numbers, {expected}") from None
    if array.ndim != 2 or len(array) != count or array.shape[1] == 0:
        raise InputError(f"costs: shape {array.shape} given, {expected}")
    bad = ~np.isfinite(array)
    if bad.any():
        i, k = (int(x) for x in np.argwhere(bad)[0])
        raise InputError(f"costs[{i}, {k}]: {array[i, k]} given, a finite number expected")
    return array


def _indices(name: str, values: np.ndarray, limit: int) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{name}: rows of different lengths given, whole numbers (T,) expected") from None
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"{name}: {array.dtype} of shape {array.shape} given, whole numbers (T,) expected")
    bad = (array < 0) | (array >= limit)
    if bad.any():
        i = int(np.argmax(bad))
        raise InputError(f"{name}[{i}]: {array[i]} given, 0 to {limit - 1} expected")
    return array.astype(np.int64)
