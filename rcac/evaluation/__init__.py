"""Robust policy evaluation: worst-case values, their kernels and occupancies, with a bound on the error."""

from rcac.evaluation.inexact import evaluate_sampled, with_noise
from rcac.evaluation.newton import (
    Evaluation,
    NotSettled,
    Warm,
    evaluate,
    evaluate_checked,
    evaluate_under,
    mean_kernels,
)

__all__ = [
    "Evaluation",
    "NotSettled",
    "Warm",
    "evaluate",
    "evaluate_checked",
    "evaluate_sampled",
    "evaluate_under",
    "mean_kernels",
    "with_noise",
]
