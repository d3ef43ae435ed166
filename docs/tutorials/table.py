# %% [markdown]
# # A table of your own
#
# A machine wears out. In each state one can run it slowly, run it fast, or repair it. Fast earns more and wears more; a worn machine makes rejects,
# and for rejects there is a budget. How quickly it wears is known roughly.

# %%
import numpy as np

import rcac
from rcac.uncertainty import KLBall

SLOW, FAST, REPAIR = range(3)
wear = {SLOW: 0.1, FAST: 0.3}  # the probability that a step wears the machine by one state

kernel = np.zeros((4, 3, 4))  # P(s' | s, a); state 0 is new, state 3 worn out
for state in range(4):
    for action, probability in wear.items():
        kernel[state, action, min(state + 1, 3)] += probability
        kernel[state, action, state] += 1 - probability
    kernel[state, REPAIR, max(state - 1, 0)] = 1.0

reward = np.tile([1.0, 2.0, -0.5], (4, 1))  # what an action earns, (S, A)
rejects = np.array([0.0, 0.1, 0.4, 1.0])[:, None] * np.array([1.0, 1.5, 0.0])  # (S, A)

# %% [markdown]
# A problem is a kernel, a reward, costs with their budgets, where one starts, and a discount. A budget is on the discounted sum of its cost.

# %%
problem = rcac.RCMDP.from_rewards(
    kernel, reward, costs=[rejects], budgets=[1.0], initial=[1.0, 0.0, 0.0, 0.0], discount=0.95
)
problem

# %% [markdown]
# ## For the model as it is
#
# `rcac.solve` returns the policy, what it earns and costs, and how much better the optimum can be at most (the gap).

# %%
nominal = rcac.solve(problem)
nominal

# %% [markdown]
# ## For a model that may be wrong
#
# Let every row of the kernel be wrong by a Kullback–Leibler divergence of .05 at most. What does the policy above come to in the worst case?

# %%
possible = KLBall(0.05)
nominal_worst = rcac.evaluate(problem, nominal.policy, possible)
print(f"budget 1, in the model {nominal.costs[0]:.2f}, in the worst case {nominal_worst.returns[1]:.2f}")

# %% [markdown]
# It breaks its budget. Now solve against the worst case:

# %%
robust = rcac.solve(problem, uncertainty=possible)
assert robust.feasible
robust

# %%
as_is = rcac.evaluate(problem, robust.policy)  # what that costs in the model as it is
print("            reward   cost")
print(f"nominal    {nominal.rewards[0]:7.2f} {nominal.costs[0]:6.2f}")
print(f"robust     {-as_is.returns[0]:7.2f} {as_is.returns[1]:6.2f}")

# %% [markdown]
# What it does differently; rows are states, columns slow, fast, repair:

# %%
print(np.round(nominal.policy, 2), np.round(robust.policy, 2), sep="\n\n")

# %% [markdown]
# ## What one can ask further
#
# `robust.plot()` draws how it came about, `robust.save("solution.npz")` keeps it. `problem.save("my.npz")`, then
# `rcac-train env=custom env.path=my.npz`, does the same with a folder, curves and checkpoints. A budget that no policy can keep is refused with a
# proof, as `rcac.Infeasible`.
