"""Download files atomically, and report within seconds if a server does not answer."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import shutil
import sys
import urllib.request
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import cast

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.common.patience import within
from hagmeta.datasets.clean import one_line

PATIENCE = 8.0  # seconds to wait for a server to answer, and for each pause while it sends


@dataclass(frozen=True)
class RemoteFile:
    """A file to download. ``blob`` is its git blob id and ``sha256`` its SHA-256, if known.

    A file is unpacked if only its address ends in .gz.
    """

    name: str
    url: str
    blob: str | None = None
    sha256: str | None = None

    @property
    def packed(self) -> bool:
        """Return whether the server has the file in packed form."""
        return self.url.endswith(".gz") and not self.name.endswith(".gz")

    def __str__(self) -> str:
        return f"{self.name} from {self.url}{' (unpacked)' if self.packed else ''}"


def fetch_all(files: Sequence[RemoteFile], folder: Path) -> None:
    """Download ``files`` into ``folder``, except those that are already there with the right content."""
    wanting = [file for file in files if not is_sound(file, folder / file.name)]
    for done, file in enumerate(wanting):
        print(f"Downloading {file.url}", file=sys.stderr)
        try:
            _fetch(file, folder)
        except (OSError, http.client.HTTPException) as error:
            there = " (the local file has the wrong content)" if (folder / file.name).exists() else ""
            by_hand = ", ".join(map(str, wanting[done:]))
            raise UserError(
                f"cannot fetch {file.name}{there} from {file.url}: {one_line(error)}. "
                f"Run again when the network is available, or put these files into {folder}: {by_hand}."
            ) from error


def is_sound(file: RemoteFile, path: Path) -> bool:
    """Return whether ``path`` exists and has the expected content, as far as that is known."""
    return path.is_file() and fault(file, path) is None


def fault(file: RemoteFile, path: Path) -> str | None:
    """Return what is wrong with the content of ``path``, or None."""
    for what, expected, of in (("git blob id", file.blob, git_blob_id), ("SHA-256", file.sha256, sha256)):
        if expected is not None and (found := of(path)) != expected:
            return f"its {what} is {found}; expected {expected}"
    return None


def sha256(path: Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git_blob_id(path: Path) -> str:
    """Return the id that git gives to the content of a file (SHA-1)."""
    with path.open("rb") as content:
        header = b"blob %d\0" % os.fstat(content.fileno()).st_size
        digest = hashlib.sha1(header, usedforsecurity=False)
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _fetch(file: RemoteFile, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / file.name) as partial:
        with _open(file.url) as response, partial.open("wb") as out:
            # For a login or an exceeded quota, some servers send a page with a success status.
            if response.headers.get_content_type() == "text/html":
                raise OSError("the server sent a web page instead of the file")
            shutil.copyfileobj(response, out, 1 << 20)
            announced = response.headers.get("Content-Length")
        received = partial.stat().st_size
        if announced is not None and received != int(announced):
            raise OSError(f"the connection ended after {received} of {announced} bytes")
        if file.packed:
            _unpack(partial)
        if wrong := fault(file, partial):
            raise OSError(wrong)


def _unpack(path: Path) -> None:
    try:
        content = gzip.decompress(path.read_bytes())
    except (EOFError, zlib.error) as error:
        raise OSError(f"the file is damaged: {error}") from error
    path.write_bytes(content)


def _open(url: str) -> HTTPResponse:
    """Open ``url`` within PATIENCE.

    The timeout of urlopen is not enough: it restarts for each address and does not cover name lookup.
    """
    return within(PATIENCE, lambda: cast(HTTPResponse, urllib.request.urlopen(url, timeout=PATIENCE)))
