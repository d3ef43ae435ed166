"""Speed as ratios within one run: python scripts/benchmark.py evaluation|solvers|training|scale|all [--against earlier.json]

`--help` says the rest: where figures are saved, and from which slow-down on a measurement is marked.
"""

from benchmarks.command import main

if __name__ == "__main__":
    main()
