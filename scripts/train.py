"""Train: `python scripts/train.py env=river_swim algo=rsqp`; see --help."""

from rcac.cli import train

if __name__ == "__main__":
    train()
