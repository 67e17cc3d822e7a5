"""Read files from a Debian package, which is an ``ar`` archive with a compressed tar archive inside."""

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
_HEADER = 60  # bytes before each file: the name in bytes 0-15, the decimal size in bytes 48-57


def read(path: Path, package: RemoteFile, names: Sequence[str]) -> list[str]:
    """Return the texts of files in a package. Compressed dictionaries (``.dz``) are unpacked.

    Args:
        path: The package file.
        package: The expected package, in this version.
        names: The files to read.
    """
    try:
        if wrong := fault(package, path):
            raise UserError(f"{path}: expected {package.name} from {package.url}, but {wrong}.")
        with tarfile.open(fileobj=io.BytesIO(_data(path.read_bytes()))) as data:
            return [_text(data, name) for name in names]
    except UserError:
        raise
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}).") from error


def _data(archive: bytes) -> bytes:
    """Return the member ``data.tar.*``, which has the installed files."""
    if not archive.startswith(_MAGIC):
        raise ValueError("not a Debian package")
    start = len(_MAGIC)
    while start < len(archive):
        header = archive[start : start + _HEADER]
        size = int(header[48:58])
        start += _HEADER
        if header.startswith(b"data.tar"):
            return archive[start : start + size]
        start += size + size % 2  # files begin at even offsets
    raise ValueError("it has no data.tar")


def _text(data: tarfile.TarFile, name: str) -> str:
    file = data.extractfile(f"./{name}")
    if file is None:
        raise ValueError(f"{name} is not a file")
    content = file.read()
    return (gzip.decompress(content) if name.endswith(".dz") else content).decode()
