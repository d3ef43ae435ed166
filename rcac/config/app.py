"""`rcac-train` as a Hydra application: `@hydra.main` composes and runs, its errors become one line."""

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import MissingConfigException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf

from rcac import registry
from rcac.config import compose as configuration
from rcac.config import schema, source
from rcac.config.compose import explained
from rcac.config.overrides import as_overrides, check_plain, parse_overrides, whole_numbers
from rcac.errors import InputError
from rcac.runs import modules
from rcac.runs import train as training
from rcac.runs.folder import RunFolder
from rcac.runs.train import Trained

# Hydra's options, with how many words follow. Not --experimental-rerun, which unpickles a file.
OPTIONS = {
    **dict.fromkeys(("--resolve", "--run", "-r", "--multirun", "-m", "--shell-completion", "-sc", "--hydra-help"), 0),
    **dict.fromkeys(("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"), 1),
    **dict.fromkeys(("--config-dir", "-cd", "--info", "-i"), 1),
}
TOPICS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
CHOICES = {**dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")), **dict.fromkeys(("--info", "-i"), TOPICS)}
EXTRAS = {
    ("hydra/launcher", "submitit_local"): "slurm",
    ("hydra/launcher", "submitit_slurm"): "slurm",
    ("hydra/launcher", "ray"): "ray",
    ("hydra/sweeper", "optuna"): "optuna",
}


class Command(NamedTuple):
    """A command line, taken apart."""

    options: list[str]  # Hydra's, with their values
    overrides: list[str]
    source: str | None  # what --from says
    trust: bool = False  # --trust: code that the configuration of that folder names may be run, now and later
    saved: dict[str, Any] | None = None  # the configuration that --from or resume names

    @property
    def is_sweep(self) -> bool:
        """-m: a run for every combination of values."""
        return bool({"-m", "--multirun"} & {*self.options}) or "hydra.mode=MULTIRUN" in self.overrides

    @property
    def folders(self) -> list[str]:
        """Of the user's own configuration files."""
        pairs = zip(self.options, self.options[1:], strict=False)
        return [str(Path(value).resolve()) for option, value in pairs if option in ("--config-dir", "-cd")]


def read(argv: Iterable[str]) -> Command:
    argv = list(argv)
    if argv and argv[-1] in ("--info", "-i"):
        argv.append("all")
    options, overrides, saved, trust, rest = [], [], None, False, iter(argv)
    for text in rest:
        name, equals, value = text.partition("=")
        if name == "--from":
            saved = value if equals else next(rest, None)
            if saved is None:
                raise InputError("--from: nothing given, the folder of a run expected")
        elif text == "--trust":
            trust = True
        elif text.startswith("-"):
            if name not in OPTIONS:
                known = ", ".join(option for option in OPTIONS if option.startswith("--"))
                raise InputError(
                    f"{text}: no such option, known are --help, --version, --from and --trust, and Hydra's {known} (keys are key=value)"
                )
            options.append(name)
            if OPTIONS[name]:
                options.append(value if equals else next(rest, ""))
                if not options[-1]:
                    raise InputError(f"{name}: nothing given, a value expected")
                registry.choose(name, options[-1], CHOICES.get(name, options[-1:]))
        else:
            overrides.append(whole_numbers(text))
    return Command(options, overrides, saved, trust)


def completing(options: list[str]) -> bool:
    return bool({"--shell-completion", "-sc"} & {*options})


def prepare(command: Command) -> Command:
    """Write the configuration that `--from` or `resume` names out as overrides, and refuse anything that would be executed."""
    if command.is_sweep and {"--cfg", "-c", "--info", "-i", "--shell-completion", "-sc", "--run", "-r"} & {
        *command.options
    }:
        raise InputError("-m: given with another of --run, --cfg, --info and --shell-completion, one of them expected")
    for folder in command.folders:
        if not Path(folder).is_dir():
            raise InputError(f"--config-dir: {folder} given, a folder expected")
    parsed = parse_overrides(command.overrides)
    given = [override.key_or_group for override in parsed]
    for override in parsed:
        if not override.is_sweep_override():
            _check_override(override)
    saved: dict[str, Any] | None = None
    resumed = [str(override.value()) for override in parsed if override.key_or_group == "resume"]
    if resumed and resumed != ["None"] and not command.is_sweep:
        others = [*(["--from"] if command.source else []), *(key for key in given if not _allowed_with_resume(key))]
        if others:
            raise InputError(
                f"{others[0]}: given with resume, which keeps a run's own configuration (but for progress)"
            )
        home = RunFolder.open(resumed[-1]).path
        saved = configuration.load(home)
        _admit(command, parsed, saved, home)
    elif command.source:
        saved, home = configuration.load(command.source), Path(command.source)
        _admit(command, parsed, saved, home if home.is_dir() else home.parent)
    elif command.trust:
        raise InputError("--trust: given alone, --from or resume expected, whose folder is to be trusted")
    before = as_overrides(saved, given) if saved else []
    if command.folders or "hydra.searchpath" in given:
        single = [str(o.input_line) for o in parsed if not o.is_sweep_override()]
        compose_all([*before, *single], command.folders)
    return command._replace(overrides=[*before, *command.overrides], saved=saved)


def _admit(command: Command, parsed: list[Override], saved: dict[str, Any], home: Path) -> None:
    """A module named in a run folder is imported only with the user's consent, see `rcac.runs.modules`."""
    named, given = saved["env"].get("id"), [o.value() for o in parsed if o.key_or_group == "env.id"]
    if given and command.source is None and given != [named]:
        raise InputError(f"env.id: {given[0]} given with resume, {named} expected as in {home}")
    if given or any(override.key_or_group == "env" for override in parsed):
        for value in given:
            if isinstance(value, str):
                modules.load(value)
    elif command.trust:
        modules.trust(named, home)
    else:
        modules.admit(named, home)


def _check_override(override: Override) -> None:
    """Plain data; in Hydra's own part also the time and what Hydra knows of a job, for the names of folders."""
    value = override.value()
    if override.is_hydra_override() and isinstance(value, str):
        value = re.sub(r"\$\{(hydra|now):[^{}]*\}", "", value)
    key = override.key_or_group.replace("/", ".")
    check_plain(key, value)
    if key in ("hydra.run.dir", "hydra.sweep.dir") and not value:
        raise InputError(f"{key}: {value!r} given, a folder expected")
    if key in schema.switches() and not isinstance(value, bool | None):
        raise InputError(f"{key}: {value!r} given, true or false expected")


def _allowed_with_resume(key: str) -> bool:
    return key in ("resume", "progress", "env.id") or key.split(".")[0].split("/")[0] == "hydra"


def compose_all(overrides: list[str], folders: list[str]) -> DictConfig:
    """Compose with Hydra's own part, and refuse any `_target_` in it but installed plugins, since Hydra instantiates them."""
    with source.hydra_here(), explained():
        search = configuration.search(folders)
        try:
            config = hydra.compose("train", overrides=[*search, *overrides], return_hydra_config=True)
        except MissingConfigException as error:
            group, _, name = str(error.missing_cfg_file).rpartition("/")
            if extra := EXTRAS.get((group, name)):
                line = f"{group}: {name} is not installed, pip install 'rcac[{extra}]' expected"
                raise InputError(line) from error
            raise
    _check_targets("", OmegaConf.to_container(config, resolve=False))
    return config


def _trusted(key: str, value: str) -> bool:
    """Whether it is a plugin that is installed, where Hydra's configuration names one."""
    if key == "hydra.sweeper.sampler._target_":
        return value.startswith("optuna.samplers.")
    kind = {"hydra.launcher._target_": Launcher, "hydra.sweeper._target_": Sweeper}.get(key)
    plugins = Plugins.instance().discover(kind) if kind else []
    return value in {f"{plugin.__module__}.{plugin.__name__}" for plugin in plugins}


def _check_targets(key: str, node: Any) -> None:
    if isinstance(node, dict):
        for name, value in node.items():
            inner = f"{key}.{name}".lstrip(".")
            if name in ("_target_", "()") and not _trusted(inner, str(value)):
                raise InputError(f"{inner}: {value!r} given, nothing that is called expected in a file")
            _check_targets(inner, value)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _check_targets(f"{key}[{index}]", value)
    elif isinstance(node, str) and not key.startswith("hydra."):
        check_plain(key, node)


@contextlib.contextmanager
def _explained(command: Command) -> Iterator[None]:
    try:
        with explained():
            yield
    except SystemExit as ended:
        raise SystemExit(2 if ended.code else 0) from None  # Hydra has said why
    except KeyError as error:
        if not completing(command.options):
            raise
        raise InputError(f"--shell-completion: query needs {error}, which a shell sets") from error
    except OSError as error:
        line = f"hydra.run.dir: {error.filename} given, a folder that can be made expected ({error.strerror})"
        raise InputError(line) from error
    except InputError:
        if completing(command.options):
            raise
        ours = [text for text in command.overrides if not text.lstrip("+~").startswith("hydra")]
        if not command.is_sweep:
            configuration.finish(
                configuration.compose_nodes(ours, folders=command.folders)
            )  # may give a clearer message
        raise


def train(config: DictConfig) -> Trained:
    """What Hydra composed, trained: below `runs`, or in the folder that `hydra.run.dir` names."""
    found, home = configuration.finish(config), HydraConfig.get().run.dir
    if found.resume is not None:
        return training.resume(found.resume, found.progress)
    folder = None if home == "." else Path(HydraConfig.get().runtime.output_dir)
    try:
        return training.train(found, folder)
    except BaseException:
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.rmdir()  # Hydra made it; nothing is in it
        raise


def run_hydra(command: Command, task: Callable[[DictConfig], Any]) -> None:
    """Hydra's own `main`, with what it raises in one line."""

    def application(config: DictConfig) -> Any:
        return task(config)

    source.install()
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    sys.argv = [argv[0], *command.options, *command.overrides]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise, instead of printing and exiting
    try:
        with configuration.known(command.saved or {}), _explained(command):
            hydra.main(config_path=source.FILES, config_name="train", version_base="1.3")(application)()
    finally:
        sys.argv = argv
        root.setLevel(level)
        root.handlers[:] = handlers
        os.environ.pop("HYDRA_FULL_ERROR") if full is None else os.environ.update(HYDRA_FULL_ERROR=full)
