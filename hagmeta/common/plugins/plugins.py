"""Load plug-ins, which are code from outside this package, and identify them by their source.

A reference to a plug-in is an import path (``package.module:Name``), a file (``my_method.py:Name``), an entry
point, or the class itself. Its identity is ``Name@<hash of its source>``. It is the same on every machine and
changes with the code. For a file, the hash covers the file; for a module, it covers the whole package.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from filelock import FileLock

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files.files import expanded, folder_written_whole
from hagmeta.common.plugins.identity import DIGITS, without_hash

VARIABLE = "HAGMETA_PLUGINS"  # environment variable with the name of the folder of plug-ins for workers
CONTENTS = "plugins.json"
MOST_BYTES = 50_000_000  # largest package that is sent to workers
EVERYWHERE = ("sklearn", "torch", "torch_geometric")  # installed on every machine, so never sent
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_IMPORT = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Plugin:
    """A loaded plug-in and the place of its source."""

    identity: str
    value: Any
    module: str  # the module that workers import; for a file, the name of its copy
    source: Path | None  # the file or the folder of the package; None without a file, as in a notebook
    content: bytes = b""  # the file when it was loaded; the file itself may change later

    @property
    def name(self) -> str:
        """Return the name without the hash."""
        return without_hash(self.identity)


_loaded: dict[str, Plugin] = {}  # by identity


def is_reference(text: str) -> bool:
    """Return whether ``text`` is ``file.py:Name`` or ``package.module:Name``, not a registered name."""
    return bool(_FILE.fullmatch(text) or _IMPORT.fullmatch(text))


def load(reference: str, kind: str) -> Plugin:
    """Load ``package.module:Name`` or ``file.py:Name``. Errors mention ``kind``, such as ``method``."""
    of_file = _FILE.fullmatch(reference)
    if of_file:
        return _from_file(expanded(of_file["path"]), of_file["name"], kind)
    parts = _IMPORT.fullmatch(reference)
    if not parts:
        raise UserError(
            f"{kind} {shown(reference)} is not a reference; expected package.module:Name or file.py:Name."
        )
    return _from_module(parts["module"], parts["name"], kind, reference)


def of_class(value: Any, kind: str) -> Plugin:
    """Return the plug-in of a class object, such as a class written in a notebook."""
    for plugin in _loaded.values():
        if plugin.value is value:
            return plugin
    name, module = value.__name__, sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    if module is not None and file and module.__name__ != "__main__":
        return _of_module(module, name, value)
    try:
        text = inspect.getsource(value)
    except (OSError, TypeError):
        raise UserError(
            f"{kind} {name}: its source code cannot be found; write the class in a file and use "
            f"file.py:{name}."
        ) from None
    return _keep(Plugin(f"{name}@{_digest([('', text.encode())])}", value, value.__module__, None))


def loaded() -> list[Plugin]:
    """Return all plug-ins that this process has loaded."""
    return list(_loaded.values())


def find(identity: str) -> Plugin | None:
    """Return the plug-in with ``identity`` if it is loaded or staged for this process, otherwise None."""
    if identity not in _loaded:
        _load_staged(identity)
    return _loaded.get(identity)


def stage(folder: Path, needed: Collection[str] = ()) -> Path | None:
    """Copy the sources of loaded plug-ins into one folder for workers.

    A worker finds all plug-ins if the parent of this folder is on ``sys.path`` and its name is in
    ``$HAGMETA_PLUGINS``.

    Args:
        folder: The parent folder. The name of the new folder contains a hash of its content.
        needed: Identities that must be copied. Other plug-ins are left out if they cannot be copied.

    Returns:
        The new folder, or None if there are no plug-ins.

    Raises:
        UserError: A needed plug-in cannot be copied.
    """
    sources = {plugin: _why_not_copied(plugin) for plugin in loaded()}
    for plugin, why_not in sources.items():
        if why_not and plugin.identity in needed:
            raise UserError(why_not)
    chosen = [plugin for plugin, why_not in sources.items() if not why_not]
    if not chosen:
        return None
    identities = sorted(plugin.identity for plugin in chosen)
    target = folder / f"hagmeta_plugins_{_digest([('', json.dumps(identities).encode())])}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{target.name}.lock"):
        if not (target / CONTENTS).exists():
            with folder_written_whole(target) as partial:
                for plugin in chosen:
                    _copy(plugin, partial)
                contents = [{"identity": p.identity, "module": p.module} for p in chosen]
                (partial / CONTENTS).write_text(json.dumps(contents, indent=1) + "\n")
    return target


def _why_not_copied(plugin: Plugin) -> str:
    """Return why a plug-in cannot be sent to workers, or an empty string."""
    if "<locals>" in getattr(plugin.value, "__qualname__", ""):
        return f"{plugin.name} is defined inside a function, where workers cannot find it; move it out."
    if plugin.source is None:
        return (
            f"{plugin.name} is defined in a notebook or a terminal, which workers cannot read; write it in "
            f"a file and use file.py:{plugin.name}."
        )
    if plugin.content or plugin.module.partition(".")[0] in EVERYWHERE:
        return ""
    if not plugin.source.is_dir() or _identity(plugin.name, plugin.source) != plugin.identity:
        return f"the package {plugin.source} has changed since {plugin.name} was loaded; restart the program."
    size = sum(path.stat().st_size for path in plugin.source.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        return (
            f"the package {plugin.source.name} has {size:,} bytes, too large to send to workers (at most "
            f"{MOST_BYTES:,}); move the plug-in to a separate package."
        )
    return ""


def _copy(plugin: Plugin, folder: Path) -> None:
    assert plugin.source is not None
    if plugin.content:
        (folder / f"{plugin.module}.py").write_bytes(plugin.content)
    elif plugin.module.partition(".")[0] not in EVERYWHERE:
        ignored = shutil.ignore_patterns("__pycache__", ".git", "*.partial")
        shutil.copytree(plugin.source, folder / plugin.source.name, ignore=ignored, dirs_exist_ok=True)


def _load_staged(identity: str) -> None:
    """Load the plug-in with ``identity`` from the folder in ``$HAGMETA_PLUGINS``, if it is there."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    places = [Path(entry) / name for entry in sys.path] + [Path(entry) for entry in sys.path]
    folder = next((place for place in places if place.name == name and (place / CONTENTS).is_file()), None)
    if folder is None:
        raise UserError(f"the folder {name} with the plug-ins of this launch is not on sys.path here.")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    modules = {each["identity"]: each["module"] for each in json.loads((folder / CONTENTS).read_text())}
    if identity in modules:
        found = _from_module(modules[identity], without_hash(identity), "plug-in", identity)
        if found.identity != identity:
            raise UserError(
                f"plug-in {identity}: the source on this machine differs (it is {found.identity} here)."
            )


def _from_file(path: Path, name: str, kind: str) -> Plugin:
    path = path.absolute()
    if not path.is_file():
        raise UserError(f"{path}:{name}: no such file; expected {kind} as file.py:Name.")
    content = path.read_bytes()
    identity = f"{name}@{_digest([('', content)])}"
    if identity in _loaded:
        return _loaded[identity]
    module_name = f"{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}_{identity.partition('@')[2]}"
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # needed by dataclasses and pickle
        with _errors_in_a_line(f"{path}:{name}", f"{path.name} cannot be imported"):
            try:
                exec(compile(content, str(path), "exec"), vars(module))
            except BaseException:
                del sys.modules[module_name]
                raise
    return _keep(Plugin(identity, _member(module, name, f"{path}:{name}"), module_name, path, content))


def _from_module(module_name: str, name: str, kind: str, reference: str) -> Plugin:
    with _errors_in_a_line(reference, f"{module_name} cannot be imported"), _here_importable():
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
                raise UserError(
                    f"{reference}: there is no module {error.name!r}; expected an installed "
                    f"package.module:Name, or a file as file.py:{name}."
                ) from None
            raise
    return _of_module(module, name, _member(module, name, reference))


def _of_module(module: ModuleType, name: str, value: Any) -> Plugin:
    source = _source_of(module)
    content = source.read_bytes() if source.is_file() else b""
    return _keep(Plugin(_identity(name, source), value, module.__name__, source, content))


@contextmanager
def _here_importable() -> Iterator[None]:
    """Make modules in the current folder importable, after all others."""
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def _errors_in_a_line(reference: str, what: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # plug-ins may raise anything
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{reference}: {what}: {type(error).__name__}: {reason}") from error


def _member(module: ModuleType, name: str, reference: str) -> Any:
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if inspect.isclass(value) and key[0] != "_"]
        there = f"; its classes are {', '.join(own[:8])}" if own else ""
        raise UserError(f"{reference}: the module has no {name!r}{there}.")
    return getattr(module, name)


def _keep(plugin: Plugin) -> Plugin:
    return _loaded.setdefault(plugin.identity, plugin)


def _source_of(module: ModuleType) -> Path:
    """Return the folder of the top-level package of a module, or its file if it has no package."""
    top = sys.modules[module.__name__.partition(".")[0]]
    paths = list(getattr(top, "__path__", ()))
    return Path(paths[0]) if paths else Path(str(module.__file__))


def _identity(name: str, source: Path) -> str:
    if source.is_file():
        return f"{name}@{_digest([('', source.read_bytes())])}"
    files = sorted(path for path in source.rglob("*.py") if "__pycache__" not in path.parts)
    return f"{name}@{_digest([(path.relative_to(source).as_posix(), path.read_bytes()) for path in files])}"


def _digest(parts: list[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:
        # Line endings may differ between machines.
        digest.update(f"{name}\0".encode() + content.replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:DIGITS]
