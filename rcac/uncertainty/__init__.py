"""Uncertainty sets: the worst-case expectation of values over kernels near the nominal one.

A set is loaded when it is first used: who needs their names alone does not wait for the compiler behind them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rcac.uncertainty.base import Uncertainty, WorstCase
    from rcac.uncertainty.chi_square import ChiSquare
    from rcac.uncertainty.contamination import Contamination
    from rcac.uncertainty.cressie_read import CressieRead
    from rcac.uncertainty.cvar import CVaR
    from rcac.uncertainty.finite import FiniteKernels
    from rcac.uncertainty.ipm import InexactWarning, LinearIPM
    from rcac.uncertainty.kl import KLBall, KLPenalty
    from rcac.uncertainty.nominal import Nominal
    from rcac.uncertainty.state_l1 import StateL1
    from rcac.uncertainty.state_l2 import StateL2
    from rcac.uncertainty.tv import TotalVariation
    from rcac.uncertainty.wasserstein import Wasserstein

_HOMES = {
    "Uncertainty": "rcac.uncertainty.base",
    "WorstCase": "rcac.uncertainty.base",
    "ChiSquare": "rcac.uncertainty.chi_square",
    "Contamination": "rcac.uncertainty.contamination",
    "CressieRead": "rcac.uncertainty.cressie_read",
    "CVaR": "rcac.uncertainty.cvar",
    "FiniteKernels": "rcac.uncertainty.finite",
    "InexactWarning": "rcac.uncertainty.ipm",
    "LinearIPM": "rcac.uncertainty.ipm",
    "KLBall": "rcac.uncertainty.kl",
    "KLPenalty": "rcac.uncertainty.kl",
    "Nominal": "rcac.uncertainty.nominal",
    "StateL1": "rcac.uncertainty.state_l1",
    "StateL2": "rcac.uncertainty.state_l2",
    "TotalVariation": "rcac.uncertainty.tv",
    "Wasserstein": "rcac.uncertainty.wasserstein",
}
__all__ = [
    "CVaR",
    "ChiSquare",
    "Contamination",
    "CressieRead",
    "FiniteKernels",
    "InexactWarning",
    "KLBall",
    "KLPenalty",
    "LinearIPM",
    "Nominal",
    "StateL1",
    "StateL2",
    "TotalVariation",
    "Uncertainty",
    "Wasserstein",
    "WorstCase",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rcac.uncertainty' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
