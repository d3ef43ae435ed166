# %% [markdown]
# # Sweeps and clusters
#
# One policy says little about a method. `-m` runs a job for every combination of values, many at a time, and goes on after whatever happens. Here: two
# methods, each trained for two radii of a KL ball. In a shell it is the line that is printed; in a notebook we call it from Python.

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())


def run(command, *arguments):
    program = [sys.executable, "-c", f"from rcac.cli import {command}; {command}()"]
    done = subprocess.run([*program, *arguments], cwd=folder, capture_output=True, text=True)
    print(f"rcac-{command}", *arguments, "\n\n", done.stdout.replace(str(folder), "…"))
    assert done.returncode == 0, done.stderr


sweep = ["-m", "env=river_swim", "algo=rsqp,rnpg", "uncertainty.radius=0.005,0.01", "hydra.sweep.dir=radii"]
run("train", *sweep)

# %% [markdown]
# The same command again does what is missing: nothing here. After Ctrl-C, a failure or a lost machine it takes up the jobs that are not done, each from
# its last checkpoint.

# %%
run("train", *sweep)

# %% [markdown]
# ## Compare
#
# Which budget holds when the model is wrong by another radius than in training?

# %%
run("evaluate", "run=radii", "sweep.radius=0,0.005,0.01")

# %% [markdown]
# Three figures are in `radii/evaluation_plots`: return and cost against the radius, the worst of it for each method, and this one, where every run is a
# mark. The best are at the top, left of the budget. A policy trained for too small a radius earns more, and breaks its budget.

# %%
from IPython.display import Image

[pareto] = (folder / "radii/evaluation_plots").glob("*_pareto.png")
Image(pareto.read_bytes(), width=620)

# %% [markdown]
# ## On a cluster
#
# The jobs stay the same, the launcher changes:
#
# ```console
# rcac-train -m env=cartpole 'seed=range(100)' hydra/launcher=submitit_slurm hydra.launcher.partition=cpu
# RAY_ADDRESS=head:6379 rcac-train -m env=cartpole 'seed=range(100)' hydra/launcher=ray
# ```
#
# The machines share the sweep's folder. [Sweeps](../sweeps.md) has the rest: what is checked before the first job, exit codes, and Optuna.
