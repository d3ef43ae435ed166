"""What `--help` prints: a few words written by hand, and the groups and keys as the files and dataclasses have them."""

import inspect
import re
from importlib import resources
from typing import Any

from rcac import registry
from rcac.config import compose as configuration
from rcac.config import schema

TRAIN = """\
rcac-train env=<name> [algo=<name>] [uncertainty=<name>] [key=value …]
rcac-train --from runs/<env>/<algo>/<run> [key=value …]     the same again, or with other values
rcac-train resume=runs/<env>/<algo>/<run>                   go on where a run was stopped
  either with --trust                                       run the module of env.id= that the folder of another names
rcac-train -m env=<name> algo=<name>,<name> seed=range(10)  a run for every combination, many at a time

Trains a policy that earns as much as it can while every cost stays within its budget, in the worst case over the
models that an uncertainty set allows. Everything about it ends in a folder of its own.

  rcac-train env=river_swim algo=rsqp uncertainty=kl_ball uncertainty.radius=0.01
  rcac-train env=cartpole algo=rcac_npg algo.total_steps=500000 seed=1
  rcac-train env=river_swim algo=rnpg preset=paper          the paper's own settings of its methods
  rcac-train env=custom env.path=my.npz                     a problem that RCMDP.save wrote
  rcac-train env=gym env.id=my_package:my/Env-v0 env.budgets=[25]
  rcac-train env=gym env.id=my_costs:CartPole-v1 env.cost=speeding env.budgets=[25]     a cost of my_costs.py, here

It is a Hydra application, and what Hydra's users know works: --cfg job shows the whole configuration, --info where it
comes from, --config-dir adds a folder of files of your own, hydra.run.dir=… chooses the run's folder, -sc install=bash
completes in the shell; --hydra-help tells more.

With -m, runs go to runs/sweeps/<name> (hydra.sweep.dir=… chooses another folder); the same command does what is missing
there. hydra.launcher.n_jobs=4 limits how many run at a time; hydra/launcher=submitit_slurm hydra.launcher.partition=…
has them run on a cluster (pip install 'rcac[slurm]'), hydra/launcher=ray on the nodes of a Ray cluster ('rcac[ray]');
hydra/sweeper=optuna hydra.sweeper.direction=maximize looks for the best values ('rcac[optuna]').

Tabular methods need an environment that carries its model; deep ones learn from any. Names are those of conf/, of
what is registered in code (rcac.register_algo, …) and of installed packages that offer some.
Exit codes: 0 done, 1 stopped by a failure, 2 bad input, 3 proved infeasible, 5 over a budget, or not known, with
strict=true, 130 and 143 stopped by a signal.
"""


EVALUATE = """\
rcac-evaluate run=runs/<env>/<algo>/<run> [key=value …]
rcac-evaluate run=runs/<env> sweep.<name>=v1,v2,… [key=value …]     all runs below a folder, under perturbations
rcac-evaluate run=runs/<env>/<algo>/<run> certify=true|strict [key=value …]     a certificate, with a confidence

Plays episodes with trained policies and puts return and costs beside the budgets; where the environment carries its
model, also computes the exact values in the nominal model and in the worst case. Writes evaluation.csv in the folder
given; for several runs or with sweeps also evaluation.md and figures, with statistics over the seeds of each method.
Other conditions than those of the training: env.kwargs.noise_high=0.1, uncertainty=kl_ball, …
--trust runs the modules that the runs name in env.id, where those are not installed but in the current folder.

  rcac-evaluate run=runs/cartpole/rcac_npg/<run> episodes=100 record=true
  rcac-evaluate run=runs/cartpole sweep.noise=0,0.02,0.04,0.06,0.08,0.1 sweep.wind=0,1,2
  rcac-evaluate run=runs/river_swim sweep.radius=0,1e-3,1e-2 sweep.random=0,1e-3,1e-2 uncertainty=kl_ball

Sweeps, each alone with the rest as in training
  sweep.noise= wind= action_flip= mass= length= gravity= force=   of the cart-pole
  sweep.<argument>=                                               any numeric argument of the environment
  sweep.observation_noise=                                        uniform in ±δ, for observations that are real numbers
  sweep.action_noise=                                             probability of another action, or standard deviation
  sweep.radius=                                                   of the set (temperature of kl_penalty): exact worst case
  sweep.random=                                                   kernels drawn from the set of that radius: exact values

With certify=true, fresh episodes over the box of parameters that the run was trained against (for other runs the ranges of
the environment's file; 'uncertainty.ranges={wind: [-2, 2], length: [0.5, 2, log]}' gives others) say what is known of every cost:
a bound on its mean at the worst context found, and on the shares of contexts and episodes above the budget. Table and
statements are printed, and written with a figure: certificate.json, plots/certificate.png.

  rcac-evaluate run=runs/cartpole_tradeoff/rcac_sqp/<run> certify=strict confidence=0.99

Exit codes: 0 done, 1 stopped by a failure, 2 bad input, 4 with certify=strict if a budget is not certified.
"""


def evaluate(settings: type, certificate: type) -> str:
    return "\n".join([EVALUATE, "Keys", *_keys(settings), "\nKeys with certify=true or strict", *_keys(certificate)])


def _keys(settings: type) -> list[str]:
    comments, values = _dataclass_comments(settings), vars(settings())
    return _aligned({f"{key}={_shown(values[key])}": text for key, text in comments.items()})


def _dataclass_comments(settings: type) -> dict[str, str]:
    """What stands behind each field, on however many lines, those that a class inherits last."""
    sources = [inspect.getsource(kind) for kind in settings.__mro__ if kind is not object]
    field = r"^    (\w+): (?:.|\n(?! {4}[\w#]|\n))*?  # (.*)$"
    return dict(re.findall(field, "\n".join(sources), re.MULTILINE))


def train(overrides: list[str]) -> str:
    """The text; with choices, e.g. `algo=rnpg`, also the keys that these have."""
    broken = registry.broken()
    families = {family: ", ".join(registry.algorithms(family)) for family in schema.FAMILIES}
    parts = [
        TRAIN,
        "Groups (--help env=… algo=… explains the keys of a choice)",
        *_aligned({f"env={name}": about for name, about in _environments().items()}),
        *_aligned({f"algo= ({family})": names for family, names in families.items()}),
        *_aligned(
            {
                f"uncertainty={name}": _about("uncertainty", name)
                for name in registry.uncertainty_names()
                if f"uncertainty={name}" not in broken
            }
        ),
        *(f"  left out: {line}" for line in broken.values()),
        "\nKeys",
        *_aligned(_comments("train")),
    ]
    chosen = {key: value for key, value in configuration.parse(overrides) if key in configuration.GROUPS}
    for group, name in chosen.items():
        parts += ["", f"{group}={name}", *_aligned(EXPLAIN[group](name))]
    return "\n".join(parts)


def _environments() -> dict[str, str]:
    return {name: _about("env", name) for name in registry.rows("env")}


def _about(group: str, name: str) -> str:
    """The first line of a file, which says what it is."""
    if name not in registry.rows(group):
        return "registered in code or by a package"
    first = _text(f"{group}/{name}").splitlines()[0]
    return first.removeprefix("# ") if first.startswith("#") else ""


def _text(name: str) -> str:
    return resources.files("rcac.conf").joinpath(f"{name}.yaml").read_text("utf-8")


def _comments(name: str) -> dict[str, str]:
    """`key=value` and what stands behind the key in a file of conf/, at any depth."""
    found: dict[str, str] = {}
    path: list[str] = []
    for line in _text(name).splitlines():
        match = re.match(r"( *)([\w:*]+):(?: +([^#]*?))?(?: +# (.*))?$", line)
        if not match:
            continue
        indent, key, value, comment = match.groups()
        path = [*path[: len(indent) // 2], key]
        if value:
            found[f"{'.'.join(path)}={value}"] = comment or ""
    return found


def _algo(name: str) -> dict[str, str]:
    row = registry.algorithm_row(registry.choose("algo", name, registry.algorithm_names()))
    family = schema.FAMILIES[registry.choose("family", row.get("family"), schema.FAMILIES)]
    comments = _dataclass_comments(family)
    values: dict[str, Any] = vars(family()) | row
    return {f"algo.{key}={_shown(value)}": comments.get(key, "") for key, value in values.items()}


def _env(name: str) -> dict[str, str]:
    registry.choose("env", name, registry.rows("env"))
    # An environment's own defaults of deep methods are shown under the keys that change them.
    own = {f"env.{key}".replace("env.deep.", "algo."): about for key, about in _comments(f"env/{name}").items()}
    there = {key.split("=")[0] for key in own}
    comments = _dataclass_comments(schema.Env)
    rest = {f"env.{key}": about for key, about in comments.items() if f"env.{key}" not in there and key != "kwargs"}
    return own | rest


def _set(name: str) -> dict[str, str]:
    registry.choose("uncertainty", name, registry.uncertainty_names())
    if name in registry.rows("uncertainty"):
        return {f"uncertainty.{key}": about for key, about in _comments(f"uncertainty/{name}").items()}
    typed = schema.set_schema(registry.uncertainty_set(name), name)
    return {f"uncertainty.{key}": "" for key in typed.__annotations__ if key != "name"}


EXPLAIN = {"algo": _algo, "env": _env, "uncertainty": _set}


def _shown(value: Any) -> str:
    if isinstance(value, list) or not (value is None or isinstance(value, bool)):
        return str(value)
    return "null" if value is None else str(value).lower()


def _aligned(rows: dict[str, str]) -> list[str]:
    width = min(max(map(len, rows), default=0), 40)
    return [f"  {key:<{width}}  {about}".rstrip() for key, about in rows.items()]
