"""Any robust constrained MDP as a Gymnasium environment."""

import operator
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from rcac.errors import InputError
from rcac.labels import shown_signs
from rcac.problem import RCMDP, check_policy

from .. import snapshot
from . import MAX_EPISODE_STEPS, render
from .parts import TabularModel
from .render import Layout
from .simulation import Marks, Simulation
from .window import Window


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
    | `render_mode` | `None` | `"ansi"`, `"rgb_array"`, or `"human"`: a window (`rcac[video]`) |

    `reset(options={"kernel": kernel})` simulates another kernel from then on, `{"kernel": None}` the nominal one.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's)

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
            raise InputError(f"render_mode: {render_mode!r} given, None, 'ansi', 'rgb_array' or 'human' expected")
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
        self._latest = np.zeros(self.rcmdp.num_constraints + 1)  # costs of the last step, objective first
        self._sums = self._latest  # of the episode; for pictures only, and no part of the state
        self._window: Window | None = None

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
        self._steps, self._latest, self._sums = 0, np.zeros_like(self._latest), np.zeros_like(self._latest)
        self._follow()
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
        self._latest, self._sums = costs, self._sums + costs
        self._follow()
        cost = float(costs[1]) if len(costs) > 1 else 0.0
        return self._state, 0.0 - float(costs[0]), False, False, {"cost": cost, "costs": costs[1:]}

    def _follow(self) -> None:
        """A window shows every step, as Gymnasium's do."""
        if self.render_mode == "human":
            self.render()

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
            gym.logger.warn("render() draws nothing without a render_mode: choose 'ansi', 'rgb_array' or 'human'")
            return None
        if self._state is None:
            raise gym.error.ResetNeeded("Cannot call render before reset")
        scene = self.show(self._state, self._marked, [f"step {self._steps}", *self._sums_in_words()])
        if self.render_mode != "human":
            return scene
        self._window = self._window or Window(type(self).__name__, self.metadata["render_fps"])
        self._window.show(scene)
        return None

    def _sums_in_words(self) -> list[str]:
        """The reward and every cost or utility, of the last step and so far."""
        labels = self.rcmdp.labels()
        names = [label.replace("return", "reward") for label in labels]
        numbers = zip(names, *(0.0 + shown_signs(labels) * x for x in (self._latest, self._sums)), strict=True)
        return [f"{name} {now:.3g}, so far {total:.4g}".replace("nan", "unknown") for name, now, total in numbers]

    def close(self) -> None:
        if self._window is not None:
            self._window.close()

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
        self._latest = self._sums = np.full_like(self._sums, np.nan)  # what came before is not known


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
