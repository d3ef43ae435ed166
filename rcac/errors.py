"""The two ways a request can fail that are the user's to mend, not a bug of ours."""


class InputError(ValueError):
    """An input that cannot be used. The message names the field, the index, the value and what was expected."""


class Infeasible(Exception):
    """No policy meets the budgets in the worst case; the message carries the proof."""
