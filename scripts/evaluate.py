"""Evaluate a run: `python scripts/evaluate.py run=runs/… episodes=100`; see --help."""

from rcac.cli import evaluate

if __name__ == "__main__":
    evaluate()
