"""Decide what a command may replace: not its input, and nothing that another program or person made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import check_writable

ADVICE = "choose another name, or add --force to replace it"


@dataclass(frozen=True)
class Kind:
    """A kind of file that a command writes, and may therefore replace."""

    name: str  # with its article, for messages
    recognises: Callable[[Path], bool]  # it may raise any error for other files


def check_output(option: str, path: Path, kind: Kind, *, inputs: Iterable[Any] = (), force: bool) -> None:
    """Raise an error if a command cannot write `path`, or must not replace it. Call it before the slow part.

    Args:
        option: The option that names the file.
        path: The file to write.
        kind: What the command writes there. It may replace a file of this kind, or an empty one.
        inputs: What the command reads: paths, or other values, which are ignored.
        force: Whether the user allows to replace any file.
    """
    check_writable(option, path)
    if force or not path.exists() or not path.stat().st_size:
        return
    if any(_is_same(path, each) for each in inputs):
        raise UserError(f"{option} {path} is also an input; {ADVICE}.")
    if not _is_of(kind, path):
        raise UserError(f"{option} {path} exists and is not {kind.name}; {ADVICE}.")


def check_output_folder(what: str, folder: Path, mark: str, written: Iterable[str], *, force: bool) -> None:
    """Raise an error if a command would replace or delete files in `folder` that it has not written.

    Args:
        what: What the command writes.
        folder: The folder. It may be missing.
        mark: The file by which to recognise a folder that the command has written.
        written: Patterns of the files that the command replaces or deletes.
        force: Whether the user allows to replace any file.
    """
    if force or (folder / mark).is_file():
        return
    found = sorted(path for pattern in written for path in folder.glob(pattern))
    if found:
        raise UserError(
            f"cannot write {what} to {folder}: it has {found[0].relative_to(folder)}, but no {mark}, so no "
            "report wrote it. Choose another --out, or add --force to replace such files."
        )


def _is_same(path: Path, other: Any) -> bool:
    with suppress(OSError, TypeError, ValueError):
        return os.path.samefile(path, other)
    return False


def _is_of(kind: Kind, path: Path) -> bool:
    try:
        return kind.recognises(path)
    except Exception:  # zipfile and json raise many kinds of errors for other files
        return False
