"""The package as others meet it: light to import, whole as a wheel, and found from any folder."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import rcac

ROOT = Path(__file__).parent.parent
SNIPPETS = re.findall(
    r"```python\n(.*?)```",
    "".join((ROOT / page).read_text("utf-8") for page in ("README.md", "docs/guide.md")),
    flags=re.S,
)
QUICK = {"OMP_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1"}  # there is nothing compiled yet in a new place
CLEAN = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | QUICK


def run(python: Path | str, *arguments: object, cwd: Path | str, **options) -> str:
    done = subprocess.run([str(python), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# What is loaded


def loaded(code: str, among: str, tmp_path: Path) -> list[str]:
    """Which of these modules are there after some code was run by this tree."""
    report = f"import sys; print(*[name for name in {among.split()} if name in sys.modules])"
    environment = {**os.environ, **QUICK, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"}
    out = run(sys.executable, "-c", f"{code}\n{report}", cwd=tmp_path, env=environment)
    return out.splitlines()[-1].split()


COMMAND = """
import runpy, sys
sys.argv = {words}
try:
    runpy.run_path({script!r}, run_name="__main__")
except SystemExit as ended:
    assert ended.code == 0
"""


def command(script: str, *words: str) -> str:
    path = str(ROOT / "scripts" / script)
    return COMMAND.format(words=[path, *words], script=path)


def test_importing_is_light(tmp_path):
    assert loaded("import rcac", "torch matplotlib numba hydra omegaconf tensorboard rich yaml", tmp_path) == []


def test_evaluating_and_solving_need_neither_torch_nor_matplotlib(tmp_path):
    assert loaded("from rcac import RCMDP, evaluate, solve", "torch matplotlib gymnasium.vector.x", tmp_path) == []


STUDIES = "reproduction reproduction.report benchmarks"
SETS = "numba rcac.uncertainty.base rcac.uncertainty.kl rcac.tabular.solver rcac.evaluation"


def test_what_the_commands_do_not_load(tmp_path):
    """A deep run has no use for numba and tabular sets, a tabular one for torch, and no command for the paper study."""
    tiny = "algo.total_steps=300 algo.num_envs=2 algo.rollout_length=16 env.max_episode_steps=20 progress=false"
    deep = command("train.py", "env=cartpole", *tiny.split())
    assert loaded(deep, f"{STUDIES} {SETS} torch", tmp_path) == ["torch"]
    tabular = command("train.py", "env=river_swim", "progress=false", "runs=tabular")
    assert loaded(tabular, f"{STUDIES} torch rcac.deep.trainer rcac.tabular.solver", tmp_path) == [
        "rcac.tabular.solver"
    ]
    evaluation = command("evaluate.py", "run=tabular", "episodes=2")
    assert loaded(evaluation, f"{STUDIES} torch rcac.policies.command", tmp_path) == ["rcac.policies.command"]


def test_a_policy_is_loaded_where_there_is_no_fcntl(tmp_path):
    code = """
import sys, warnings
warnings.simplefilter("ignore")  # of filelock, that its locks are softer there
sys.modules["fcntl"] = None
import rcac
result = rcac.train("rcac/RiverSwim-v0", folder="run")
assert rcac.load_policy("run").batch([0, 5]).shape == (2,)
"""
    assert loaded(code, "fcntl", tmp_path) == ["fcntl"]  # as None


BARE = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

forbidden = Forbidden()
forbidden.names = {"torch", "hydra", "matplotlib", "tensorboard", "rich"}
sys.meta_path.insert(0, forbidden)

import gymnasium as gym, rcac

def refused(function):
    try:
        function()
    except rcac.InputError as error:
        return str(error)

problem = gym.make("rcac/RiverSwim-v0").unwrapped.rcmdp
solution = rcac.solve(problem, "rsqp", "kl_ball")
assert solution.feasible
assert rcac.train("rcac/RiverSwim-v0").summary["feasible"]
assert refused(solution.plot) == "plot: matplotlib is not installed, pip install matplotlib expected"
assert "torch is not installed, pip install torch" in refused(lambda: rcac.train("rcac/NoisyCartPole-v0"))
assert not forbidden.names & {*sys.modules}

forbidden.names = {"hydra", "matplotlib", "tensorboard", "rich", "omegaconf", "numba"}
from rcac.policies.policy import BACKENDS
import rcac.deep.policy, rcac.doctor  # what load_policy loads for a deep policy
print("\\n".join(rcac.doctor.report()))
"""


def test_each_half_does_without_what_it_does_not_use(tmp_path):
    """Tables without torch, hydra, matplotlib, tensorboard and rich; policies with torch alone; missing ones are named."""
    said = run(sys.executable, "-c", BARE, cwd=tmp_path, env={**os.environ, **QUICK, "PYTHONPATH": str(ROOT)})
    assert "rcac 0." in said
    assert "devices: cpu" in said


# Installed


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone named rcac, with what is tracked or would be."""
    place = tmp_path_factory.mktemp("above") / "rcac"
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    for name in filter(lambda name: os.path.lexists(ROOT / name), listed.stdout.splitlines()):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


@pytest.fixture(scope="module")
def built(clone, tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, clone, cwd=folder, env=CLEAN)
    return folder


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def python(request, clone, tmp_path_factory) -> Path:
    """Of an environment in which it is installed; its dependencies are those of this test's environment."""
    place = tmp_path_factory.mktemp(request.param)
    venv.create(place, with_pip=False)
    site = next(place.glob("lib/python*/site-packages"))
    borrowed = [path for path in sys.path if path.endswith("site-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))  # whose own .pth files, of our installation, do not count
    what = [request.getfixturevalue("wheel")] if request.param == "wheel" else ["--no-build-isolation", "-e", clone]
    install = ["-m", "pip", "--python", place / "bin/python", "install", "--quiet", "--no-deps", "--ignore-installed"]
    run(sys.executable, *install, *what, cwd=place, env=CLEAN)
    return place / "bin/python"


USE = """
from pathlib import Path
import gymnasium as gym, numpy as np
env = gym.make("rcac:rcac/RiverSwim-v0")
import rcac, rcac.envs.wrappers, rcac.registry
from rcac.uncertainty import KLBall
assert rcac.registry.rows("env")["river_swim"]["id"] == "rcac/RiverSwim-v0"
assert rcac.solve(env.unwrapped.rcmdp, "rsqp", KLBall(0.01)).feasible
print(rcac.__file__)
"""
FIND = "import rcac; print(rcac.__file__)"


def home_of(python: Path, clone: Path) -> Path:
    return clone if python.parents[1].name.startswith("editable") else python.parents[1]


def test_it_is_found_from_a_script_anywhere(python, clone, tmp_path):
    """Beside a clone named rcac; and from a folder of the user's with modules named envs and conf."""
    elsewhere = tmp_path / "home"
    (elsewhere / "envs").mkdir(parents=True)
    (elsewhere / "envs/__init__.py").write_text("mine = True\n")
    (elsewhere / "conf.py").write_text("mine = True\n")
    for place, use in ((clone.parent, USE), (elsewhere, f"import envs, conf; assert envs.mine and conf.mine; {FIND}")):
        (place / "use.py").write_text(use)
        found = run(python, "use.py", cwd=place, env=CLEAN).strip()
        assert Path(found).resolve().is_relative_to(home_of(python, clone).resolve())


def test_it_is_found_inside_a_checkout(python, clone, tmp_path):
    """The installed one by a script that lies elsewhere, the checkout's own by `python -c`."""
    (tmp_path / "use.py").write_text(FIND)
    found = run(python, tmp_path / "use.py", cwd=clone, env=CLEAN).strip()
    assert Path(found).resolve().is_relative_to(home_of(python, clone).resolve())
    assert Path(run(python, "-c", FIND, cwd=clone, env=CLEAN).strip()).resolve().is_relative_to(clone.resolve())


@pytest.mark.slow
@pytest.mark.parametrize("python", ["editable"], indirect=True)
def test_the_snippets_of_the_readme_run_beside_a_clone(python, clone):
    parts = [f"exec(compile({text!r}, 'snippet {n}', 'exec'), {{}})" for n, text in enumerate(SNIPPETS, start=1)]
    assert len(parts) >= 5
    (clone.parent / "snippets.py").write_text("\n".join(parts))
    run(python, "snippets.py", cwd=clone.parent, env=CLEAN)


PACKAGE = {  # every file of the package is in both
    str(path.relative_to(ROOT))
    for path in (ROOT / "rcac").rglob("*")
    if path.suffix in (".py", ".yaml") or path.name == "py.typed"
}


def test_what_the_wheel_holds(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    [info] = {name.split("/")[0] for name in names if "dist-info" in name}
    about = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert len(PACKAGE) > 100
    assert set(names) == PACKAGE | about


def test_what_the_sdist_holds(built):
    [path] = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    beside = {"README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff", "pyproject.toml", ".gitignore", "PKG-INFO"}
    assert names == PACKAGE | beside


def test_versions_agree(wheel):
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text("utf-8"), flags=re.M)
    latest = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.M)
    assert cited
    assert latest
    assert wheel.name.split("-")[1] == rcac.__version__ == cited[1] == latest[1]
