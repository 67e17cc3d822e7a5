"""A command replaces a file only if the user can lose nothing that another program or person made."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagmeta import Learner
from hagmeta.__main__ import RECORDS, main, write_json
from hagmeta.common.errors import UserError
from hagmeta.common.files.outputs import Kind, check_output
from hagmeta.datasets.command import GRAPH
from hagmeta.datasets.formats import npz
from hagmeta.learner.command import PREDICTIONS
from hagmeta.learner.storage import LEARNER
from tests.hagmeta.learner.playing import clear_graph

NOTE = Kind("a note", lambda path: path.read_bytes().startswith(b"note"))


def check(path: Path, **options: Any) -> None:
    check_output("--out", path, NOTE, **({"force": False} | options))


def test_output_that_is_new_empty_or_of_its_kind_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "out"
    check(path)
    path.touch()
    check(path)
    path.write_text("note 1")
    check(path)
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_output_of_another_kind_is_refused_without_force(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("my thesis")
    with pytest.raises(UserError, match=r"^--out .*/out exists and is not a note; .* --force to replace it"):
        check(path)
    check(path, force=True)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_output_that_is_an_input_is_refused_without_force(
    link: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    read, path = tmp_path / "read", tmp_path / "out"
    read.write_text("note 1")
    link(read, path)
    with pytest.raises(UserError, match=r"^--out .*/out is also an input; .* --force to replace it\.$"):
        check(path, inputs=[None, "a name", read])
    check(path, inputs=[None, "a name", read], force=True)


def test_own_files_are_recognised(tmp_path: Path) -> None:
    path, graph = tmp_path / "out", clear_graph()
    npz.save(path, graph)
    assert GRAPH.recognises(path)
    Learner("sgc-ncm", features="propagated", device="cpu").fit(graph).save(path)
    assert LEARNER.recognises(path) and not GRAPH.recognises(path)
    write_json(path, [{"config": {}, "config_hash": "0"}])  # type: ignore[typeddict-item]
    assert RECORDS.recognises(path)


@pytest.mark.parametrize("kind", [GRAPH, LEARNER, PREDICTIONS, RECORDS])
def test_other_files_are_no_output_of_a_command(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "out"
    contents = [b"\0", b"[1]", b"[]", b"{}", b"PK\3\4", b"PK\5\6" + bytes(18), b"id,class\n1,a\n"]
    contents += [
        b"\xff\xfe",
        b"<!DOCTYPE html>\n<title>Mine</title>\n",
        json.dumps([{"seed": 1}]).encode(),
        b"[" * 10**5,
    ]
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(UserError, match=kind.name):
            check_output("--out", path, kind, force=False)
    with path.open("wb") as file:
        np.savez(file, header=np.zeros(3), edges=np.zeros(3))
    with pytest.raises(UserError, match=kind.name):
        check_output("--out", path, kind, force=False)


def test_every_command_refuses_to_replace_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("n.csv").write_text("id,label,x\na,sun,1\nb,moon,2\n")
    Path("e.csv").write_text("a,b\n")
    Path("mine.py").write_text("class Mine: ...\n")
    os.symlink("n.csv", "n.npz")
    npz.save(Path("g.npz"), clear_graph())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files = ["--nodes", "n.csv", "--edges", "e.csv"]
    for command in (
        ["fit", *files, "--out", "n.csv"],
        ["fit", "--dataset", "g.npz", "--out", "g.npz"],
        ["datasets", "convert", *files, "--out", "n.npz"],
        ["--dataset", "g.npz", "--json", "g.npz"],
        ["--dataset", "g.npz", "--json", "mine.py"],
    ):
        assert main(command) == 2, command
        error = capsys.readouterr().err
        assert error.startswith("error: --") and "--force" in error and error.count("\n") == 1
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
