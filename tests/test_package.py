"""The package as others meet it: light to import, and whole as a wheel, away from its source tree."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

USE = """
import sys
from pathlib import Path
import gymnasium as gym, numpy as np
env = gym.make("rcac:rcac/RiverSwim-v0")
import envs, rcac
assert envs.__file__ == str(Path("envs/__init__.py").resolve()), envs.__file__  # the user's own folder
assert str(Path(sys.prefix).resolve()) in str(Path(rcac.__file__).resolve()), rcac.__file__
from rcac.uncertainty import KLBall
problem = env.unwrapped.rcmdp
print(rcac.evaluate(problem, np.full((6, 2), 0.5), KLBall(0.01)).returns.round(3).tolist())
print(rcac.solve(problem, "rsqp", KLBall(0.01)).feasible)
"""


def test_importing_is_light():
    code = "import sys, rcac; print([m for m in ('torch', 'matplotlib', 'numba', 'hydra', 'tensorboard') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert out.stdout.strip() == "[]"


def test_evaluating_needs_neither_torch_nor_matplotlib():
    code = "import sys; from rcac import RCMDP, evaluate, solve; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert out.stdout.strip() == "False False"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # built from what is tracked or would be, not from a stale build folder
    source.mkdir()
    for name in ("rcac", "envs", "conf"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(source)], check=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl"))


def test_the_wheel_works_away_from_the_source_tree(wheel, tmp_path):
    """Installed without its dependencies, which come from the environment of this test; the user has an envs folder."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv/bin/python"
    site = next((tmp_path / "venv/lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    ours = [p for p in sys.path if p.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(ours))
    # an editable install of ours in there must not answer for the wheel
    (site / "sitecustomize.py").write_text(
        "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in str(f).lower()]\n"
    )
    home = tmp_path / "home"
    (home / "envs").mkdir(parents=True)
    (home / "envs/__init__.py").write_text("")
    (home / "use.py").write_text(USE)
    done = subprocess.run([str(python), "use.py"], cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "True"


def test_the_wheel_holds_every_configuration_and_the_type_marker(wheel):
    import zipfile

    names = set(zipfile.ZipFile(wheel).namelist())
    assert "rcac/py.typed" in names
    for file in (ROOT / "conf").rglob("*.yaml"):
        assert f"rcac/conf/{file.relative_to(ROOT / 'conf')}" in names
    assert not any(name.startswith(("envs/", "conf/", "tests/", "runs/")) for name in names)
