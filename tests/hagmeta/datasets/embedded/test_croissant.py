"""The Croissant files of embedded graphs."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path

import pytest

from hagmeta.datasets import EMBEDDED, load
from tools.datasets.croissant import DATA, SUFFIX, croissant


@pytest.fixture(params=sorted(EMBEDDED))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_file_is_what_the_tool_writes(name: str) -> None:
    written = json.loads((DATA / f"{name}{SUFFIX}").read_text())
    assert written == croissant(name), "run python -m tools.datasets.croissant"


def test_the_package_names_the_licences_of_all_graphs() -> None:
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    own = {each for module in EMBEDDED.values() for each in module.CARD.licence.split(" AND ")}
    assert {each for each in own if " " not in each} | {"MIT"} == {*project["license"].split(" AND ")}


def test_mlcroissant_accepts_the_file_and_reads_the_classes(name: str) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed: .[croissant]")
    dataset, graph = mlcroissant.Dataset(jsonld=str(DATA / f"{name}{SUFFIX}")), load(name, Path("unused"))
    issues = dataset.metadata.ctx.issues
    assert not issues.errors and not issues.warnings
    for file in dataset.metadata.distribution:
        assert file.sha256 == hashlib.sha256((DATA / file.content_url).read_bytes()).hexdigest()
    classes = list(dataset.records("classes"))
    assert [each["classes/nodes"] for each in classes] == graph.class_sizes.tolist()
    assert tuple(each["classes/name"] for each in classes) == graph.class_names
    assert dataset.metadata.data_biases and dataset.metadata.data_limitations and dataset.metadata.license


def test_mlcroissant_refuses_a_file_without_a_checksum(tmp_path: Path) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed: .[croissant]")
    broken = croissant("kanji")
    del broken["distribution"][0]["sha256"]
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    with pytest.raises(mlcroissant.ValidationError, match="sha256"):
        mlcroissant.Dataset(jsonld=str(tmp_path / "broken.json"))
