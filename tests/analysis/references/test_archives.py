"""Archives keep results of published studies; the references are a view of them and belong to this code."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import hagmeta
from analysis.data.by_class import BASE, EITHER, NOVEL, answers, stored_scores
from analysis.references.archives import FOLDER, archive_of, names, read_archive
from analysis.references.references import DEFAULTS, KINDS, TUNED, load_references, read_references
from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.common.records.records import OpenRecord
from hagmeta.config.run_config import RunConfig
from study.store import archive

GRAPH = "synthetic:nodes=300,edges=1200,features=40,classes=10"
TASK = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "features": "propagated"}
MOST_BYTES = 15_000_000  # of all archives
ABOUT = ("--title", "Two methods", "--code", "2026-01-01", "--command", "hagmeta-study", "--commit", "abc")
PERSONS = ("email-rale", "cornell5")  # graphs of persons, of which only metrics are stored


@pytest.fixture(scope="module")
def results() -> list[hagmeta.Result]:
    return [hagmeta.run(method, GRAPH, seeds=3, **TASK) for method in ("sgc-ncm", "sgc-ridge")]


@pytest.fixture(scope="module")
def study(results: list[hagmeta.Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "two"
    for result in results:
        result.save(folder)
    return folder


def store(study: Path, folder: Path, *options: str, name: str = "two-1") -> Path:
    folder.mkdir(exist_ok=True)
    assert archive.main([name, str(study), *ABOUT, "--out", str(folder), *options]) == 0
    return folder / f"{name}.npz"


@cache
def graph_of(dataset: str) -> str:
    return datasets.fingerprint(datasets.load(dataset, Path()))


def why_outdated(record: OpenRecord) -> str:
    """Return why a record is not what the code would give today."""
    config, then = record["config"], record["revisions"]
    where = f"{config['dataset']}, {config['method']}"
    if "npz:" in config["dataset"]:  # needs its file
        return ""
    today = RunConfig.of(config)
    changed = {
        key for key in {**then, **today.revisions()} if then.get(key, 1) != today.revisions().get(key, 1)
    }
    if changed:
        return f"{where}: another revision of {', '.join(sorted(changed))}"
    if today.hash() != record["config_hash"]:
        return f"{where}: read as {today.hash()}"
    if config["dataset"] in datasets.EMBEDDED:
        return "" if graph_of(config["dataset"]) == record["data"] else f"{where}: the graph has changed"
    return ""


def test_references_are_those_of_the_code() -> None:
    """If this fails, run the methods that it lists again, and store them in a new archive."""
    first = {record["config_hash"]: record for record in read_references().records}
    assert [why for record in first.values() if (why := why_outdated(record))] == []


def test_references_are_complete() -> None:
    for kind, methods in ((DEFAULTS, 33), (TUNED, 12)):
        results = load_references(kind)
        assert results.runs["dataset"].nunique() == 11
        assert (results.runs.groupby(["dataset", "method"])["seed"].nunique() == 10).all()
        assert (results.runs.groupby("dataset")["method"].nunique() == methods).all()
        assert not results.runs["leaks"].any() and set(results.runs["protocol"]) == {"strict"}
        archive.check_tasks(read_references().of(kind))


def test_references_are_of_the_newest_code() -> None:
    for kind in KINDS:
        own = [r for r in read_references().of(kind) if r["config"]["method"] == "posterior-means"]
        assert {record["revisions"]["method"] for record in own} == {12}
    planned = archive_of("planned-tuned").records
    own = [record for record in planned if record["config"]["method"] == "posterior-means"]
    assert {record["revisions"]["method"] for record in own} == {9}


def test_predictions_give_the_stored_accuracy() -> None:
    found = read_references()
    for record in found.of(TUNED):
        dataset = record["config"]["dataset"]
        rows = found.answers(dataset, (record["config_hash"], record["seed"]))
        if "email" in dataset:
            assert rows is None
        else:
            assert rows is not None
            assert np.mean(rows["predicted"] == rows["true"]) == pytest.approx(
                record["accuracy"][-1], abs=1e-6
            )


def test_archives_are_small_and_have_no_predictions_of_persons() -> None:
    assert sum((FOLDER / f"{name}.npz").stat().st_size for name in names()) <= MOST_BYTES
    for name in names():
        assert not [
            key for key in archive_of(name).header["predicted"] if any(each in key for each in PERSONS)
        ]


def test_commands_of_archives_name_spaces_that_exist() -> None:
    lines = [line for name in names() for line in archive_of(name).header["commands"]]
    spaces = [match[1] for line in lines if (match := re.search(r"--space (\S+)", line))]
    assert len(spaces) == len(lines)
    for space in spaces:
        path = FOLDER.parent / space if "/" in space else FOLDER.parent / "search_spaces" / f"{space}.yaml"
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["description"]
    assert not any("/work" in line or "/home" in line for line in lines)


def test_references_have_scores_by_class_and_confusions() -> None:
    results = load_references(TUNED, datasets=["kanji"])
    (panel,) = results.panels
    assert results.stored is not None
    found, damaged = answers(panel, panel.labels, [], results.stored)
    assert set(found) == set(panel.labels) and not damaged
    for label in panel.labels:
        scores = stored_scores(panel, label, results.stored)
        weights = [score.accuracy.seeds for score in scores]
        last = panel.runs.loc[panel.runs["label"] == label, "last"].mean()  # seeds have as many classes
        assert np.average([score.accuracy.mean for score in scores], weights=weights) == pytest.approx(last)
        assert {score.group for score in scores} <= {BASE, NOVEL, EITHER}
        assert found[label].seeds == 10 and found[label].compared > 0


def test_records_and_predictions_survive(study: Path, results: list[hagmeta.Result], tmp_path: Path) -> None:
    stored = read_archive(store(study, tmp_path, "--kind", TUNED))
    found = read_references(tmp_path)
    records = {(record["config_hash"], record["seed"]): record for record in stored.records}
    for result in results:
        for record, predictions in zip(result.records, result.predictions, strict=True):
            key = record["config_hash"], record["seed"]
            own: dict[str, Any] = dict(records[key])
            assert own["config"] == record["config"] and own["traits"] == record["traits"]
            for name in ("macro_accuracy", "base_accuracy", "forgetting"):
                assert own[name] == pytest.approx(dict(record)[name], abs=1e-7)
            assert own["novel_accuracy"][0] is None and own["classes_met"] == record["classes_met"]
            last = found.answers(record["config"]["dataset"], key)
            assert last is not None
            given = dict(zip(last["query"].tolist(), last["predicted"].tolist(), strict=True))
            queries, predicted = predictions.queries[-1].tolist(), predictions.predicted[-1].tolist()
            assert given == dict(zip(queries, predicted, strict=True))
    assert stored.predictions("debian", 0) is None


def test_the_same_study_gives_the_same_bytes(study: Path, tmp_path: Path) -> None:
    assert store(study, tmp_path).read_bytes() == store(study, tmp_path, name="again").read_bytes()


def test_an_archive_is_never_overwritten(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(study, tmp_path)
    before = path.read_bytes()
    assert archive.main(["two-1", str(study), *ABOUT, "--out", str(tmp_path)]) == 2
    assert "never overwritten" in capsys.readouterr().err and path.read_bytes() == before


def test_newer_code_replaces_older_results(
    study: Path, results: list[hagmeta.Result], tmp_path: Path
) -> None:
    results[0].save(tmp_path / "later")
    store(study, tmp_path / "all", "--kind", TUNED)
    store(tmp_path / "later", tmp_path / "all", "--kind", TUNED, "--code", "2026-02-01", name="a-2")
    found = read_references(tmp_path / "all").by_kind[TUNED]
    assert {(each.name, record["config"]["method"]) for each, record in found} == {
        ("a-2", "sgc-ncm"),
        ("two-1", "sgc-ridge"),
    }


def test_runs_without_predictions_are_counted(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store(study, tmp_path, "--no-predictions", "all")
    assert "no predictions of the last session: 6 of 6 runs" in capsys.readouterr().out
    assert read_archive(path).header["predicted"] == {}


def test_archives_without_a_kind_are_no_references(study: Path, tmp_path: Path) -> None:
    store(study, tmp_path)
    with pytest.raises(UserError, match="no reference results of the kind tuned"):
        load_references(TUNED, folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "damaged.npz"
    if content is None:
        np.savez(path, header=np.frombuffer(json.dumps({"format": 99}).encode(), np.uint8))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged\.npz: (damaged file|its format is 99)"):
        read_archive(path)
