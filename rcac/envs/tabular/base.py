"""Any robust constrained MDP as a Gymnasium environment."""

import operator
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from rcac.errors import InputError
from rcac.problem import RCMDP, check_policy

from .. import snapshot
from . import MAX_EPISODE_STEPS, render
from .parts import TabularModel
from .render import Layout
from .simulation import Marks, Simulation


class TabularEnv(gym.Env[Any, Any]):
    """
    ## Description

    A model, simulated: `env.unwrapped.rcmdp` is the model itself. Everything random comes from the generator that
    `reset(seed=…)` seeds.

    ## Action Space

    `Discrete(A)`.

    ## Observation Space

    `Discrete(S)`: the state. `gymnasium.wrappers.FlattenObservation` turns it into a one-hot vector; so does its
    namesake in `gymnasium.wrappers.vector`, which takes vector environments that autoreset at the next step.

    ## Rewards

    `−c_0(s, a)` of the state before the step: the reward of a problem that has one, the negative of a true cost.

    ## Costs

    `info["costs"]` is `c_1..c_N` of the state before the step, as an array `(N,)`, in cost form (a utility is
    negated); `info["cost"]` the first of them as a float, 0 if there is none.

    ## Starting State

    Sampled from the problem's initial distribution.

    ## Episode End

    Never terminated; truncated by the registered `max_episode_steps`.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `problem` | | an `RCMDP`, or the path of one that `RCMDP.save` wrote |
    | `marks` | `None` | what lies on states at random (`simulation.Marks`) |
    | `layout` | `None` | where to draw the states (`render.Layout`); a labelled strip if not given |
    | `kernel` | `None` | simulate this kernel, dense (S, A, S) or CSR (S·A, S), instead of the nominal one |
    | `policy` | `None` | (S, A), shown when rendering; also an attribute |
    | `render_mode` | `None` | `"ansi"` or `"rgb_array"` |

    `reset(options={"kernel": kernel})` simulates another kernel from then on, `{"kernel": None}` the nominal one.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self,
        problem: RCMDP | str | PathLike[str],
        *,
        marks: Marks | None = None,
        layout: Layout | None = None,
        kernel: Any = None,
        policy: np.ndarray | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode: {render_mode!r} given, None, 'ansi' or 'rgb_array' expected")
        self.rcmdp = problem if isinstance(problem, RCMDP) else RCMDP.load(problem)
        self.simulation = Simulation(self.rcmdp, marks, kernel)
        self.layout = Layout.strip(self.rcmdp.num_states) if layout is None else layout
        self.policy = policy
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(self.rcmdp.num_states)
        self.action_space = gym.spaces.Discrete(self.rcmdp.num_actions)
        self._state: int | None = None
        self._marked = np.zeros(self.simulation.marks.probability.shape, dtype=bool)  # (S, K)
        self._steps = 0
        self._latest = (0.0, 0.0)  # reward and cost of the last step
        self._sums = (0.0, 0.0)  # of the episode; for pictures only, and no part of the state

    @property
    def policy(self) -> np.ndarray | None:
        """The policy that rendering shows, (S, A)."""
        return self._policy

    @policy.setter
    def policy(self, policy: np.ndarray | None) -> None:
        self._policy = None if policy is None else check_policy(self.rcmdp, policy)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.simulation.configure(options)
        self._state = int(self.simulation.start(self.np_random.random()))
        self._marked = self.simulation.marks.sample(self.np_random)
        self._steps, self._latest, self._sums = 0, (0.0, 0.0), (0.0, 0.0)
        return self._state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if self._state is None:
            raise gym.error.ResetNeeded("Cannot call step before reset")
        action = self._check_action(action)
        costs = self.simulation.costs(self._state, action, self._marked[self._state])
        self._state = int(self.simulation.move(self._state, action, self.np_random.random()))
        if self.simulation.marks.each_step:
            self._marked = self.simulation.marks.sample(self.np_random)
        self._steps += 1
        cost = float(costs[1]) if len(costs) > 1 else 0.0
        reward = 0.0 - float(costs[0])
        self._latest, self._sums = (reward, cost), (self._sums[0] + reward, self._sums[1] + cost)
        return self._state, reward, False, False, {"cost": cost, "costs": costs[1:]}

    def _check_action(self, action: Any) -> int:
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < self.rcmdp.num_actions:
            raise InputError(f"action: {action!r} given, an integer in 0..{self.rcmdp.num_actions - 1} expected")
        return index

    def render(self) -> Any:
        if self.render_mode is None:
            gym.logger.warn("render() draws nothing without a render_mode: choose 'ansi' or 'rgb_array'")
            return None
        if self._state is None:
            raise gym.error.ResetNeeded("Cannot call render before reset")
        pairs = zip(("reward", "cost"), self._latest, self._sums, strict=True)
        said = [f"{name} {now:.3g}, so far {total:.4g}".replace("nan", "unknown") for name, now, total in pairs]
        return self.show(self._state, self._marked, [f"step {self._steps}", *said])

    def show(self, state: int, marked: np.ndarray, title: Sequence[str]) -> Any:
        """The scene in the chosen mode: a text, or uint8 (H, W, 3) with a title and a legend."""
        names = self.simulation.marks.names
        layout = self.layout.with_marks(names, marked)
        if self.render_mode == "ansi":
            return render.text(layout, state, self.policy)
        kinds = list(dict.fromkeys([*(thing.kind for thing in self.layout.things), *names]))
        return render.picture(layout, state, self.policy, words=render.Words(title, kinds))

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, except the kernel if it is not the nominal one.

        `gymnasium.make` counts the time limit in a wrapper of its own, `TimeLimit`; the count is in this state too:
        after `env.unwrapped.set_state(state)`, call `env.set_wrapper_attr("_elapsed_steps", int(state["steps"]))`.
        """
        if self._state is None:
            raise gym.error.ResetNeeded("Cannot call get_state before reset")
        return {
            "state": np.array(self._state),
            "steps": np.array(self._steps),
            "marked": self._marked.copy(),
            "generator": dict(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        index = check_state(snapshot.read_array(state, "state", (), int), self.rcmdp)
        steps = snapshot.read_array(state, "steps", (), int)
        marked = snapshot.read_array(state, "marked", self._marked.shape, bool)
        self.np_random = snapshot.read_generator(state)
        self._state, self._steps, self._marked = int(index), int(steps), marked
        self._latest, self._sums = (np.nan, np.nan), (np.nan, np.nan)  # what came before is not known


class ModelEnv(TabularEnv):
    """A `TabularEnv` whose model is built from arguments, by `build`."""

    build: ClassVar[Callable[..., TabularModel]]

    def __init__(
        self, *, kernel: Any = None, policy: np.ndarray | None = None, render_mode: str | None = None, **model: Any
    ) -> None:
        built = type(self).build(**model)
        super().__init__(**built._asdict(), kernel=kernel, policy=policy, render_mode=render_mode)


def check_state(states: np.ndarray, problem: RCMDP) -> np.ndarray:
    bad = (states < 0) | (states >= problem.num_states)
    if bad.any():
        raise InputError(f"state: {states[bad].ravel()[0]} given, an integer in 0..{problem.num_states - 1} expected")
    return states


def register_rcmdp(
    id: str, problem: RCMDP | str | PathLike[str], max_episode_steps: int | None = MAX_EPISODE_STEPS
) -> None:
    """Register a problem, or the .npz file of one, so that `gymnasium.make(id)` simulates it.

    Each `make` reads the file again, in whatever process; it is read here once, so that a bad one is rejected now.
    """
    if not isinstance(problem, RCMDP):
        path = str(Path(problem).resolve())
        RCMDP.load(path)
        problem = path
    gym.register(
        id=id,
        entry_point="rcac.envs.tabular.base:TabularEnv",
        vector_entry_point="rcac.envs.tabular.vector:vector",
        max_episode_steps=max_episode_steps,
        kwargs={"problem": problem},
    )
