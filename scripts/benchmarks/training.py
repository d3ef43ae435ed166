"""Deep training: environment steps per second with updates included, and the time to a mean return of 475 on clean
CartPole, beside Stable-Baselines3 (extra `peers`) with the same networks (two tanh layers of 64) on the same machine.

Times are CPU time of one thread: on an idle machine what the clock says, on a busy one still comparable.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import gymnasium as gym
import numpy as np

from benchmarks.measure import Row, absent, interleaved
from rcac.deep.settings import DeepSettings
from rcac.deep.trainer import Trainer
from rcac.registry import algorithm

SOLVED, WINDOW, LIMIT = 475.0, 100, 120.0  # mean return of so many last episodes; seconds after which a run is given up
SEEDS = range(3)
ALGORITHMS = ("rcac_npg", "rcac_sqp", "rcac")


def trainer(algo: str, seed: int, **changes: object) -> Trainer:
    """On the cart-pole without noise: its reward and the cost |x|, budget 200."""
    settings = replace(algorithm(algo, DeepSettings), trials=0, **changes)  # type: ignore[arg-type]
    envs = gym.make_vec("rcac/NoisyCartPole-v0", settings.num_envs, "vector_entry_point")
    return Trainer(envs, [200.0], settings, seed, 500)


def steps_per_second(algo: str, updates: int = 12, **changes: object) -> float:
    running = trainer(algo, 0, **changes)
    for _ in range(3):
        running.step()
    before, start = running.position, time.process_time()
    for _ in range(updates):
        running.step()
    return (running.position - before) / (time.process_time() - start)


def time_to_solve(algo: str, seed: int) -> float:
    running, start = trainer(algo, seed, window=WINDOW), time.process_time()
    while not running.finished and time.process_time() - start < LIMIT:
        step = running.step()
        if running.episodes.full and step.metrics["return/episode"] >= SOLVED:
            return time.process_time() - start
    return np.inf


class Pictures(gym.Env):
    """Images 84 × 84 × 4 that cost nothing to make: what is left is the learner's time."""

    observation_space, action_space = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8), gym.spaces.Discrete(4)

    def __init__(self) -> None:
        self.frames = np.random.default_rng(0).integers(0, 256, (16, 84, 84, 4), dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return self.frames[0], {}

    def step(self, action):
        self.taken += 1
        return self.frames[self.taken % 16], float(action == 1), False, self.taken >= 100, {"cost": float(action == 2)}


def image_times(updates: int = 2) -> tuple[float, float]:
    """CPU seconds per 1000 environment steps, ours and of SB3's PPO with its CnnPolicy: the same network (convolutions and
    512 units, shared by actor and critics), rollouts of 8 × 64 steps, four passes through it in minibatches of 128 (ours: two
    of the actor and two of both critics; theirs: four of both)."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    small = {"num_envs": 8, "rollout_length": 64, "actor_hidden": [512], "activation": "relu", "shared_body": True}
    passes = {"actor_epochs": 2, "critic_epochs": 2, "actor_batch": 128, "critic_batch": 128, "trials": 0}
    settings = replace(algorithm("rcac", DeepSettings), **small, **passes)  # type: ignore[arg-type]
    ours = Trainer(gym.vector.SyncVectorEnv([Pictures] * 8), [50.0], settings, 0, 100)
    theirs = PPO("CnnPolicy", DummyVecEnv([Pictures] * 8), n_steps=64, batch_size=128, n_epochs=4, device="cpu")
    ours.step()
    theirs.learn(512)
    taken = [0.0, 0.0]
    for _ in range(updates):
        for k, work in enumerate((ours.step, lambda: theirs.learn(512))):
            start = time.process_time()
            work()
            taken[k] += time.process_time() - start
    return taken[0] / (0.512 * updates), taken[1] / (0.512 * updates)


def vector_speed() -> Row:
    """Our vector cart-pole with noise on, and Gymnasium's own without, 256 environments and the same random actions."""
    actions = np.random.default_rng(0).integers(0, 2, (200, 256))

    def player(env: gym.vector.VectorEnv) -> Callable[[], None]:
        def play() -> None:
            env.reset(seed=0)
            for action in actions:
                env.step(action)

        return play

    mode = "vector_entry_point"
    ours = gym.make_vec("rcac/NoisyCartPole-v0", 256, mode, noise_high=0.04)
    mine, theirs = interleaved(player(ours), player(gym.make_vec("CartPole-v1", 256, mode)), 31)
    return Row(
        "noisy CartPole, 256 environments in NumPy",
        actions.size / mine / 1e6,
        "M steps/s",
        theirs / mine,
        "Gymnasium's vector CartPole",
    )


def peers() -> dict[str, Callable[..., object]]:
    """Stable-Baselines3's learners, by name; empty when it is not installed."""
    try:
        import torch
        from stable_baselines3 import A2C, PPO
        from stable_baselines3.common.env_util import make_vec_env
    except ImportError:
        return {}
    torch.set_num_threads(1)

    def linear(first: float) -> Callable[[float], float]:
        return lambda remaining: first * remaining

    def a2c(seed: int) -> object:
        return A2C("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=seed), seed=seed, device="cpu")

    def ppo(seed: int) -> object:
        return PPO("MlpPolicy", make_vec_env("CartPole-v1", n_envs=8, seed=seed), seed=seed, device="cpu")

    def tuned_ppo(seed: int) -> object:  # the hyperparameters of rl-zoo for CartPole-v1
        return PPO(
            "MlpPolicy",
            make_vec_env("CartPole-v1", n_envs=8, seed=seed),
            n_steps=32,
            batch_size=256,
            n_epochs=20,
            gamma=0.98,
            gae_lambda=0.8,
            ent_coef=0.0,
            learning_rate=linear(1e-3),
            clip_range=linear(0.2),
            seed=seed,
            device="cpu",
        )

    return {"A2C": a2c, "PPO": ppo, "tuned PPO": tuned_ppo}


def peer_speed(make: Callable[..., object], steps: int) -> float:
    learner = make(0)
    learner.learn(2048)  # type: ignore[attr-defined]
    start = time.process_time()
    learner.learn(steps)  # type: ignore[attr-defined]
    taken = time.process_time() - start
    return learner.num_timesteps / taken  # type: ignore[attr-defined]  # whole rollouts: may be more than `steps`


def peer_time_to_solve(make: Callable[..., object], seed: int) -> float:
    from stable_baselines3.common.callbacks import BaseCallback

    start = time.process_time()

    class UntilSolved(BaseCallback):
        taken = np.inf

        def _on_step(self) -> bool:
            recent = [episode["r"] for episode in self.model.ep_info_buffer or []]
            if len(recent) == WINDOW and np.mean(recent) >= SOLVED:
                self.taken = time.process_time() - start
            return self.taken == np.inf and time.process_time() - start < LIMIT

    watch = UntilSolved()
    make(seed).learn(100_000, callback=watch)  # type: ignore[attr-defined]
    return watch.taken


def measure() -> list[Row]:
    rows, others = [vector_speed()], peers()
    base = {name: peer_speed(others[name], 20_000) if others else np.nan for name in ("A2C", "PPO")}
    missing = "" if others else absent("Stable-Baselines3")
    rows += [Row(f"SB3 {name}, 8 environments", speed, "steps/s", None, missing) for name, speed in base.items()]
    for algo in ALGORITHMS:
        speed = steps_per_second(algo)
        rows.append(Row(f"{algo}, updates included", speed, "steps/s"))
        if others:
            ratios = {name: speed / other for name, other in base.items()}
            rows += [Row(f"  {algo} beside SB3 {name}", x, "×", x, f"SB3 {name}") for name, x in ratios.items()]
    wide = steps_per_second("rcac_npg", 4, actor_hidden=[256, 256], critic_hidden=[256, 256])
    rows.append(Row("rcac_npg, networks 256 × 256", wide, "steps/s"))
    if others:
        mine, theirs = image_times()
        rows.append(
            Row("rcac on images 84 × 84 × 4, CPU per 1000 steps", mine, "s", mine / theirs, "SB3 PPO, CnnPolicy")
        )
    solved = float(np.median([peer_time_to_solve(others["tuned PPO"], s) for s in SEEDS])) if others else np.nan
    rows.append(Row("SB3 tuned PPO to 475 on CartPole, median of 3 seeds", solved, "s", None, missing))
    for algo in ALGORITHMS:
        took = float(np.median([time_to_solve(algo, seed) for seed in SEEDS]))
        ratio = took / solved if np.isfinite([took, solved]).all() else None
        rows.append(Row(f"{algo} to 475 on CartPole, median of 3 seeds", took, "s", ratio, missing or "SB3 tuned PPO"))
    return rows
