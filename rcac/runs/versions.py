"""What a run was made with."""

import importlib.metadata
import platform
import subprocess
from pathlib import Path

import rcac


def versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in ("rcac", "numpy", "torch", "gymnasium"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "python": platform.python_version(), "platform": platform.platform(), "git": _git_revision()}


def _git_revision() -> str | None:
    """Commit of the tree that holds this package ("-dirty" with changes), None when it is not in one."""
    home = Path(rcac.__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(home), *arguments]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # a package installed inside a user's tree is not part of it
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None
