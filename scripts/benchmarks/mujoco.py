"""HalfCheetah beside Stable-Baselines3's PPO (extra `peers`): environment steps per second with updates included, and what a
PPO earns.

Both have 8 environments, rollouts of 256 steps, 10 passes over a batch and two tanh layers of 64. Ours has a speed limit,
its cost and a second critic; theirs has neither, and normalises observations and rewards as its zoo does. For the returns our
PPO-Lagrangian gets a budget that nothing exceeds. Times are CPU time; physics on one thread.
"""

import statistics
import time
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import rcac
from benchmarks.measure import Row, absent
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.registry import algorithm, rows

ENV, ALGORITHMS = "half_cheetah_velocity", ("rcac_sqp", "rcac_npg", "rcac", "ppo_lagrangian")
NUM_ENVS, UPDATES, SEEDS, STEPS, EPISODES = 8, 15, 3, 300_000, 20


def measure() -> list[Row]:
    torch.set_num_threads(1)
    peer = _peer(0)
    missing = "" if peer else absent("Stable-Baselines3")
    base = _peer_speed(peer) if peer else np.nan
    found = [Row("SB3 PPO, updates included", base, "steps/s", None, missing)]
    for algo in ALGORITHMS:
        speed = steps_per_second(algo)
        found.append(Row(f"{algo}, updates included", speed, "steps/s", speed / base if peer else None, "SB3 PPO"))
    ours = [_our_return(seed) for seed in range(SEEDS)]
    theirs = [_peer_return(seed) for seed in range(SEEDS)] if peer else []
    for name, returns in (("SB3 PPO", theirs), ("ppo_lagrangian, budget ∞", ours)):
        if returns:
            note = ", ".join(f"{x:.0f}" for x in returns)
            mean = statistics.mean(returns)
            ratio = mean / statistics.mean(theirs) if theirs and returns is ours else None
            found.append(Row(f"{name}, return after {STEPS:,} steps", mean, "return", ratio, "SB3 PPO", note))
    return found


def steps_per_second(algo: str) -> float:
    row = rows("env")[ENV]
    settings = algorithm(algo, DeepSettings)
    settings = replace(settings, **{key: value for key, value in row["deep"].items()}, trials=0)
    envs = gym.make_vec(row["id"], NUM_ENVS, "vector_entry_point", num_threads=1)
    running = Trainer(envs, row["budgets"], settings, 0, 1000)
    for _ in range(2):
        running.step()
    before, start = running.position, time.process_time()
    for _ in range(UPDATES):
        running.step()
    return (running.position - before) / (time.process_time() - start)


def _our_return(seed: int) -> float:
    env = rows("env")[ENV]["id"]
    found = rcac.train(env, [1001.0], "ppo_lagrangian", seed=seed, total_steps=STEPS, progress=False)
    return float(rcac.evaluate_policy(found.policy, env, episodes=EPISODES, seed=1000 + seed).returns.mean())


def _peer(seed: int) -> Any:
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize
    except ImportError:
        return None
    envs = VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=NUM_ENVS, seed=seed))
    return PPO("MlpPolicy", envs, n_steps=256, batch_size=64, n_epochs=10, seed=seed, device="cpu")


def _peer_speed(peer: Any) -> float:
    batch = NUM_ENVS * 256
    peer.learn(batch)
    start = time.process_time()
    peer.learn(4 * batch)
    return 4 * batch / (time.process_time() - start)


def _peer_return(seed: int) -> float:
    """Mean return, unscaled, of episodes on fresh seeds, actions sampled."""
    from stable_baselines3.common.evaluation import evaluate_policy

    peer = _peer(seed)
    peer.learn(STEPS)
    envs = peer.get_env()
    envs.training, envs.norm_reward = False, False
    envs.seed(1000 + seed)
    return float(evaluate_policy(peer, envs, EPISODES, deterministic=False, warn=False)[0])
