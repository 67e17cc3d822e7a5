"""docs/your_data.md: what it shows is what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from hagmeta.__main__ import main
from hagmeta.datasets import UNLABELLED, npz

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "your_data.md").read_text()
ACCURACIES = "Macro accuracy"  # what follows is a matter of the last bit on other machines


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in (DOCS / "example").iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def shown(text: str) -> list[str]:
    return [line.rstrip() for line in text.partition(ACCURACIES)[0].splitlines()]


def test_every_command_with_an_output_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = [
        block.removeprefix("$ cd docs/example\n").partition("\n") for block in blocks if "$PWD" not in block
    ]
    assert len(commands) == 4
    for command, _, output in commands:
        words = shlex.split(command)
        assert words[:4] == ["$", "python", "-m", "hagmeta"]
        status = main(words[4:])
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
