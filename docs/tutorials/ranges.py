# %% [markdown]
# # Robust for ranges of parameters
#
# What one knows of a real system is often a range: wind between so and so, sensors with up to so much noise. State the ranges, and each cost is held
# against the worst of them.

# %%
import textwrap

import rcac

ENV = "rcac/CartPoleTradeoff-v0"  # earns more left of the centre, and pays for the distance: budget 200 per episode
ranges = {"noise_high": (0.0, 0.1), "wind": (-2.0, 2.0)}

# %% [markdown]
# Our control tasks and MuJoCo bodies have such parameters, and [any environment can](../guide.md#parameters-of-an-environment). A third entry makes
# a range of factors, `(0.5, 2, "log")`.
#
# ## Train
#
# This page is built with a short training, to show how it is done; its policy is not good yet. `python scripts/tour.py` trains for longer.

# %%
result = rcac.train(ENV, algo="rcac_sqp", uncertainty=ranges, total_steps=60_000, num_envs=64, seed=0, progress=False)
result

# %% [markdown]
# Half of the copies act in contexts where a cost was large by the episodes measured there, and each cost has contexts of its own. The policy handed
# out is ranked by its worst context.
#
# ## What has come out
#
# Episodes in single contexts:

# %%
for wind in (-2.0, 0.0, 2.0):
    scores = rcac.evaluate_policy(result.policy, ENV, episodes=32, seed=1, wind=wind, noise_high=0.1)
    cost, lost = scores.costs.mean(axis=0)
    print(
        f"wind {wind:4.0f} N: return {scores.returns.mean():4.0f}, cost {cost:4.0f}, steps lost to a fall {lost:3.0f}"
    )

# %% [markdown]
# ## A certificate
#
# `rcac.certify` searches the ranges for the worst context, plays fresh episodes there, and states an upper bound on the mean cost, with a
# confidence. It also bounds the share of contexts, and of single episodes, that are over budget.

# %%
certificate = rcac.certify(
    result.policy,
    ENV,
    uncertainty=ranges,
    confidence=0.95,
    contexts=60,
    episodes=2,
    search_episodes=256,
    final_episodes=512,
)
print("certified:", certificate.certified)
print(*(textwrap.fill(statement, 88) for statement in certificate.statements()), sep="\n")

# %% [markdown]
# More episodes give tighter bounds. It claims nothing beyond the ranges, and not that no context is worse than the one found.
# `certificate.save(folder)` writes all of it, with a figure; on the command line it is `rcac-evaluate run=… certify=true`.
