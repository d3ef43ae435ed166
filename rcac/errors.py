"""The ways a request can fail that are the user's to mend, not a bug of ours."""

import contextlib
from collections.abc import Iterator

PACKAGES = {  # that some parts do without: the module, and what pip calls it
    "hydra": "hydra-core",
    "matplotlib": "matplotlib",
    "omegaconf": "omegaconf",
    "rich": "rich",
    "tensorboard": "tensorboard",
    "torch": "torch",
}


class InputError(ValueError):
    """An input that cannot be used. The message names the field, the index, the value and what was expected.

    Examples
    --------
    >>> import rcac
    >>> try:
    ...     rcac.Parameters({"wind": (2, -2)})
    ... except rcac.InputError as error:
    ...     print(error)
    ranges.wind: (2, -2) given, finite numbers low ≤ high expected
    """


class Infeasible(Exception):
    """No policy meets the budgets in the worst case; the message carries the proof.

    Examples
    --------
    >>> import numpy as np, rcac
    >>> problem = rcac.RCMDP.from_rewards(np.ones((1, 1, 1)), np.ones((1, 1)), np.ones((1, 1, 1)), [5.0], discount=0.9)
    >>> try:
    ...     rcac.solve(problem)  # the cost is 1 in every step: 10 in all
    ... except rcac.Infeasible:
    ...     print("proven")
    proven
    """


@contextlib.contextmanager
def needs(what: str) -> Iterator[None]:
    """A package that is not installed is named, with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in PACKAGES:
            raise
        raise InputError(f"{what}: {name} is not installed, pip install {PACKAGES[name]} expected") from error
