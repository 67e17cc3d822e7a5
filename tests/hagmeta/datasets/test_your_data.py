"""docs/your_data.md: what it shows is what is shown."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from hagmeta.__main__ import main
from hagmeta.datasets import npz

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


def test_the_array_example_is_a_dataset(folder: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    dataset = npz.load(folder / "graph.npz", "graph")
    assert dataset.class_names == ("sun", "moon") and dataset.features.shape == (4, 8)
