"""The builders of embedded graphs, on sources and packages of our own."""

from __future__ import annotations

import gzip
import io
import runpy
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets.downloads import sources, wordnet_files
from hagmeta.datasets.downloads.download import RemoteFile, sha256
from hagmeta.datasets.formats import package
from hagmeta.datasets.formats.word_features import in_no_order
from tools.datasets import (
    build_metamath,
)

ROOT = Path(__file__).resolve().parents[4]


NOUNS = """\
  1 This is the licence.
00000001 05 n 02 dog 0 a 1 003 @ 00000002 n 0000 + 00000001 v 0101 @ 09999999 n 0000 | an animal that; "which"
00000002 05 n 01 animal 0 002 ~ 00000001 n 0000 ~ 00000003 n 0000 | an animal
00000003 05 n 01 cat 0 001 @ 00000002 n 0000 | an animal that runs; "open
00000004 03 n 01 entity 0 000 | that which is
"""
VERBS = """\
00000001 38 v 01 run 0 002 + 00000001 n 0101 $ 00000001 v 0000 02 + 02 00 + 08 00 | that which runs
"""
NODES = ("n1", "n2", "n3", "n4", "v1", "a1", "a2")
ADJECTIVES = """\
00000001 00 s 01 quick 0 001 & 00000002 a 0000 | an animal
00000002 00 a 01 fast 0 001 & 00000001 a 0000 | that which runs
"""


def test_wordnet_is_built_by_its_rules() -> None:
    built = wordnet_files.build([NOUNS, VERBS, ADJECTIVES])
    order = [
        name.replace("0", "") for name in in_no_order(f"{kind}0000000{number}" for kind, number in NODES)
    ]
    assert built.class_names == ("adj.all", "noun.Tops", "noun.animal", "verb.motion")
    files = {"n4": "noun.Tops", "n": "noun.animal", "v": "verb.motion", "a": "adj.all"}
    assert [built.class_names[label] for label in built.labels] == [
        files.get(name) or files[name[0]] for name in order
    ]
    # A satellite adjective is found by pointers to adjectives; a loop and what is not there are no edges.
    edges = {tuple(sorted((order[a], order[b]))) for a, b in built.edges}
    assert edges == {("n1", "n2"), ("n1", "v1"), ("n2", "n3"), ("a1", "a2")}
    # The columns are an, animal, runs, that, which; examples do not count, with their quotes open or closed.
    rows = dict(zip(order, built.features.toarray().tolist(), strict=True))
    assert built.num_features == 5
    assert rows["n1"] == [1, 1, 0, 1, 0] and rows["n3"] == [1, 1, 1, 1, 0] and rows["v1"] == [0, 0, 1, 1, 1]


def test_wordnet_keeps_the_best_connected() -> None:
    built = wordnet_files.build([NOUNS, VERBS, ADJECTIVES], most=2)
    assert np.bincount(built.labels).tolist() == [2, 1, 2, 1]
    assert len(built.edges) == 3  # the cat, with one neighbour, is out


def test_order_is_the_same_anywhere_and_none_of_the_names() -> None:
    names = ["a", "b", "c", "d", "e"]
    assert in_no_order(names) == in_no_order(reversed(names)) == ["d", "c", "b", "e", "a"]


# The packages and the commands.


@pytest.fixture
def write_package(tmp_path: Path) -> Callable[[dict[str, str | bytes]], Path]:
    def write(files: dict[str, str | bytes]) -> Path:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:xz") as tar:
            for name, text in files.items():
                content = text.encode() if isinstance(text, str) else text
                entry = tarfile.TarInfo(f"./{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        members = {"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": data.getvalue()}
        deb = tmp_path / "own.deb"
        deb.write_bytes(
            b"!<arch>\n"
            + b"".join(
                f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
                + content
                + b"\n" * (len(content) % 2)
                for name, content in members.items()
            )
        )
        return deb

    return write


def own(deb: Path) -> RemoteFile:
    return RemoteFile(deb.name, f"https://example.org/{deb.name}", sha256=sha256(deb))


def test_files_are_read_out_of_a_package(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "one", "usr/b": "zwölf"})
    assert package.read(deb, own(deb), ["usr/b", "usr/a"]) == ["zwölf", "one"]
    with pytest.raises(UserError, match=r"own.deb: cannot be read \(.*usr/c"):
        package.read(deb, own(deb), ["usr/c"])


def test_a_dictionary_is_unpacked(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a.dict.dz": gzip.compress("zwölf".encode())})
    assert package.read(deb, own(deb), ["usr/a.dict.dz"]) == ["zwölf"]


def test_another_encoding_is_read(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "海".encode("euc_jp")})
    assert package.read(deb, own(deb), ["usr/a"], "euc_jp") == ["海"]
    with pytest.raises(UserError, match=r"own.deb: cannot be read \("):
        package.read(deb, own(deb), ["usr/a"])


def test_a_folder_is_read_out_of_a_package(write_package: Callable[[dict[str, str | bytes]], Path]) -> None:
    deb = write_package({"usr/a": "one", "usr/b/c": "two", "usr/b/d/e": b"\xff", "usr/bb": "four"})
    assert package.read_folder(deb, own(deb), "usr/b") == {"c": "two", "d/e": "\ufffd"}


def test_a_package_of_npm_is_read(tmp_path: Path) -> None:
    path = tmp_path / "own.tgz"
    with tarfile.open(path, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/json/a.json")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"{}"))
    assert package.read(path, own(path), ["json/a.json"]) == ["{}"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"own.tgz: cannot be read \("):
        package.read(path, own(path), ["json/a.json"])


@pytest.mark.parametrize("content", [b"", b"!<arch>\n", b"!<arch>\nshort", b"PK"])
def test_what_is_no_package_is_said_in_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.deb").write_bytes(content)
    with pytest.raises(UserError, match=r"bad.deb: cannot be read \(") as error:
        package.read(tmp_path / "bad.deb", own(tmp_path / "bad.deb"), ["a"])
    assert "\n" not in str(error.value)


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a builder's command, which must end with status 2 and write nothing; returns what it prints."""

    def run(name: str, *arguments: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, "out.npz", *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_module(f"tools.datasets.build_{name}", run_name="__main__")
        assert end.value.code == 2 and not (tmp_path / "out.npz").exists()
        return capsys.readouterr().err

    return run


def test_another_version_is_refused(
    write_package: Callable[[dict[str, str | bytes]], Path], refused: Callable[..., str]
) -> None:
    deb = write_package({build_metamath.DATABASE: "another"})
    [line] = refused("metamath", "--deb", str(deb)).splitlines()
    assert line.startswith(f"{deb}: expected {sources.METAMATH.name} from ")
    assert line.endswith(f"its SHA-256 is {sha256(deb)}; expected {sources.METAMATH.sha256}.")


def test_a_package_that_is_absent_is_said(refused: Callable[..., str]) -> None:
    assert refused("wordnet", "--deb", "absent.deb").startswith("absent.deb: cannot be read (")
