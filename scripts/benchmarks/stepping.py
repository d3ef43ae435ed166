"""Stepping a MuJoCo task: eight HalfCheetahs under a speed limit, random actions, in every way there is.

    sync, wrapped    Gymnasium's body, its cost by `CostFunction`, watched by `Guard`: what any environment gets
    sync, async      `rcac/HalfCheetahVelocity-v0` in Gymnasium's vector environments
    threads          single environments stepped on a pool of Python threads
    rollout          `mujoco.rollout`, the physics alone; it forgets the solver's warm start between calls
    vector           the task's own vector version, on `mujoco.batch`

All but `rollout` give the same numbers, bit for bit. Ratios are to `sync, wrapped`, measured in turn.
"""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.measure import Row
from rcac.envs import register_envs
from rcac.envs.wrappers import CostFunction, Guard

ID, NUM_ENVS, STEPS, ROUNDS = "rcac/HalfCheetahVelocity-v0", 8, 250, 5
Player = tuple[Callable[[np.ndarray], Any], Callable[[], float]]  # steps all of them; CPU seconds so far


def measure() -> list[Row]:
    """Steps per second of CPU time and of wall time, the median of some rounds in turn."""
    register_envs()
    ways: dict[str, Player] = {
        "sync, wrapped": _gymnasium("HalfCheetah-v5", "sync", [_speed_limit, Guard]),
        "sync, guarded": _gymnasium(ID, "sync", [Guard]),
        "sync": _gymnasium(ID, "sync"),
        "async": _gymnasium(ID, "async"),
        "threads, 2": _threads(2),
        "rollout, 2 threads": _rollout(2),
        **{f"vector, {n} threads": _gymnasium(ID, "vector_entry_point", num_threads=n) for n in (1, 2)},
    }
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, NUM_ENVS, 6)).astype(np.float32)
    wall: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, (step, clock) in ways.items():
            before, start = clock(), time.perf_counter()
            for action in actions:
                step(action)
            wall[name].append(STEPS * NUM_ENVS / (time.perf_counter() - start))
            cpu[name].append(STEPS * NUM_ENVS / (clock() - before))
    peer = "sync, wrapped"
    return [
        Row(
            f"{name}, {kind}",
            value := statistics.median(found[name]),
            "steps/s",
            value / statistics.median(found[peer]),
            peer,
        )
        for kind, found in (("CPU", cpu), ("wall", wall))
        for name in ways
    ]


def _speed_limit(env: gym.Env) -> gym.Env:
    return CostFunction(env, lambda seen, action, then, reward, info: float(info["x_velocity"] > 3.2096))


def _gymnasium(env_id: str, mode: str, wrappers: Any = (), **kwargs: Any) -> Player:
    wrapping = {"wrappers": wrappers} if wrappers else {}
    from rcac.envs.mujoco.velocity import quiet

    with quiet():
        envs = gym.make_vec(env_id, NUM_ENVS, mode, **wrapping, **kwargs)
    envs.reset(seed=0)
    return envs.step, lambda: time.process_time() + sum(map(_cpu_of, getattr(envs, "processes", ())))


def _threads(count: int) -> Player:
    envs = [gym.make(ID) for _ in range(NUM_ENVS)]
    for index, env in enumerate(envs):
        env.reset(seed=index)
    pool = ThreadPoolExecutor(count)

    def some(first: int, actions: np.ndarray) -> list[Any]:
        return [_step(envs[i], actions[i]) for i in range(first, NUM_ENVS, count)]

    return lambda actions: list(pool.map(lambda first: some(first, actions), range(count))), time.process_time


def _step(env: gym.Env, action: np.ndarray) -> Any:
    result = env.step(action)
    if result[3]:
        env.reset()
    return result


def _rollout(count: int) -> Player:
    import mujoco
    from mujoco.rollout import Rollout

    single: Any = gym.make(ID).unwrapped
    kind = mujoco.mjtState.mjSTATE_FULLPHYSICS.value
    states = np.zeros((NUM_ENVS, mujoco.mj_stateSize(single.model, kind)))
    for index in range(NUM_ENVS):
        single.reset(seed=index)
        mujoco.mj_getState(single.model, single.data, states[index], kind)
    pool, data = Rollout(nthread=count), [mujoco.MjData(single.model) for _ in range(count)]

    def step(actions: np.ndarray) -> None:
        controls = np.repeat(actions[:, None].astype(float), single.frame_skip, axis=1)
        states[:] = pool.rollout(single.model, data, states, controls)[0][:, -1]

    return step, time.process_time


def _cpu_of(process: Any) -> float:
    """CPU seconds of another process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
