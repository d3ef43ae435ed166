"""Speed, shown as ratios within one run: `python scripts/benchmark.py evaluation|solvers|training|scale|all`."""
