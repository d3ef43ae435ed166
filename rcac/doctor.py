"""`rcac doctor`: what is installed here, and what this machine has. For bug reports, and for what is missing."""

import argparse
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

import rcac

NEEDED = {  # packages by what needs them
    "the tabular half": ["numpy", "scipy", "numba", "gymnasium", "pillow", "threadpoolctl", "pyyaml"],
    "saved policies": ["safetensors", "filelock"],
    "training from Python": ["omegaconf"],
    "deep methods": ["torch"],
    "the command line": ["hydra-core", "hydra-joblib-launcher", "rich"],
    "figures and curves": ["matplotlib", "tensorboard"],
}
EXTRAS = {  # one package that tells whether an extra is there
    "mujoco": "mujoco",
    "video": "imageio",
    "onnx": "onnx",
    "wandb": "wandb",
    "slurm": "hydra-submitit-launcher",
    "ray": "ray",
    "optuna": "hydra-optuna-sweeper",
    "docs": "mkdocs-material",
}


def report() -> list[str]:
    """Lines: versions, what is missing with the command that installs it, devices and threads."""
    lines = [
        f"rcac {rcac.__version__}  {Path(rcac.__file__).parent}",
        f"python {platform.python_version()}  {platform.platform()}",
        f"cores {os.cpu_count()}, threads {os.environ.get('OMP_NUM_THREADS', 'as the libraries choose')}",
    ]
    for what, packages in NEEDED.items():
        lines.append(f"{what}: {', '.join(map(_with_version, packages))}")
        if missing := [name for name in packages if _version(name) is None]:
            lines.append(f"    pip install {' '.join(missing)}")
    there = [f"{extra} {_version(package)}" for extra, package in EXTRAS.items() if _version(package)]
    lines.append(f"extras: {', '.join(there) or 'none'}")
    if absent := [extra for extra, package in EXTRAS.items() if _version(package) is None]:
        lines.append(f"    pip install 'rcac[{absent[0]}]'  likewise {', '.join(absent[1:])}" if absent[1:] else
                     f"    pip install 'rcac[{absent[0]}]'")  # fmt: skip
    return [*lines, _devices()]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _with_version(package: str) -> str:
    return f"{package} {_version(package) or 'MISSING'}"


def _devices() -> str:
    if _version("torch") is None:
        return "devices: no torch"
    from rcac.deep.devices import describe

    return describe()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="rcac", description="Trainings: rcac-train --help. Tests: rcac-evaluate --help."
    )
    parser.add_argument("--version", action="version", version=f"rcac {rcac.__version__}")
    parser.add_argument("command", choices=["doctor"], help="print versions, extras, devices and threads")
    parser.parse_args(argv)
    print("\n".join(report()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
