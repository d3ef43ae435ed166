"""rcac: robust constrained reinforcement learning, tabular and deep."""

__version__ = "0.1.0"
