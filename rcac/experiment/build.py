"""From a checked configuration to what it describes: environments, a problem, a learner. Names meet code here only."""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, VectorEnv

from rcac import registry
from rcac.envs import register_rcmdp
from rcac.envs.tabular.render import policy_image
from rcac.envs.wrappers import CostFunction, EnvironmentFault, Guard
from rcac.errors import InputError
from rcac.experiment.policy import space_card
from rcac.experiment.schema import FAMILIES, Config, Env
from rcac.learner import Learner, State
from rcac.problem import RCMDP
from rcac.uncertainty.base import Uncertainty

MODES = {"sync": "sync", "async": "async", "vector": "vector_entry_point"}


class Built(NamedTuple):
    learner: Learner
    identity: dict[str, Any]  # what a checkpoint must share with the run that takes it up
    close: Callable[[], None]
    images_every: int  # evaluations or steps between pictures


def build(config: Config) -> Built:
    """The learner of a configuration, ready for its first step."""
    with _under("algo", config.algo):
        fields = {key: value for key, value in config.algo.items() if key != "name"}
        settings = FAMILIES[config.algo["family"]](**fields)
    return BUILDERS[settings.family](config, settings)


# Environments


def env_id(env: Env) -> str:
    """The id in Gymnasium's registry; a problem's file is registered under a name of its own."""
    if env.path is None:
        if env.id is None:
            raise InputError("env.id: not given, an id of Gymnasium's registry expected")
        module, _, name = env.id.rpartition(":")
        if module:
            import_module(module)  # as Gymnasium does; it registers its environments
        return name
    path = Path(env.path).resolve()
    name = f"custom/{''.join(c if c.isalnum() else '_' for c in path.stem)}-v0"
    with _under("env", {"path": None}):
        gym.registry.pop(name, None)  # the file may have changed since
        register_rcmdp(name, path, env.max_episode_steps)
    return name


def env_label(env: Env) -> str:
    """What a run is filed under: the configuration's name if that says which environment it is, else the id."""
    fixed = registry.rows("env")[env.name].get("id") not in (None, "???")
    return env.name if fixed else env_id(env)


def make_env(env: Env, **more: Any) -> gym.Env:
    """One copy."""
    with _explained(env):
        return gym.make(env_id(env), **_arguments(env), **more)


def make_envs(env: Env, copies: int) -> VectorEnv:
    """Several copies, stepped together. What single copies do is guarded; a vector version guards itself."""
    with _explained(env):
        name = env_id(env)
        spec = gym.spec(name)
        own = spec.vector_entry_point is not None and not spec.additional_wrappers
        mode = env.vectorization
        if mode == "auto":
            mode = "vector" if own and env.cost is None else "sync"
        if mode == "vector" and not (own and env.cost is None):
            reason = f"{name} has no vector version" if not own else "env.cost wraps single copies"
            raise InputError(f"env.vectorization: vector given, sync or async expected ({reason})")
        wrappers = _wrappers(env) if mode != "vector" else []
        return gym.make_vec(name, copies, MODES[mode], wrappers=wrappers, **_arguments(env))


def _wrappers(env: Env) -> list[Any]:
    """What a single copy is wrapped in: its cost, if that is a function, and a guard, unless no cost is asked for."""
    wrappers: list[Any] = []
    if env.cost is not None:
        function = registry.cost_function(env.cost)
        wrappers.append(lambda single: CostFunction(single, function))
    return [*wrappers, Guard] if env.budgets != [] else wrappers


def check_costs(env: Env, single: gym.Env) -> None:
    """Take a step, to see whether there is a cost for each budget; better now than in the middle of a run."""
    for wrapper in _wrappers(env):
        single = wrapper(single)
    try:
        single.reset(seed=0)
        single.action_space.seed(0)
        *_, info = single.step(single.action_space.sample())
    except EnvironmentFault as fault:
        raise InputError(f"env: {fault}") from fault
    if env.budgets and len(info["costs"]) != len(env.budgets):
        count = len(info["costs"])
        raise InputError(f"env.budgets: {env.budgets} given, {count} expected: the environment reports {count} costs")


def _arguments(env: Env) -> dict[str, Any]:
    limit = {} if env.max_episode_steps is None else {"max_episode_steps": env.max_episode_steps}
    return {**limit, **env.kwargs}


def _close(envs: VectorEnv) -> None:
    """Also if a process of an asynchronous one has died in the middle of a step, which `close` would wait for."""
    if not isinstance(envs, AsyncVectorEnv):
        return envs.close()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps under way
            envs.close(terminate=True)
    except (EOFError, OSError):
        for process in envs.processes:
            process.kill()
            process.join()
        envs.closed = True
    return None


@contextlib.contextmanager
def _explained(env: Env) -> Iterator[None]:
    """What can be wrong with an environment's name and arguments, in one line."""
    try:
        with _under("env.kwargs", env.kwargs):
            yield
    except gym.error.Error as error:
        raise InputError(f"env.id: {env.id} given: {' '.join(str(error).split())}") from error
    except ImportError as error:
        raise InputError(f"env.id: {env.id} given: {error}") from error
    except TypeError as error:
        raise InputError(f"env.kwargs: {env.kwargs} given: {error}") from error


@contextlib.contextmanager
def _under(prefix: str, known: dict[str, Any]) -> Iterator[None]:
    """Name a field as the command line does."""
    try:
        yield
    except InputError as error:
        if str(error).split(":")[0].split("[")[0] in known:
            raise InputError(f"{prefix}.{error}") from error
        raise


# Problems


class Opened(NamedTuple):
    env: gym.Env  # one copy
    problem: RCMDP | None  # the model it carries, if it has one, with the budgets of the configuration
    steps: int | None  # of an episode, at most


def open_env(env: Env) -> Opened:
    """One copy, and what can be learned from it."""
    single = make_env(env)
    steps = single.spec.max_episode_steps if single.spec is not None else None
    problem: RCMDP | None = getattr(single.unwrapped, "rcmdp", None)
    if problem is not None and env.budgets is not None:
        if len(env.budgets) != problem.num_constraints:
            raise InputError(f"env.budgets: {env.budgets} given, {problem.num_constraints} numbers expected")
        problem = replace(problem, budgets=np.asarray(problem.signs)[1:] * np.array(env.budgets))
    return Opened(single, problem, steps)


def make_uncertainty(problem: RCMDP, row: dict[str, Any]) -> Uncertainty:
    parameters = {key: value for key, value in row.items() if key != "name"}
    with _under("uncertainty", parameters):
        made = registry.uncertainty_set(row["name"])(problem, **parameters)
        if not isinstance(made, Uncertainty):
            raise InputError(f"uncertainty: {row['name']} made {made!r}, an Uncertainty expected")
        made.check(problem)
    return made


# Learners


def _tabular(config: Config, settings: Any) -> Built:
    from rcac.tabular.multistart import MultiStart
    from rcac.tabular.solve import make_solvers

    name = config.algo["name"]
    single, problem, _ = open_env(config.env)
    if problem is None:
        able = ", ".join(registry.algorithms("deep"))
        raise InputError(f"algo: {name} given, but {env_id(config.env)} has no model; one of {able} expected")
    assert config.uncertainty is not None
    uncertainty = make_uncertainty(problem, config.uncertainty)
    solvers = make_solvers(problem, uncertainty, settings, config.seed)

    labels, signs = problem.labels(), np.asarray(problem.signs)

    def draw(policy: State) -> dict[str, np.ndarray]:
        table, values = policy.tensors["policy"], policy.tensors["values"]
        shown = signs[:, None] * values
        images = {"policy/best": policy_image(single, table)}
        for label, row in zip(labels, shown, strict=True):
            images[f"value/{label.replace(' ', '_')}"] = policy_image(single, None, row)
        return images

    learner: Any = solvers[0] if len(solvers) == 1 else MultiStart(solvers)
    identity = _identity(config, single) | {"model": _digest(problem), "uncertainty": config.uncertainty}
    halfway = learner.total // 2 + 1  # a picture takes longer than many evaluations: one on the way, one in the end
    return Built(present(learner, single, draw), identity, single.close, halfway)


def _deep(config: Config, settings: Any) -> Built:
    from rcac.deep.returns import discounted_share
    from rcac.deep.trainer import Trainer

    single, problem, steps = open_env(config.env)
    with contextlib.closing(single):
        if problem is None:
            check_costs(config.env, single)
    if steps is None:
        raise InputError("env.max_episode_steps: not given and not registered, a whole number ≥ 1 expected")
    if problem is not None:
        usual = type(settings)().gamma
        if settings.gamma not in (usual, problem.discount):
            raise InputError(f"algo.gamma: {settings.gamma} given, {problem.discount} expected, the model's discount")
        # the model's budgets are discounted already: undo what the trainer does to budgets on plain sums
        settings = replace(settings, gamma=problem.discount, calibrate=False)
        config.algo |= {"gamma": settings.gamma, "calibrate": settings.calibrate}
        budgets = problem.budgets / discounted_share(settings.gamma, steps)
    elif config.env.budgets is None:
        raise InputError("env.budgets: not given, a number for each cost expected, like [25]")
    else:
        budgets = np.array(config.env.budgets)
    envs = make_envs(config.env, settings.num_envs)
    close = partial(_close, envs)
    try:
        learner = Trainer(envs, budgets, settings, config.seed, steps)
    except BaseException:
        close()
        raise
    often = max(1, learner.total // 20)
    return Built(present(learner, envs, lambda policy: {}), _identity(config, envs), close, often)


BUILDERS: dict[str, Callable[[Config, Any], Built]] = {"tabular": _tabular, "deep": _deep}


class Presented:
    """A learner whose policy knows the spaces it acts on, and that has pictures of it."""

    def __init__(self, learner: Learner, env: Any, draw: Callable[[State], dict[str, np.ndarray]]) -> None:
        self._learner, self._draw = learner, draw
        observation, action = _spaces(env)
        self._spaces = {"observation": space_card(observation), "action": space_card(action)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)

    @property
    def total(self) -> int:
        """A learner that has met its stopping test has no more to do."""
        return self._learner.position if self._learner.finished else self._learner.total

    def policy(self) -> State:
        tensors, card = self._learner.policy()
        return State(tensors, {**card, "spaces": self._spaces})

    def images(self) -> dict[str, np.ndarray]:
        return self._learner.images() | self._draw(self._learner.policy())


def present(learner: Any, env: Any, draw: Callable[[State], dict[str, np.ndarray]]) -> Learner:
    return cast(Learner, Presented(learner, env, draw))


def _spaces(env: Any) -> tuple[gym.Space, gym.Space]:
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def _identity(config: Config, env: Any) -> dict[str, Any]:
    text = json.dumps(asdict(config.env), sort_keys=True)
    observation, action = _spaces(env)
    return {
        "env": config.env.name,
        "env_id": env_id(config.env),
        "env_hash": hashlib.sha256(text.encode()).hexdigest()[:16],
        "algo": config.algo["name"],
        "observations": str(observation),
        "actions": str(action),
        "seed": config.seed,
    }


def _digest(problem: RCMDP) -> str:
    """Of everything that a model says."""
    rows = problem.rows
    digest = hashlib.sha256(repr((problem.discount, problem.costs.shape)).encode())
    for array in (rows.indptr, rows.indices, rows.data, problem.costs, problem.budgets, problem.initial):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
