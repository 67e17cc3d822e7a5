"""Fetch files whole or not at all, and say within seconds when they cannot be had."""

from __future__ import annotations

import hashlib
import http.client
import os
import queue
import shutil
import sys
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import cast

from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole
from hagmeta.datasets.clean import one_line

PATIENCE = 8.0  # seconds for a server to answer, and for each silence while it sends


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch; ``blob`` is its git blob id and ``sha256`` its SHA-256, where one is known."""

    name: str
    url: str
    blob: str | None = None
    sha256: str | None = None


def fetch_all(files: Sequence[RemoteFile], folder: Path) -> None:
    """Bring ``files`` into ``folder``, except those that are there and sound."""
    wanting = [file for file in files if not is_sound(file, folder / file.name)]
    for done, file in enumerate(wanting):
        print(f"Downloading {file.url}", file=sys.stderr)
        try:
            _fetch(file, folder)
        except (OSError, http.client.HTTPException) as error:
            there = " (the one there is not the right one)" if (folder / file.name).exists() else ""
            by_hand = ", ".join(f"{left.name} from {left.url}" for left in wanting[done:])
            raise UserError(
                f"cannot fetch {file.name}{there} from {file.url}: {one_line(error)}. "
                f"Run again when there is a network, or put by hand into {folder}: {by_hand}."
            ) from error


def is_sound(file: RemoteFile, path: Path) -> bool:
    """Whether ``path`` is this file, with the right content where that is known."""
    return path.is_file() and fault(file, path) is None


def fault(file: RemoteFile, path: Path) -> str | None:
    """What is wrong with the content of ``path``, as far as the right one is known."""
    for what, expected, of in (("git blob id", file.blob, git_blob_id), ("SHA-256", file.sha256, sha256)):
        if expected is not None and (found := of(path)) != expected:
            return f"its {what} is {found}; expected {expected}"
    return None


def sha256(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git_blob_id(path: Path) -> str:
    """The SHA-1 by which git knows this content."""
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
            # Asked for a login or told of a quota, some servers send a page and call it success.
            if response.headers.get_content_type() == "text/html":
                raise OSError("the server sent a web page in place of the file")
            shutil.copyfileobj(response, out, 1 << 20)
            announced = response.headers.get("Content-Length")
        received = partial.stat().st_size
        if announced is not None and received != int(announced):
            raise OSError(f"the connection ended after {received} of {announced} bytes")
        if wrong := fault(file, partial):
            raise OSError(wrong)


def _open(url: str) -> HTTPResponse:
    """Open ``url`` within PATIENCE; urlopen's timeout starts anew for each address and skips name lookup."""
    outcome: queue.SimpleQueue[HTTPResponse | Exception] = queue.SimpleQueue()

    def attempt() -> None:
        try:
            outcome.put(cast(HTTPResponse, urllib.request.urlopen(url, timeout=PATIENCE)))
        except (OSError, http.client.HTTPException) as error:
            outcome.put(error)

    threading.Thread(target=attempt, daemon=True).start()
    try:
        result = outcome.get(timeout=PATIENCE)
    except queue.Empty:
        raise TimeoutError(f"no answer within {PATIENCE:.0f} seconds") from None
    if isinstance(result, Exception):
        raise result
    return result
