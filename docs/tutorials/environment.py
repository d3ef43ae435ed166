# %% [markdown]
# # An environment of your own
#
# Any Gymnasium environment works if its `info` has a `"cost"`. Here a tank is to be kept full, and each step above .8 of its height costs 1.

# %%
import gymnasium as gym
import matplotlib.pyplot as plt
import numpy as np

import rcac


class Tank(gym.Env):
    observation_space = gym.spaces.Box(0, 1, (1,))
    action_space = gym.spaces.Discrete(2)  # drain, fill

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.level = 0.5
        return np.array([self.level], np.float32), {}

    def step(self, action):
        flow = 0.1 if action else -0.1
        self.level = float(np.clip(self.level + flow + self.np_random.normal(0, 0.02), 0, 1))
        observation = np.array([self.level], np.float32)
        return observation, self.level, False, False, {"cost": float(self.level > 0.8)}


# %% [markdown]
# ## Train
#
# Budgets are on the sum over an episode, and their names are yours. This training is short, so that the page is quick to build.

# %%
result = rcac.train(
    Tank,
    budgets={"overflow": 5.0},
    algo="rcac_sqp",
    total_steps=20_000,
    max_episode_steps=50,
    num_envs=8,
    rollout_length=64,
    seed=0,
    progress=False,
)
result

# %% [markdown]
# `result.policy` is the best policy by measured episodes; `result.summary["feasible"]` says whether it kept its budgets there.
#
# ## Test
#
# On fresh episodes, which no training saw:

# %%
scores = rcac.evaluate_policy(result.policy, Tank, episodes=100, seed=1, max_episode_steps=50)
print(f"return {scores.returns.mean():.1f}, overflow {scores.costs.mean():.2f} of 5")

# %% [markdown]
# ## Look
#
# `result.history` has every metric, a value for each update.

# %%
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 4), layout="constrained")
above.plot(result.history["position"], result.history["return/episode"])
above.set_ylabel("return")
below.plot(result.history["position"], result.history["cost/1/episode"])
below.axhline(5.0, linestyle="--", color="tab:red")
below.set(ylabel="overflow", xlabel="steps")
plt.show()

# %% [markdown]
# ## Keep
#
# With `folder="runs/tank"` the run writes checkpoints, metrics, curves for TensorBoard and the policy. `rcac.train(Tank, resume="runs/tank")` goes on
# after an interruption, and `rcac.load_policy("runs/tank")` is the policy, anywhere.
#
# Where an environment reports no cost, give a function: `cost=lambda observation, action, next_observation, reward, info: …`.
