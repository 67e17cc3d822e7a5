"""The method of docs/guides/your_method.md works as printed, in files outside this repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import hagmeta
from hagmeta.config.run_config import RunConfig
from study.space import spaces as space
from tests.waiting import HANG

PROJECT = Path(__file__).resolve().parents[3]
PAGE = (PROJECT / "docs" / "guides" / "your_method.md").read_text()
GRAPH = "synthetic:nodes=400,edges=1500,features=40,classes=8,seed=1"
SMALL = f"--dataset {GRAPH} --classes 3 2 3 --n-way 1 --k-shot 2 --episodes 2 --seeds 0-0 --device cpu"
TASK: dict[str, Any] = {"classes": (3, 2, 3), "n_way": 1, "k_shot": 2}
TEN_LINES, IN_PYTHON, WHOLE, WITH_SETTINGS, TEST = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a user's folder with the files of the page."""
    (tmp_path / "nearest_mean.py").write_text(TEN_LINES)
    steps = WHOLE[WHOLE.index("    def encode") :]
    (tmp_path / "cosine_mean.py").write_text(f"{WITH_SETTINGS}\n{steps}")
    (tmp_path / "test_cosine_mean.py").write_text(TEST)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "HAGMETA_HOME": str(folder / "home")}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_ten_lines_are_a_method(folder: Path) -> None:
    assert len([line for line in TEN_LINES.splitlines() if line]) <= 10
    record = hagmeta.run(
        "nearest_mean.py:NearestMean", GRAPH, seeds=1, features="propagated", **TASK
    ).records[0]
    assert record["config"]["method"].startswith("NearestMean@")
    assert record["traits"]["title"] == "NearestMean"
    assert "hagmeta.run" in IN_PYTHON


def test_the_settings_and_the_title_of_the_page_are_recorded(folder: Path) -> None:
    own: dict[str, Any] = {"cosine_start": 5, "episodes": 2, "pretrain_epochs": 2, "finetune_steps": 1}
    result = hagmeta.run("cosine_mean.py:CosineMean", GRAPH, seeds=1, **own, **TASK)
    (record,) = result.records
    assert record["config"]["cosine_start"] == 5 and "cosine_start" in record["given"]
    assert record["traits"]["title"] == "Cosine mean" and record["traits"]["cost"] == "medium"


@pytest.mark.slow
def test_the_command_of_the_page_knows_its_settings(folder: Path) -> None:
    mine = ["--method", "cosine_mean.py:CosineMean"]
    run(folder, "hagmeta", *SMALL.split(), *mine, "--set", "cosine_start=5", "--json", "records.json")
    assert json.loads((folder / "records.json").read_text())[0]["config"]["cosine_start"] == 5
    shown = run(folder, "hagmeta", *mine, "--help").stdout
    assert re.search(
        r"settings of CosineMean:\n  cosine_start +scale of the logits before\s+training \[10\.0\]", shown
    )


def test_the_whole_method_passes_the_checks_of_the_page(folder: Path) -> None:
    page: dict[str, Any] = {}
    exec(TEST, page)
    (test,) = (value for name, value in page.items() if name.startswith("test_"))
    (cases,) = (mark.args[1] for mark in test.pytestmark)
    assert len(cases) == 4
    for case in cases:
        test(*case.values)


def test_the_search_space_of_the_page_searches_its_setting(folder: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    (folder / "mine.yaml").write_text(text)
    found = space.read("mine.yaml")
    (config,) = found.configs
    assert [item.key for item in found.dimensions(config)] == list(yaml.safe_load(text)["sample"])
    assert config == RunConfig.of(method="cosine_mean.py:CosineMean", scored_on="validation")
