"""Results in a bucket. `file://` goes through the same code of Arrow's as `s3://` does."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from hagmeta.common.errors import UserError
from study.store import remote
from study.store.remote import Mirror
from study.store.store import Store

KEY = ("abc", 3)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    (tmp_path / "bucket").mkdir()
    return Mirror((tmp_path / "bucket").as_uri(), "tiny")


def there(tmp_path: Path) -> set[str]:
    study = tmp_path / "bucket" / "tiny"
    return {path.relative_to(study).as_posix() for path in study.rglob("*") if path.is_file()}


def test_what_is_written_here_is_there_at_once(mirror: Mirror, tmp_path: Path) -> None:
    store = Store(mirror.folder, mirror.send)
    store.write_failure(KEY, {}, "no")
    store.write_embeddings(KEY, 2, b"numbers")
    store.write_predictions(KEY, b"classes")
    assert there(tmp_path) == {"failed/abc/3.json", "embeddings/abc/3-2.npz", "predictions/abc/3.npz"}


def test_another_machine_finds_what_is_there(mirror: Mirror, tmp_path: Path) -> None:
    store = Store(mirror.folder, mirror.send)
    store.write_embeddings(KEY, 2, b"numbers")
    store.write_predictions(KEY, b"classes")
    shutil.rmtree(mirror.folder)
    mirror.fetch()
    assert store.embeddings_of(KEY, 2).read_bytes() == b"numbers"
    assert store.predictions_of(KEY).read_bytes() == b"classes"


def test_what_could_not_be_sent_is_sent_at_the_end(mirror: Mirror, tmp_path: Path) -> None:
    Store(mirror.folder).write_embeddings(KEY, 2, b"numbers")  # as if the network had failed
    (mirror.folder / "tune").mkdir()
    (mirror.folder / "tune" / "log").write_text("Ray's own")
    (mirror.folder / "report").mkdir()
    (mirror.folder / "report" / "index.html").write_text("one")
    mirror.send_all()
    (mirror.folder / "report" / "index.html").write_text("two")
    mirror.send_all()
    assert there(tmp_path) == {"embeddings/abc/3-2.npz", "report/index.html"}
    assert (tmp_path / "bucket" / "tiny" / "report" / "index.html").read_text() == "two"


def test_a_bucket_that_cannot_be_written_is_named_and_nothing_is_lost(mirror: Mirror, tmp_path: Path) -> None:
    Store(mirror.folder).write_embeddings(KEY, 2, b"numbers")
    (tmp_path / "bucket" / "tiny").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="All results are in"):
        mirror.send_all()
    assert Store(mirror.folder).embeddings_of(KEY, 2).exists()


@pytest.mark.parametrize("uri", ["s4://bucket/results", "://x"])
def test_an_address_that_is_none_is_named(uri: str) -> None:
    with pytest.raises(UserError, match="--results"):
        Mirror(uri, "tiny").fetch()


@pytest.mark.parametrize("uri", ["s3://", "gs://"])
def test_an_address_without_a_bucket_is_refused(uri: str) -> None:
    with pytest.raises(
        UserError, match=f"--results {uri} names no bucket; expected a path such as {uri}BUCKET"
    ):
        Mirror(uri, "tiny")


def test_a_bucket_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 0.5)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = f"s3://bucket/y?scheme=http&region=x&endpoint_override=127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match=r"cannot reach --results .*: no answer within"):
            Mirror(there, "tiny").fetch()


def test_looking_at_a_bucket_makes_nothing_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    mirror = Mirror((tmp_path / "bucket").as_uri(), "study")
    mirror.fetch(make=False)
    assert not (tmp_path / "bucket").exists()
    mirror.fetch()
    assert (tmp_path / "bucket" / "study").is_dir()
