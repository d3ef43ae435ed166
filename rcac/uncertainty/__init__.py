"""Uncertainty sets: the worst-case expectation of values over kernels near the nominal one.

A set is loaded when it is first used: who needs their names alone does not wait for the compiler behind them.
"""

from typing import TYPE_CHECKING

from rcac.lazy import lazy

if TYPE_CHECKING:
    from rcac.uncertainty.base import Uncertainty as Uncertainty
    from rcac.uncertainty.base import WorstCase as WorstCase
    from rcac.uncertainty.chi_square import ChiSquare as ChiSquare
    from rcac.uncertainty.contamination import Contamination as Contamination
    from rcac.uncertainty.cressie_read import CressieRead as CressieRead
    from rcac.uncertainty.cvar import CVaR as CVaR
    from rcac.uncertainty.finite import FiniteKernels as FiniteKernels
    from rcac.uncertainty.ipm import InexactWarning as InexactWarning
    from rcac.uncertainty.ipm import LinearIPM as LinearIPM
    from rcac.uncertainty.kl import KLBall as KLBall
    from rcac.uncertainty.kl import KLPenalty as KLPenalty
    from rcac.uncertainty.nominal import Nominal as Nominal
    from rcac.uncertainty.state_l1 import StateL1 as StateL1
    from rcac.uncertainty.state_l2 import StateL2 as StateL2
    from rcac.uncertainty.tv import TotalVariation as TotalVariation
    from rcac.uncertainty.wasserstein import Wasserstein as Wasserstein

__all__, __getattr__, __dir__ = lazy(
    "rcac.uncertainty",
    {
        "base": "Uncertainty WorstCase",
        "chi_square": "ChiSquare",
        "contamination": "Contamination",
        "cressie_read": "CressieRead",
        "cvar": "CVaR",
        "finite": "FiniteKernels",
        "ipm": "InexactWarning LinearIPM",
        "kl": "KLBall KLPenalty",
        "nominal": "Nominal",
        "state_l1": "StateL1",
        "state_l2": "StateL2",
        "tv": "TotalVariation",
        "wasserstein": "Wasserstein",
    },
)
