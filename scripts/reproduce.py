"""Make the paper's tables and figures again: `python scripts/reproduce.py quick`; see --help."""

import os
import sys

if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # problems this small are faster with one thread, and times mean more
    from reproduction.command import main

    sys.exit(main())
