"""Uncertainty sets: the worst-case expectation of values over kernels near the nominal one."""

from rcac.uncertainty.base import Uncertainty, Worst
from rcac.uncertainty.chi_square import ChiSquare
from rcac.uncertainty.finite import FiniteKernels
from rcac.uncertainty.ipm import InexactWarning, LinearIPM
from rcac.uncertainty.kl import KLBall, KLPenalty
from rcac.uncertainty.nominal import Nominal
from rcac.uncertainty.tv import TotalVariation
from rcac.uncertainty.wasserstein import Wasserstein

__all__ = [
    "ChiSquare",
    "FiniteKernels",
    "InexactWarning",
    "KLBall",
    "KLPenalty",
    "LinearIPM",
    "Nominal",
    "TotalVariation",
    "Uncertainty",
    "Wasserstein",
    "Worst",
]
