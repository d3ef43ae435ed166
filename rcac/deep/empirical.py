"""What a tabular environment has shown so far: every transition of a run, whatever policy made it, as a model.

    P̂(s'|s,a) = N(s,a,s')/N(s,a)        ĉ_n(s,a) the mean cost        V = ĉ_π + γ P̂_π V        J_n = mean of V_n over s_0

The dynamics do not depend on the policy, so all transitions tell about each policy of the run, where its own episodes are
few and the discount leaves little of them. A step that terminates leads nowhere. An action never tried in a state is left
out of the policy there; a state never left is worth the mean of the others.
"""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

from rcac.deep.rollout import Trajectory
from rcac.learner import State


class EmpiricalModel:
    """Counts over S states and A actions, of those seen only."""

    def __init__(self, states: int, actions: int, costs: int) -> None:
        self.states, self.actions = states, actions
        self.visits = np.zeros(states * actions)  # N(s,a)
        self.costs = np.zeros((costs, states * actions))  # Σ c
        self.moves = sp.csr_array((states * actions, states))  # N(s,a,s')

    def add(self, trajectory: Trajectory) -> None:
        """A rollout of one-hot observations and actions by their index."""
        valid, rows = trajectory.valid, len(self.visits)
        there = trajectory.observations[1:].argmax(axis=2)
        if len(trajectory.final):
            there[tuple(trajectory.final_at.T)] = trajectory.final.argmax(axis=1)
        pairs = trajectory.observations[:-1].argmax(axis=2)[valid] * self.actions + trajectory.actions[valid]
        self.visits += np.bincount(pairs, minlength=rows)
        self.costs += [np.bincount(pairs, weights=cost[valid], minlength=rows) for cost in trajectory.costs]
        goes_on = ~trajectory.terminated[valid]
        pairs, there = pairs[goes_on], there[valid][goes_on]
        self.moves = self.moves + sp.csr_array((np.ones(len(pairs)), (pairs, there)), shape=self.moves.shape)

    def returns(self, policy: np.ndarray, initial: np.ndarray, gamma: float) -> np.ndarray:
        """J (K,) of a policy (S, A) from initial states (k,), by their index."""
        weights = policy.ravel() * (self.visits > 0)
        total = weights.reshape(policy.shape).sum(axis=1)
        seen = total > 0
        mixed = weights / np.repeat(np.where(seen, total, 1.0), self.actions) / np.maximum(self.visits, 1.0)
        states = np.repeat(np.arange(self.states), self.actions)
        mean = sp.csr_array((mixed, (states, np.arange(len(mixed)))), shape=(self.states, len(mixed)))  # (S, S·A)
        # One unknown more, z = mean of V over the states that were left; V(s) = z for the others.
        column = sp.csr_array(np.where(seen, 0.0, -1.0)[:, None])
        row = sp.csr_array(np.where(seen, -1.0 / max(seen.sum(), 1), 0.0)[None])
        matrix = sp.block_array(
            [[sp.eye_array(self.states) - gamma * (mean @ self.moves), column], [row, np.ones((1, 1))]], format="csc"
        )
        right = np.vstack([mean @ self.costs.T, np.zeros(len(self.costs))])
        return spsolve(matrix, right).reshape(self.states + 1, -1)[initial].mean(axis=0)

    def state(self) -> State:
        moves = sp.coo_array(self.moves)
        tensors = {
            "visits": self.visits.copy(),
            "costs": self.costs.copy(),
            "pairs": moves.coords[0].astype(np.int64),
            "next": moves.coords[1].astype(np.int64),
            "moves": moves.data.copy(),
        }
        return State(tensors, {})

    def load(self, state: State) -> None:
        found = state.tensors
        self.visits, self.costs = found["visits"], found["costs"]
        self.moves = sp.csr_array((found["moves"], (found["pairs"], found["next"])), shape=self.moves.shape)
