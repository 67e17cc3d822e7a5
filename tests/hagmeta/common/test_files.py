"""What is written whole is there whole or not at all, whoever is killed, fails or writes at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import check_writable, folder_written_whole, written_whole
from tests.waiting import HANG

START = """
import sys
from pathlib import Path
from hagmeta.common.files.files import folder_written_whole, written_whole
path = Path(sys.argv[1])
"""
HALF_A_FILE = """
with written_whole(path) as partial:
    partial.write_text("ne")
    print("half", flush=True)
    sys.stdin.readline()
    partial.write_text("new")
"""
HALF_A_FOLDER = """
with folder_written_whole(path) as partial:
    (partial / "first").write_text("new")
    print("half", flush=True)
    sys.stdin.readline()
    (partial / "second").write_text("new")
"""


def start(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def half_written(program: str, path: Path) -> subprocess.Popen[str]:
    """A process that waits in the middle of its writing."""
    process = start(program, path)
    assert process.stdout and process.stdout.readline() == "half\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=HANG)
    assert process.returncode == -signal.SIGKILL


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def write_folder(path: Path, files: dict[str, str]) -> None:
    with folder_written_whole(path) as partial:
        for name, text in files.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).write_text(text)


@pytest.mark.parametrize("before", [None, "old"])
def test_a_file_whose_writer_is_killed_is_as_it_was(before: str | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if before is not None:
        path.write_text(before)
    kill(half_written(HALF_A_FILE, path))
    assert (path.read_text() if path.exists() else None) == before
    with written_whole(path) as partial:  # what was left is in nobody's way
        partial.write_text("next")
    assert path.read_text() == "next"


@pytest.mark.parametrize("before", [None, {"old": "old"}])
def test_a_folder_whose_writer_is_killed_is_as_it_was(before: dict[str, str] | None, tmp_path: Path) -> None:
    path = tmp_path / "folder"
    if before is not None:
        write_folder(path, before)
    kill(half_written(HALF_A_FOLDER, path))
    assert (contents(path) if path.exists() else None) == before
    write_folder(path, {"next": "next"})
    assert contents(tmp_path) == {"folder/next": "next"}  # what was left is gone


@pytest.mark.parametrize("writer", [written_whole, folder_written_whole])
def test_who_fails_leaves_what_was_there_and_nothing_else(
    writer: Callable[[Path], AbstractContextManager[Path]], tmp_path: Path
) -> None:
    path = tmp_path / "path"
    with writer(path) as partial:
        (partial / "inside" if partial.is_dir() else partial).write_text("old")
    before = contents(tmp_path)
    with pytest.raises(OSError, match="full"), writer(path) as partial:
        (partial / "inside" if partial.is_dir() else partial).write_text("ne")
        raise OSError("the disk is full")
    assert contents(tmp_path) == before
    assert list(tmp_path.iterdir()) == [path]


def test_who_wrote_nothing_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), written_whole(tmp_path / "file"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_of_two_writers_at_once_the_last_to_finish_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    other = half_written(HALF_A_FILE, path)
    with written_whole(path) as outer:  # and two of one process
        outer.write_text("outer")
        with written_whole(path) as inner:
            inner.write_text("inner")
        assert path.read_text() == "inner"
    assert path.read_text() == "outer"
    other.communicate("\n", timeout=HANG)
    assert other.returncode == 0
    assert contents(tmp_path) == {"file": "new"}


def test_a_new_folder_takes_the_place_of_the_old_one_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    write_folder(path, {"a": "old", "b": "old"})
    write_folder(path, {"a": "new", "below/c": "new"})
    assert contents(tmp_path) == {"folder/a": "new", "folder/below/c": "new"}


def test_a_folder_does_not_clear_away_what_another_one_is_made_of(tmp_path: Path) -> None:
    other = half_written(HALF_A_FOLDER, tmp_path / "folder.v2")
    write_folder(tmp_path / "folder", {"a": "a"})
    other.communicate("\n", timeout=HANG)
    assert contents(tmp_path) == {"folder/a": "a", "folder.v2/first": "new", "folder.v2/second": "new"}


def test_all_of_a_group_may_read_it_as_if_it_had_been_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with written_whole(tmp_path / "whole") as partial:
        partial.touch()
    modes = [os.stat(tmp_path / name).st_mode for name in ("plain", "whole")]
    assert modes[0] == modes[1]


def test_file_written_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(Path("far") / "target")  # it leads nowhere yet
    for text in ("old", "new"):
        check_writable("--out", link)
        with written_whole(link) as partial:
            partial.write_text(text)
        assert link.is_symlink() and target.read_text() == text
    assert list(target.parent.iterdir()) == [target]


def test_link_that_leads_nowhere_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("no/target")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("link", "loop"):
        with pytest.raises(UserError, match=f"^--out .*/{name} cannot be written"):
            check_writable("--out", tmp_path / name)
