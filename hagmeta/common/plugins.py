"""Load code from outside this package, and know it again by its source.

A plug-in is named by an import path (``package.module:Name``), by a file (``my_method.py:Name``), by an entry
point, or is the class itself. Its identity is ``Name@<hash of its source>``: the same on every machine, and
another one as soon as the code changes. For a file the hash covers the file, for a module its whole package.
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
from hagmeta.common.files import expanded, folder_written_whole
from hagmeta.common.identity import DIGITS, without_hash

VARIABLE = "HAGMETA_PLUGINS"  # names the staged folder in which a worker finds the launch's plug-ins
CONTENTS = "plugins.json"
MOST_BYTES = 50_000_000  # of a package that is sent to workers
EVERYWHERE = ("torch", "torch_geometric")  # installed on every machine: not sent
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_IMPORT = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Plugin:
    """Something that was loaded from outside: what it is, and where its source is."""

    identity: str
    value: Any
    module: str  # by which a worker imports it; of a file, the name of the copy
    source: Path | None  # the file or the package's folder; None where there is no file, as in a notebook
    content: bytes = b""  # of a file, as it was loaded: it may change afterwards

    @property
    def name(self) -> str:
        """The name without the hash."""
        return without_hash(self.identity)


_loaded: dict[str, Plugin] = {}  # by identity


def is_reference(text: str) -> bool:
    """Tell whether ``text`` names a file or an import path rather than a registered name."""
    return bool(_FILE.fullmatch(text) or _IMPORT.fullmatch(text))


def load(reference: str, kind: str) -> Plugin:
    """Load ``package.module:Name`` or ``file.py:Name``; ``kind`` is for errors, such as ``method``."""
    of_file = _FILE.fullmatch(reference)
    if of_file:
        return _from_file(expanded(of_file["path"]), of_file["name"], kind)
    parts = _IMPORT.fullmatch(reference)
    if not parts:
        raise UserError(
            f"the {kind} {shown(reference)} is no reference; give package.module:Name or file.py:Name."
        )
    return _from_module(parts["module"], parts["name"], kind, reference)


def of_class(value: Any, kind: str) -> Plugin:
    """Return the plug-in that a class given in Python is, such as one written in a notebook."""
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
            f"the source of the {kind} {name} cannot be found; write the class in a file, and give "
            f"file.py:{name}."
        ) from None
    return _keep(Plugin(f"{name}@{_digest([('', text.encode())])}", value, value.__module__, None))


def loaded() -> list[Plugin]:
    """Return every plug-in that this process has loaded."""
    return list(_loaded.values())


def find(identity: str) -> Plugin | None:
    """Return the plug-in of that identity, if it is loaded or staged for this process."""
    if identity not in _loaded:
        _load_staged(identity)
    return _loaded.get(identity)


def stage(folder: Path, needed: Collection[str] = ()) -> Path | None:
    """Copy the sources of loaded plug-ins into one folder for workers.

    A worker that has the folder's parent on ``sys.path`` and its name in ``$HAGMETA_PLUGINS`` finds every
    identity in it.

    Args:
        folder: where to put it; it is named by its content.
        needed: identities that must be in it. Others are left out where their source cannot be copied.

    Returns:
        The folder, or None where there is no plug-in.
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
    """Why workers cannot be given a plug-in; empty where they can."""
    if "<locals>" in getattr(plugin.value, "__qualname__", ""):
        return f"{plugin.name} is written inside a function, where workers cannot find it; move it out."
    if plugin.source is None:
        return (
            f"{plugin.name} was written in a notebook or a terminal, which workers cannot read; write it in "
            f"a file, and give file.py:{plugin.name}."
        )
    if plugin.content or plugin.module.partition(".")[0] in EVERYWHERE:
        return ""
    if not plugin.source.is_dir() or _identity(plugin.name, plugin.source) != plugin.identity:
        return f"the package {plugin.source} has changed since {plugin.name} was loaded; start again."
    size = sum(path.stat().st_size for path in plugin.source.rglob("*") if path.is_file())
    if size > MOST_BYTES:
        return (
            f"the package {plugin.source.name} has {size:,} bytes, too many to send to workers (at most "
            f"{MOST_BYTES:,}); keep the plug-in in a package of its own."
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
    """Load a plug-in that ``$HAGMETA_PLUGINS`` has for this process, if it has it."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    places = [Path(entry) / name for entry in sys.path] + [Path(entry) for entry in sys.path]
    folder = next((place for place in places if place.name == name and (place / CONTENTS).is_file()), None)
    if folder is None:
        raise UserError(f"the plug-ins {name} of this launch are not on this machine's path.")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    modules = {each["identity"]: each["module"] for each in json.loads((folder / CONTENTS).read_text())}
    if identity in modules:
        found = _from_module(modules[identity], without_hash(identity), "plug-in", identity)
        if found.identity != identity:
            raise UserError(
                f"the plug-in {identity} is {found.identity} on this machine: its source differs."
            )


def _from_file(path: Path, name: str, kind: str) -> Plugin:
    path = path.absolute()
    if not path.is_file():
        raise UserError(f"{path}:{name}: there is no such file; a {kind} is given as file.py:Name.")
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
        sys.modules[module_name] = module  # dataclasses and pickle look it up
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
                    f"{reference}: there is no module {error.name!r}; give an installed package.module:Name, "
                    f"or a file as file.py:{name}."
                ) from None
            raise
    return _of_module(module, name, _member(module, name, reference))


def _of_module(module: ModuleType, name: str, value: Any) -> Plugin:
    source = _source_of(module)
    content = source.read_bytes() if source.is_file() else b""
    return _keep(Plugin(_identity(name, source), value, module.__name__, source, content))


@contextmanager
def _here_importable() -> Iterator[None]:
    """Let modules of the current folder be found, after everything else."""
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
    except Exception as error:  # a plug-in's code may raise anything
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
    """The folder of a module's top-level package, or its file where it is alone."""
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
        # Line endings are the machine's, not the author's.
        digest.update(f"{name}\0".encode() + content.replace(b"\r\n", b"\n") + b"\0")
    return digest.hexdigest()[:DIGITS]
