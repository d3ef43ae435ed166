# %% [markdown]
# # From logged data
#
# There is no model, only a log: state, action, costs, next state. How wrong an estimate may be follows from how much was seen.

# %%
import gymnasium as gym
import numpy as np

import rcac
from rcac.uncertainty import TotalVariation

true = gym.make("rcac:rcac/RiverSwim-v0").unwrapped.rcmdp  # what we pretend not to know
rng = np.random.default_rng(0)
count = 200_000
states, actions = rng.integers(6, size=count), rng.integers(2, size=count)
edges = true.kernel[states, actions].cumsum(axis=1)
next_states = np.minimum((rng.random((count, 1)) > edges).sum(axis=1), 5)
costs = true.costs[:, states, actions].T  # (T, N+1): minus the reward, then the cost

# %%
estimate = rcac.RCMDP.from_transitions(
    states, actions, costs, next_states, num_states=6, num_actions=2, budgets=true.budgets, discount=true.discount
)
radii = estimate.total_variation_radius(confidence=0.95, successors=3)
print(np.round(radii, 4))

# %% [markdown]
# One radius for each state and action. With a probability of 95 % the true model lies within all of them, however the log was made. `successors=3`
# says that a state has at most three next states, which makes the radii smaller.
#
# A radius costs return, since the policy has to keep its budget in all models that remain possible:

# %%
nominal = rcac.solve(estimate.problem)
robust = rcac.solve(estimate.problem, uncertainty=TotalVariation(radii, within_support=True))
for name, policy in (("nominal", nominal.policy), ("robust", robust.policy)):
    found = rcac.evaluate(true, policy)
    print(
        f"{name:8} in the true model: reward {-found.returns[0]:5.1f}, cost {found.returns[1]:5.2f} of {true.budgets[0]:g}"
    )

# %% [markdown]
# With this confidence the robust policy's cost in the true model is at most its worst case, if all moves that are possible were seen
# (`within_support`). More data make the radii smaller.

# %%
robust
