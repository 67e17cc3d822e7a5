"""Read files out of a Debian package: an ``ar`` archive with a compressed tar archive in it."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.download import RemoteFile, fault

_MAGIC = b"!<arch>\n"
_HEADER = 60  # bytes before each file: its name in the first 16, its size in decimal in those from 48 to 58


def read(path: Path, package: RemoteFile, names: Sequence[str]) -> list[str]:
    """The texts of ``names`` in the package at ``path``, which must be this one and no other version.

    A dictionary's (``.dz``) is unpacked.
    """
    try:
        if wrong := fault(package, path):
            raise UserError(f"{path}: this is not {package.name} of {package.url}: {wrong}.")
        with tarfile.open(fileobj=io.BytesIO(_data(path.read_bytes()))) as data:
            return [_text(data, name) for name in names]
    except UserError:
        raise
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}).") from error


def _data(archive: bytes) -> bytes:
    """The member ``data.tar.*``, which holds what the package installs."""
    if not archive.startswith(_MAGIC):
        raise ValueError("it is no Debian package")
    start = len(_MAGIC)
    while start < len(archive):
        header = archive[start : start + _HEADER]
        size = int(header[48:58])
        start += _HEADER
        if header.startswith(b"data.tar"):
            return archive[start : start + size]
        start += size + size % 2  # files begin at even places
    raise ValueError("it has no data.tar")


def _text(data: tarfile.TarFile, name: str) -> str:
    file = data.extractfile(f"./{name}")
    if file is None:
        raise ValueError(f"{name} is no file")
    content = file.read()
    return (gzip.decompress(content) if name.endswith(".dz") else content).decode()
