"""The method of docs/add_a_method.md, as it stands there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS
from hagmeta.pipeline import run

PROJECT = Path(__file__).resolve().parents[3]
PAGE = PROJECT / "docs" / "add_a_method.md"
CPU = torch.device("cpu")
Small = Callable[..., RunConfig]
RUN = "--dataset synthetic:nodes=400,edges=1500,features=40,classes=8,seed=1 --classes 3 2 3 --n-way 1"
RUN += " --k-shot 2 --method cosine-mean --episodes 2 --seeds 0-0 --device cpu --set pretrain_epochs=2"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's code, run; what it registers is gone afterwards."""
    code = blocks("python")[0]
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    monkeypatch.setitem(METHODS, "cosine-mean", names["CosineMean"])
    return code


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    """A copy of the package to which the page's file and the two lines of its registration are added."""
    package = tmp_path / "hagmeta"
    shutil.copytree(PROJECT / "hagmeta", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "methods" / "cosine_mean.py").write_text(blocks("python")[0])
    registry = package / "methods" / "__init__.py"
    (change,) = blocks("diff")
    for before, added in re.findall(r"^ (.*)\n\+(.*)$", change, flags=re.MULTILINE):
        text = registry.read_text()
        assert text.count(f"{before}\n") == 1, "the page shows lines that are there"
        registry.write_text(text.replace(f"{before}\n", f"{before}\n{added}\n"))
    return package


def run_in_a_fresh_process(package: Path, *arguments: str) -> Any:
    records = package.parent / "records.json"
    environment = os.environ | {"PYTHONPATH": str(package.parent), "HAGMETA_HOME": str(package.parent)}
    command = [sys.executable, "-m", "hagmeta", *RUN.split(), "--json", str(records), *arguments]
    done = subprocess.run(
        command, cwd=package.parent, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(records.read_text())
    return record


def test_the_page_followed_to_the_letter_runs(followed: Path) -> None:
    record = run_in_a_fresh_process(followed)
    assert record["config"]["method"] == "cosine-mean" and record["traits"]["title"] == "CosineMean"


def test_the_settings_of_the_page_are_given_and_recorded(followed: Path) -> None:
    file = followed / "methods" / "cosine_mean.py"
    code = file.read_text()
    file.write_text(blocks("python")[1] + "\n" + code[code.index("    def encode") :])
    record = run_in_a_fresh_process(followed, "--set", "cosine_start=5")
    assert record["config"]["cosine_start"] == 5 and "cosine_start" in record["given"]
    assert record["traits"]["title"] == "Cosine mean" and record["traits"]["cost"] == "medium"


def test_it_is_short(written: str) -> None:
    assert len(written.splitlines()) < 60


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_it_runs_in_any_pack(dataset: NodeDataset, small: Small, written: str, protocol: str) -> None:
    config = small(method="cosine-mean", protocol=protocol, pretrain_epochs=60, episodes=20)

    def accuracy(seeds: list[int]) -> Any:
        records = run(config, seeds, dataset=dataset, device=CPU)
        return next(record["accuracy"] for record in records if record["seed"] == 3)

    alone = accuracy([3])
    assert alone == accuracy([0, 3])
    assert alone[0] > 3 / 9 and alone[-1] > 2 / 13


def test_searches_can_score_it(dataset: NodeDataset, small: Small, written: str) -> None:
    (record,) = run(small(method="cosine-mean", val_classes=2), [0], dataset=dataset, device=CPU)
    assert record["validation"]["stream"] > 0
