"""The reference results: they are current, small, and the same bytes from the same studies."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hagmeta
from analysis import references
from analysis.by_class import BASE, EITHER, NOVEL, answers, stored_scores
from analysis.references import DEFAULTS, TUNED, load_references, read_references
from hagmeta.common.errors import UserError
from hagmeta.config import RunConfig
from study import build_references
from study.build_references import MOST_BYTES, build, outdated
from study.rerun_references import space_of

GRAPH = "synthetic:nodes=300,edges=1200,features=40,classes=10"
TASK = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "features": "propagated"}


@pytest.fixture(scope="module")
def results() -> list[hagmeta.Result]:
    """Two methods with their defaults, but for the features, and three seeds."""
    return [hagmeta.run(method, GRAPH, seeds=3, **TASK) for method in ("sgc-ncm", "sgc-ridge")]


@pytest.fixture(scope="module")
def study(results: list[hagmeta.Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "tuned"
    for result in results:
        result.save(folder)
    (folder / "best.yaml").write_text("cases: []\n")  # a study that has searched
    return folder


def test_the_packaged_references_are_those_of_the_code() -> None:
    """If this fails, run the methods that it lists again, then `python -m study.build_references`."""
    configurations = read_references().header["configurations"]
    # Tuned rivals that were searched and run before smoothing scaled the logits.
    smoothed = {each["config_hash"] for each in configurations if each["config"].get("smoothing")}
    assert set(outdated(configurations)) == smoothed and len(smoothed) == 30


def test_an_older_revision_is_outdated() -> None:
    (first, *_) = read_references().header["configurations"]
    older = copy.deepcopy(dict(first)) | {"revisions": {"protocol": 1}}
    assert outdated([older]) == {
        first["config_hash"]: f"{first['config']['dataset']}, {first['config']['method']}: the protocol has "
        "revision 1, the code 2"
    }


def test_a_method_that_no_longer_exists_is_outdated() -> None:
    (first, *_) = read_references().header["configurations"]
    gone = copy.deepcopy(dict(first))
    gone["config"] |= {"method": "no-such-method"}
    assert "no-such-method" in outdated([gone])[first["config_hash"]]


def test_a_changed_graph_is_outdated() -> None:
    debian = next(
        each for each in read_references().header["configurations"] if each["config"]["dataset"] == "debian"
    )
    assert "the graph has changed" in outdated([dict(debian) | {"data": "0" * 64}])[debian["config_hash"]]


def test_the_packaged_references_are_small_and_complete() -> None:
    assert references.PATH.stat().st_size <= MOST_BYTES
    results = load_references()
    assert {"debian", "foldoc", "metamath", "wordnet"} <= set(results.runs["dataset"])
    assert (results.runs.groupby("config_hash")["seed"].nunique() >= 10).all()
    assert not results.runs["leaks"].any() and set(results.runs["protocol"]) == {"strict"}
    for panel in results.panels():
        assert len(panel.labels) == panel.runs["method"].nunique() > 20
    defaults = load_references(DEFAULTS).runs
    assert (defaults["given"].map(len) == 0).all()


def test_the_packaged_tuned_references_have_predictions_of_every_run() -> None:
    found = read_references()
    tuned = found.of(TUNED)
    assert len({record["config"]["method"] for record in tuned}) == 12
    for record in tuned:
        last = found.predictions(record["config"]["dataset"], record["seed"])
        assert last is not None
        column = last.predicted[last.hashes.index(record["config_hash"])]
        assert np.mean(column == last.true) == pytest.approx(record["accuracy"][-1], abs=1e-6)


def test_tuned_references_have_scores_by_class_and_confusions() -> None:
    results = load_references(TUNED, datasets=["kanji"])
    (panel,) = results.panels()
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


def test_references_have_no_paths_of_a_machine() -> None:
    header = read_references().header
    assert "/" not in header["command"]
    assert not any("/" in word for text in header["launches"] for word in text.split()[2:])


def test_the_same_studies_give_the_same_bytes(study: Path) -> None:
    content, notes = build([study])
    assert content == build([study])[0]
    assert notes == []


def test_a_study_can_be_added_to_a_file(study: Path, results: list[hagmeta.Result], tmp_path: Path) -> None:
    path, other = tmp_path / "references.npz", tmp_path / "other"
    path.write_bytes(build([study])[0])
    results[0].save(other)
    again = hagmeta.run("sgc-ncm", "synthetic:nodes=300,edges=1200,features=40,classes=11", seeds=3, **TASK)
    again.save(other)
    (other / "best.yaml").write_text("description: another search\n")
    both = build([study, other])[0], build([path, other])[0]
    files = [tmp_path / f"{name}.npz" for name in ("folders", "added")]
    for file, content in zip(files, both, strict=True):
        file.write_bytes(content)
    whole, added = map(read_references, files)
    assert added.records == whole.records and len(added.records) == 9
    assert added.header["searches"] == ["another search"]
    assert added.header["predicted"] == whole.header["predicted"]
    assert_equal_arrays(added, whole)
    for result in (*results, again):
        for record, predictions in zip(result.records, result.predictions, strict=True):
            key = record["config_hash"], record["seed"]
            found = added.answers(record["config"]["dataset"], key)
            assert found is not None
            order = np.lexsort((predictions.queries[-1], predictions.true[-1]))
            assert np.array_equal(found["query"], predictions.queries[-1][order])
            assert np.array_equal(found["true"], predictions.true[-1][order])
            assert np.array_equal(found["predicted"], predictions.predicted[-1][order])


def test_a_file_alone_gives_the_same_file(study: Path, tmp_path: Path) -> None:
    path, copied = tmp_path / "references.npz", tmp_path / "copied.npz"
    path.write_bytes(build([study])[0])
    content, notes = build([path])
    copied.write_bytes(content)
    assert notes == [] and content == build([path])[0]
    first, second = read_references(path), read_references(copied)
    assert_equal_arrays(first, second)
    assert {**first.header, "command": ""} == {**second.header, "command": ""}


def test_a_run_that_a_study_replaces_loses_its_predictions(
    study: Path, results: list[hagmeta.Result], tmp_path: Path
) -> None:
    path, made, other = tmp_path / "references.npz", tmp_path / "made.npz", tmp_path / "other"
    path.write_bytes(build([study])[0])
    results[0].save(other)
    shutil.rmtree(other / "predictions")
    content, notes = build([path, other])
    made.write_bytes(content)
    assert notes == ["no predictions of the last session: 3 of 6 tuned runs"]
    kept = results[1].records[0]["config_hash"]
    assert read_references(made).header["predicted"] == {f"{GRAPH} {seed}": [kept] for seed in range(3)}


def test_launches_are_named_without_folders(study: Path, tmp_path: Path) -> None:
    path, other = tmp_path / "references.npz", tmp_path / "other"
    shutil.copytree(study, other)
    launch = {
        **{"space": "s", "description": "", "time": "2026-01-01T00:00:00+00:00", "configs": {}, "seeds": [0]},
        "command": "python study/launch.py --results /a/b --space=c/s.yaml dataset=npz:/d/e.npz --name f",
    }
    (other / "launches").mkdir(exist_ok=True)
    (other / "launches" / "one.json").write_text(json.dumps(launch))
    path.write_bytes(build([other])[0])
    assert read_references(path).header["launches"] == [
        "python study/launch.py --results b --space=s.yaml dataset=npz:e.npz --name f"
    ]


def assert_equal_arrays(first: references.References, second: references.References) -> None:
    assert set(first.arrays) == set(second.arrays)
    for name, array in first.arrays.items():
        assert array.dtype == second.arrays[name].dtype
        np.testing.assert_array_equal(array, second.arrays[name], err_msg=name)


def test_records_and_predictions_survive(study: Path, results: list[hagmeta.Result], tmp_path: Path) -> None:
    path = tmp_path / "references.npz"
    path.write_bytes(build([study])[0])
    found = read_references(path)
    records = {(record["config_hash"], record["seed"]): record for record in found.of(TUNED)}
    for result in results:
        for record, predictions in zip(result.records, result.predictions, strict=True):
            own = records[record["config_hash"], record["seed"]]
            assert own["config"] == record["config"] and own["traits"] == record["traits"]
            for name in ("macro_accuracy", "base_accuracy", "forgetting"):
                assert own[name] == pytest.approx(record[name], abs=1e-7)  # type: ignore[literal-required]
            assert own["novel_accuracy"][0] is None
            assert own["classes_met"] == record["classes_met"]
            last = found.predictions(record["config"]["dataset"], record["seed"])
            assert last is not None
            column = last.predicted[last.hashes.index(record["config_hash"])]
            given = dict(zip(last.query.tolist(), column.tolist(), strict=True))
            queries, predicted = predictions.queries[-1].tolist(), predictions.predicted[-1].tolist()
            assert given == dict(zip(queries, predicted, strict=True))
            assert np.mean(column == last.true) == pytest.approx(record["accuracy"][-1])
    assert found.predictions("debian", 0) is None


def test_the_predictions_of_some_seeds_are_left_out_of_a_file_that_is_too_large(
    study: Path, tmp_path: Path
) -> None:
    path, whole = tmp_path / "references.npz", build([study])[0]
    content, notes = build([study], most=len(whole) - 1)
    path.write_bytes(content)
    assert notes == [f"left out to stay below {len(whole) - 1:,} bytes: predictions of seeds 2"]
    found = read_references(path)
    assert found.predictions(GRAPH, 2) is None and found.predictions(GRAPH, 1) is not None
    assert len(found.records) == 6
    with pytest.raises(UserError, match="expected at most 100"):
        build([study], most=100)


def test_references_become_the_results_of_a_report(study: Path, tmp_path: Path) -> None:
    path = tmp_path / "references.npz"
    path.write_bytes(build([study])[0])
    (panel,) = load_references(TUNED, path=path).panels()
    assert panel.labels == ["SGC-NCM", "SGC-Ridge"] and panel.by_seed("last").shape == (3, 2)
    with pytest.raises(UserError, match="no reference results of the kind defaults"):
        load_references(DEFAULTS, path=path)


@pytest.mark.parametrize("stored", [False, True])
def test_outdated_runs_are_left_out_with_a_message(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    from hagmeta.methods import METHODS

    source = tmp_path / "earlier.npz" if stored else study
    if stored:
        source.write_bytes(build([study])[0])
    method = METHODS["sgc-ncm"]
    monkeypatch.setattr(method, "traits", replace(method.traits, revision=99))
    path = tmp_path / "references.npz"
    content, notes = build([source])
    path.write_bytes(content)
    assert [note for note in notes if "sgc-ncm: the method has revision 2, the code 99" in note]
    found = read_references(path)
    assert {record["config"]["method"] for record in found.records} == {"sgc-ridge"}
    kept = found.records[0]["config_hash"]
    assert found.header["predicted"] == {f"{GRAPH} {seed}": [kept] for seed in range(3)}


def test_two_tuned_configurations_of_a_method_are_refused(study: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    hagmeta.run("sgc-ncm", GRAPH, seeds=3, **TASK, hops=1).save(other)
    (other / "best.yaml").write_text("cases: []\n")
    with pytest.raises(UserError, match="sgc-ncm: two configurations are tuned"):
        build([study, other])


def test_settings_without_a_search_are_left_out(results: list[hagmeta.Result], tmp_path: Path) -> None:
    results[0].save(tmp_path / "plain")
    with pytest.raises(UserError, match="no run is tuned or has the method's defaults"):
        build([tmp_path / "plain"])


def test_the_command_writes_the_file(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made.npz"
    assert build_references.main([str(study), "--out", str(out)]) == 0
    assert out.read_bytes() == build([study])[0]
    assert "made.npz" in capsys.readouterr().out
    assert build_references.main([str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_references_run_again_with_the_same_hashes() -> None:
    found = read_references()
    space = space_of(found, DEFAULTS, ["debian", "foldoc"], None)
    hashes = {record["config_hash"] for record in found.of(DEFAULTS, ["debian", "foldoc"])}
    assert {RunConfig.from_mapping(case).hash() for case in space["cases"]} == hashes
    assert space["seeds"] == sorted({record["seed"] for record in found.of(DEFAULTS)})
    with pytest.raises(UserError, match="unknown dataset of the references, kind 'defaults'"):
        space_of(found, DEFAULTS, ["debain"], None)


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_a_damaged_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "damaged.npz"
    if content is None:
        text = np.frombuffer(json.dumps({"format": 99}).encode(), np.uint8)
        np.savez(path, header=text)
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"damaged\.npz: (damaged file|its format is 99)"):
        read_references(path)
