"""What the deep methods achieve, through the command: minutes each, so behind the marker (`make test-slow`)."""

import csv
from pathlib import Path

import pytest

from rcac import cli, nominal_optimum

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def call(function, *arguments: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        function(list(arguments))
    assert stopped.value.code == 0


def trained(tmp_path: Path, *arguments: str) -> Path:
    call(cli.train, *arguments, f"runs={tmp_path}", "progress=false")
    [folder] = tmp_path.glob("*/*/*")
    return folder


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "evaluation.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("algo", ["rcac", "rcac_npg", "rcac_sqp"])
@pytest.mark.parametrize("seed", [10, 11])  # not among those that the defaults were chosen on
def test_noisy_cartpole_is_balanced_within_its_budget(algo, seed, tmp_path):
    folder = trained(tmp_path, "env=cartpole", f"algo={algo}", f"seed={seed}")
    call(cli.evaluate, f"run={folder}", "episodes=100")
    found = {row["term"]: float(row["mean"]) for row in rows(folder)}
    assert found["return"] >= 490
    assert found["cost"] <= 200


@pytest.mark.parametrize("seed", [40, 41, 42, 43, 44])  # not among those that the settings were chosen on
def test_river_swim_from_samples_comes_within_five_percent_of_the_model_based_optimum(seed, tmp_path):
    import gymnasium as gym

    folder = trained(tmp_path, "env=river_swim", "algo=rcac_npg", f"seed={seed}")
    call(cli.evaluate, f"run={folder}", "episodes=10", "uncertainty=nominal")
    found = {row["term"]: float(row["nominal"]) for row in rows(folder)}
    optimum = -nominal_optimum(gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp).value
    print(f"seed {seed}: {found['return']:.2f} of {optimum:.2f} at cost {found['cost']:.2f}")
    assert found["cost"] <= 42
    assert found["return"] >= 0.95 * optimum
