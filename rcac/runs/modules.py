"""Which modules may be imported, and from where.

`env.id=my_module:Env-v0` on a command line is a person's word: the module is imported, if need be from the current
folder. The same in the configuration of a run folder, which may be anyone's, is not. There it must be installed (or
imported already); or the id is given again on the command line; or the folder is trusted: `--trust` says so once, and
so does training in it. What is trusted is remembered below $XDG_STATE_HOME (~/.local/state), never in the folder itself.
"""

import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from rcac.errors import InputError


def module_of(env_id: str | None) -> str:
    """`my_module` of `my_module:Env-v0`, empty if it names none."""
    if not isinstance(env_id, str | None) or "$" in (env_id or ""):  # a file may say anything
        raise InputError(f"env.id: {env_id!r} given, an id expected")
    module = (env_id or "").rpartition(":")[0]
    if module and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
        raise InputError(f"env.id: {env_id!r} given, module:id expected, or an id alone")
    return module


_here: set[str] = set()  # modules that came from the current folder


def load(env_id: str) -> None:
    """Import the module of an id by a person's word. The current folder comes last: nothing there replaces what is
    installed."""
    module = module_of(env_id)
    if not module or _load_installed(module, env_id):
        return
    with contextlib.suppress(FileNotFoundError):  # a folder that has been removed
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)  # and stays, for what it imports later
    _import(module, env_id)
    _here.add(module)


def admit(env_id: str | None, folder: Path) -> None:
    """Refuse an id of a run folder's configuration that would run code of the current folder, unless it is trusted."""
    module = module_of(env_id)
    if not module or _load_installed(module, str(env_id)) or _mark(folder, module).is_file():
        return
    raise InputError(
        f"env.id: {env_id} given in {folder}, but its module is not installed; to run it from the current folder "
        f"env.id={env_id} or, once for all, --trust is expected on the command line"
    )


def remember(env_id: str | None, folder: Path) -> None:
    """A run that is trained with a module of the current folder may be resumed and evaluated with it."""
    if module_of(env_id) in _here:
        trust(env_id, folder)


def trust(env_id: str | None, folder: Path) -> None:
    """The module that the configuration of this folder names may be imported from now on."""
    module = module_of(env_id)
    if not module:
        return
    mark = _mark(folder, module)
    with contextlib.suppress(OSError):  # nowhere to remember it: it will be asked for again
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(f"{module} in {folder.resolve()}\n")


def _mark(folder: Path, module: str) -> Path:
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "rcac" / "trusted" / hashlib.sha256(f"{folder.resolve()}\n{module}".encode()).hexdigest()


def _load_installed(module: str, env_id: str) -> bool:
    """Import it, unless it is nowhere but in the current folder."""
    if module in sys.modules:
        return True
    try:
        with without_current_folder():
            _import(module, env_id)
    except ModuleNotFoundError:
        return False
    return True


def _import(module: str, env_id: str) -> None:
    """One line for what goes wrong in it; ModuleNotFoundError if it is not there."""
    try:
        import_module(module)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{module}.".startswith(f"{missing}."):
            raise
        raise InputError(f"env.id: {env_id} given, but importing {module} raised {error!r}") from error


@contextlib.contextmanager
def without_current_folder() -> Iterator[None]:
    """Modules are not searched there, however it came to be on the path."""
    before = [*sys.path]
    with contextlib.suppress(FileNotFoundError):  # a folder that has been removed
        here = os.path.realpath(os.getcwd())
        sys.path[:] = [entry for entry in before if os.path.realpath(entry or here) != here]
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in before]
        sys.path[:] = [*before, *added]
