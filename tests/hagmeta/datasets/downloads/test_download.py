from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets import load
from hagmeta.datasets.downloads import download, sources
from hagmeta.datasets.downloads.download import RemoteFile, fetch_all, git_blob_id
from tests.waiting import HANG

if TYPE_CHECKING:
    from conftest import Server

HELLO = b"hello\n"
HELLO_BLOB = "ce013625030ba8dba906f756967f9e9ca394464a"  # echo hello | git hash-object --stdin


def remote(server: Server, name: str = "hello", blob: str | None = HELLO_BLOB) -> RemoteFile:
    return RemoteFile(name, f"{server.url}/{name}", blob)


def failure(file: RemoteFile, folder: Path) -> str:
    with pytest.raises(UserError) as error:
        fetch_all([file], folder)
    message = str(error.value)
    assert message.startswith(f"cannot fetch {file.name}")
    # The user learns where the file comes from and where to put it.
    assert file.url in message and f"put these files into {folder}: {file.name}" in message
    assert "\n" not in message
    return message


def test_git_blob_id_is_gits(tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(HELLO)
    assert git_blob_id(tmp_path / "hello") == HELLO_BLOB


def test_sound_file_is_fetched_once(server: Server, tmp_path: Path) -> None:
    server.files["hello"] = HELLO
    for _ in range(2):
        fetch_all([remote(server)], tmp_path / "raw")
    assert (tmp_path / "raw/hello").read_bytes() == HELLO
    assert server.requests == ["hello"]
    assert [path.name for path in (tmp_path / "raw").iterdir()] == ["hello"]  # nothing temporary is left


def test_wrong_content_is_refused(server: Server, tmp_path: Path) -> None:
    server.files["hello"] = b"hallo\n"
    assert f"expected {HELLO_BLOB}" in failure(remote(server), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blob", [HELLO_BLOB, None])
def test_cut_connection_leaves_nothing_and_the_next_try_succeeds(
    server: Server, tmp_path: Path, blob: str | None
) -> None:
    server.files["hello"] = HELLO
    server.cut.add("hello")
    assert "ended after 3 of 6 bytes" in failure(remote(server, blob=blob), tmp_path)
    assert list(tmp_path.iterdir()) == []
    fetch_all([remote(server, blob=blob)], tmp_path)
    assert (tmp_path / "hello").read_bytes() == HELLO


def test_finished_files_are_kept_when_a_later_one_fails(server: Server, tmp_path: Path) -> None:
    server.files["hello"] = HELLO
    with pytest.raises(UserError, match="cannot fetch second") as error:
        fetch_all([remote(server), remote(server, "second")], tmp_path)
    assert "put these files into" in str(error.value) and "hello from" not in str(error.value)
    assert (tmp_path / "hello").read_bytes() == HELLO


def test_half_file_put_there_by_others_is_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "hello").write_bytes(HELLO[:3])
    assert "the local file has the wrong content" in failure(remote(server), tmp_path)
    server.files["hello"] = HELLO
    fetch_all([remote(server)], tmp_path)
    assert (tmp_path / "hello").read_bytes() == HELLO


def test_web_page_in_place_of_the_file_is_refused(server: Server, tmp_path: Path) -> None:
    # Where no hash is known, this is what a quota or a login looks like.
    server.files["hello"] = b"<html>too many downloads</html>"
    server.html.add("hello")
    assert "web page" in failure(remote(server, blob=None), tmp_path)


def test_missing_file_on_the_server_is_said(server: Server, tmp_path: Path) -> None:
    assert "404" in failure(remote(server), tmp_path)


def test_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        message = failure(RemoteFile("hello", f"http://127.0.0.1:{port}/hello"), tmp_path)
    assert "timed out" in message or "no answer within" in message


def test_name_lookup_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No socket timeout covers it.
    monkeypatch.setattr(download, "PATIENCE", 0.3)

    given_up = threading.Event()

    def hang(*_: object, **__: object) -> None:
        given_up.wait(HANG)
        raise OSError("the lookup has ended")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        message = failure(RemoteFile("hello", "http://example.invalid/hello"), tmp_path)
    finally:
        given_up.set()
    assert "no answer within" in message


@pytest.mark.parametrize("name", sorted(sources.FILES))
def test_without_network_it_is_said_within_ten_seconds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert download.PATIENCE < 9
    lookups = []

    def unreachable(*where: object, **__: object) -> None:
        lookups.append(where)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    with pytest.raises(UserError) as error:
        load(name, tmp_path)
    assert len(lookups) == 1  # each may take that long: after one that fails no other is tried
    for file in sources.FILES[name]:
        assert f"{file.name} from {file.url}" in str(error.value)
    # Nothing is left for the next run to trust.
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
