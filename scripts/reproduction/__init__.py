"""The paper's tables and figures, recomputed from scratch: `python scripts/reproduce.py quick`.

Every section computes plain data, piece by piece, and stores each piece as soon as it is done. From that data it draws
figures, writes tables and gives a verdict on each of the paper's claims.
"""
