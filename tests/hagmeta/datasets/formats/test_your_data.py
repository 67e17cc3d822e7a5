"""Each command in docs/guides/your_graph.md prints the output that the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from hagmeta.__main__ import main
from hagmeta.datasets import UNLABELLED
from hagmeta.datasets.formats import npz

DOCS = Path(__file__).resolve().parents[4] / "docs"
PAGE = (DOCS / "guides" / "your_graph.md").read_text()
ACCURACIES = "Macro accuracy"  # the numbers below it may differ in the last digit between machines


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in (DOCS / "example").iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["hagmeta"])  # messages name the command as it was called
    return tmp_path


def shown(text: str) -> list[str]:
    return [line.rstrip() for line in text.partition(ACCURACIES)[0].splitlines()]


def test_every_command_with_an_output_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [
        (command, output) for command, _, output in (block.partition("\n") for block in blocks) if output
    ]
    assert len(commands) == 3
    for command, output in commands:
        words = shlex.split(command)
        assert words[:2] == ["$", "hagmeta"]
        status = main(words[2:])
        printed = capsys.readouterr()
        assert status == (2 if output.startswith("error: ") else 0)
        assert shown(printed.out + printed.err) == shown(output)


def test_the_examples_in_python_make_datasets(folder: Path) -> None:
    in_memory, arrays = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    made: dict[str, Any] = {}
    exec(in_memory, made)
    assert made["karate"].class_names == ("Mr. Hi", "Officer") and made["karate"].features.shape == (34, 2)
    assert made["karate"].identity == f"karate@{made['karate'].fingerprint[:12]}"
    assert made["pairs"].labels.tolist() == [1, 0, 1, UNLABELLED]
    exec(arrays, {})
    dataset = npz.load(folder / "graph.npz", "graph")
    assert dataset.class_names == ("sun", "moon") and dataset.features.shape == (4, 8)
