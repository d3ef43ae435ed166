"""The paper's tables and figures, made again from nothing: `python scripts/reproduce.py quick`.

Every section computes plain data, piece by piece, each piece kept as soon as it is there; then it draws, tabulates
and judges the paper's claims by what came out.
"""
