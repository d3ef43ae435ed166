# %% [markdown]
# # An uncertainty set of your own
#
# A set answers one question: given values of the next states, what is the largest expectation over the set, and which rows attain it? Here: with
# probability ε the next state is the worst of all.
#
#     sup qᵀV = (1 − ε)·pᵀV + ε·max V

# %%
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

import rcac
from rcac.uncertainty import Contamination, Uncertainty, WorstCase


@dataclass(frozen=True)
class WorstJump(Uncertainty):
    epsilon: float

    def sweep(self, values, rows, memory=None):  # values (K, S) of K costs; M nominal rows, compressed
        nominal = (rows.matrix() @ values.T).T  # (K, M)
        return WorstCase(
            value=(1 - self.epsilon) * nominal + self.epsilon * values.max(axis=1, keepdims=True),
            indptr=rows.indptr,
            indices=rows.indices,  # the rows that attain it: these entries in each row …
            entries=np.tile((1 - self.epsilon) * rows.data, (len(values), 1)),
            amount=np.full(nominal.shape, self.epsilon),  # … plus, in all rows alike, so much
            direction=np.eye(values.shape[1])[values.argmax(axis=1)],  # of this, (K, S)
        )


# %%
problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
solution = rcac.solve(problem, uncertainty=WorstJump(0.01))
solution

# %% [markdown]
# This one is there already, as `Contamination`, so that the two can be compared:

# %%
ours = rcac.evaluate(problem, solution.policy, WorstJump(0.01)).returns
theirs = rcac.evaluate(problem, solution.policy, Contamination(0.01)).returns
assert np.allclose(ours, theirs)
ours, theirs


# %% [markdown]
# A name makes it known to the command line, `uncertainty=worst_jump uncertainty.epsilon=0.01`, and to `rcac.train`:


# %%
@rcac.register_uncertainty("worst_jump")
def worst_jump(problem, epsilon=0.01):
    return WorstJump(epsilon)


rcac.solve(problem, uncertainty="worst_jump")

# %% [markdown]
# `smooth = True` in a set says that its worst rows change continuously with the values, which lets the solver do without its precautions against
# kinks. This one has kinks: where the worst state changes.
