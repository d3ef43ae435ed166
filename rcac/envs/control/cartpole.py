"""`rcac/NoisyCartPole-v0` and `rcac/CartPoleTradeoff-v0`, one copy."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from rcac.errors import InputError

from .. import snapshot
from ..contexts import Context, HasContext
from . import dynamics
from .dynamics import Constants, Perturbation


class NoisyCartPole(HasContext, CartPoleEnv):
    """
    ## Description

    Gymnasium's CartPole with a cost for leaving the centre, and perturbations that are all off by default: without
    them, the same seed and actions give the same observations as `CartPole-v1`, bit for bit.

    ## Action Space

    `Discrete(2)`: 0 pushes the cart to the left, 1 to the right.

    ## Observation Space

    `Box` of shape `(4,)`, float32: cart position `x`, cart velocity, pole angle, pole angular velocity, within
    ±4.8, ±∞, ±24°, ±∞. With `noise_target="observation"` every observation, that of `reset` included, is the state
    plus independent noise per component, clipped to these bounds.

    ## Rewards

    - `reward="upright"`: 1 for every step, the last one included, as in `CartPole-v1`.
    - `reward="offset"` (`rcac/CartPoleTradeoff-v0`): `1 + d (2 − d)`, with `d = −x/2.4` clipped to [0, 1]. In plain
      CartPole the centre is best for return and for cost; here they pull apart, for these reasons:
      - Return and cost both grow with the distance. Left alone, a policy sits far out (return towards 1000, cost
        towards 1200); at the centre it earns 500; the budget lies between.
      - The bonus is concave, so a budget is best spent evenly: by Jensen's inequality a cost of `b` in `L` steps
        allows a return of at most `L (1 + d (2 − d))` with `d = b/(2.4 L)`, which is 652.8 for 200 in 500 steps.
        The optimum is on the budget's boundary, and a shortfall can be measured.
      - It pays on the left because perturbations push there. A policy that balances the pole answers a position
        or an angle that reads too large by going left (the pole has to lean left before the cart can follow), and
        the angle weighs most: under a linear controller of common gains, noise of mean `m` moves the resting point
        by about `−25 m`. Steady wind to the right moves it left as well. A policy that spends its whole budget is
        therefore driven over it by stronger noise.

    ## Costs

    `info["cost"]` is `|x|` of the true new state, whatever is observed; `info["costs"]` the same as an array `(1,)`.

    ## Starting State

    Every component uniform in (−0.05, 0.05), 0 with `start="fixed"`, or between `options["low"]` and `options["high"]` of `reset`.

    ## Episode End

    Terminated when `|x| > 2.4` or the pole leans more than 12° (in the true state); truncated after 500 steps.

    ## Arguments

    | argument | default | |
    |---|---|---|
    | `reward` | `"upright"` | or `"offset"` |
    | `start` | `"random"` | uniform within ±.05 on each component; or `"fixed"`: at 0 |
    | `noise_target` | `"observation"` | or `"state"`: then the noise moves the cart-pole itself, at every step |
    | `noise_low`, `noise_high` | 0, 0 | uniform noise on each component |
    | `action_flip` | 0 | probability that the other action is taken |
    | `wind` | 0 | constant force on the cart in newton, positive to the right |
    | `mass`, `length`, `gravity`, `force` | 1 | factors on the pole's mass and length, gravity, and the push |
    | `render_mode` | `None` | `"human"` or `"rgb_array"` |

    ## Contexts

    Every number among the arguments, by `set_context({"wind": 1.0, "length": 1.5})`, from the next reset on.
    """

    metadata = {**CartPoleEnv.metadata, "cost_units": ["Σ|x| (m)"], "cost_range": [dynamics.COST_RANGE]}  # noqa: RUF012
    state: np.ndarray | None

    def __init__(
        self, reward: str = "upright", render_mode: str | None = None, start: str = "random", **perturbation: Any
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f"render_mode: {render_mode!r} given, None, 'human' or 'rgb_array' expected")
        super().__init__(render_mode=render_mode)
        self._start = dynamics.start_bounds(start)
        self.perturbation = Perturbation(**perturbation)
        self._reward = dynamics.choose_reward(reward)
        self._steps = 0
        self._ended = False  # terminated and not yet reset
        self._constants = Constants.of(self)
        dynamics.rescale(self, self._constants, self.perturbation)
        self.declare(self.perturbation.parameters())

    def check_context(self, context: Context) -> None:
        self.perturbation.with_context(context)

    def _perturb(self) -> None:
        self.perturbation = self.perturbation.with_context(self.context)
        dynamics.rescale(self, self._constants, self.perturbation)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if self.begin_context():
            self._perturb()
        super().reset(seed=seed, options={**self._start, **(options or {})})
        self._steps, self._ended = 0, False
        return self._observe(), {}

    def step(self, action: int | np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.state is None:
            raise gym.error.ResetNeeded("Cannot call step before reset")
        if not self.action_space.contains(action):
            raise InputError(f"action: {action!r} given, 0 or 1 expected")
        force = dynamics.push(self, self.perturbation, np.asarray(action), self.np_random)
        moved = dynamics.advance(self, self.state, force)
        self.state = dynamics.with_noise(self, self.perturbation, "state", moved, self.np_random)
        self._steps += 1

        x, _, theta, _ = self.state
        if self._ended:
            gym.logger.warn("step() after the episode has terminated earns nothing: call reset() first")
        reward = 0.0 if self._ended else float(self._reward(self, x))
        terminated = bool(abs(x) > self.x_threshold or abs(theta) > self.theta_threshold_radians)
        self._ended |= terminated
        if self.render_mode == "human":
            self.render()  # type: ignore[no-untyped-call]
        cost = float(abs(x))
        return self._observe(), reward, terminated, False, {"cost": cost, "costs": np.array([cost])}

    def get_state(self) -> snapshot.Snapshot:
        """Everything needed to continue exactly from here, the context included.

        `gymnasium.make` counts the time limit in a wrapper of its own, `TimeLimit`; the count is in this state too:
        after `env.unwrapped.set_state(state)`, call `env.set_wrapper_attr("_elapsed_steps", int(state["steps"]))`.
        """
        if self.state is None:
            raise gym.error.ResetNeeded("Cannot call get_state before reset")
        return {
            "state": self.state.copy(),
            "steps": np.array(self._steps),
            "ended": np.array(self._ended),
            "context": dict(self.context),
            "next_context": dict(self.next_context),
            "generator": dict(self.np_random.bit_generator.state),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue from what `get_state` returned."""
        physical = snapshot.read_array(state, "state", (4,), float)
        steps = snapshot.read_array(state, "steps", (), int)
        ended = snapshot.read_array(state, "ended", (), bool)
        self.np_random = snapshot.read_generator(state)
        self.restore_context(state)
        self._perturb()
        self.state, self._steps, self._ended = physical, int(steps), bool(ended)

    def _observe(self) -> np.ndarray:
        assert self.state is not None
        seen = dynamics.with_noise(self, self.perturbation, "observation", self.state, self.np_random)
        return seen.astype(np.float32)
