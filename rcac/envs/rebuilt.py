"""Any Gymnasium environment with arguments of its constructor as the parameters of its context."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym

from rcac.errors import InputError

from .contexts import HasContext, Parameter


class Rebuilt(HasContext, gym.Wrapper):
    """`Rebuilt(make, {"gravity": Parameter(-12, -8, -10)})`: a new `make(gravity=…)` at a reset if the context changed.

        make = functools.partial(gym.make, "LunarLander-v3")
        env = Rebuilt(make, {"wind_power": Parameter(0, 20, 0)})

    The new instance draws from the old one's generator, so that a seed fixes all episodes after it. Spaces must stay
    what they are. An argument whose nominal value is an int gets the nearest int. Observations, rewards, ends and infos are the
    environment's own.
    """

    def __init__(self, make: Callable[..., gym.Env], parameters: Mapping[str, Parameter]) -> None:
        self._make = make
        self._whole = {name for name, known in parameters.items() if isinstance(known.nominal, int)}
        self.declare({name: known._replace(nominal=float(known.nominal)) for name, known in parameters.items()})
        gym.Wrapper.__init__(self, self._build())

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self.begin_context():
            old, new = self.env, self._build()
            for kind in ("observation_space", "action_space"):
                if getattr(new, kind) != getattr(old, kind):
                    raise InputError(
                        f"context: {self.context} given, which changes the {kind} from {getattr(old, kind)}"
                    )
            new.unwrapped.np_random = old.unwrapped.np_random
            old.close()
            self.env = new
        return super().reset(seed=seed, options=options)

    def _build(self) -> gym.Env:
        numbers = {name: round(value) if name in self._whole else value for name, value in self.context.items()}
        try:
            return self._make(**numbers)
        except TypeError as error:
            raise InputError(f"context: {numbers} given: {error}") from error
