"""Speed as ratios within one run: python scripts/benchmark.py evaluation|solvers|training|scale|all [--against earlier.json]"""

from rcac.experiment.benchmark.command import main

if __name__ == "__main__":
    main()
