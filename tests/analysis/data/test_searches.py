"""Reports of searches: made of the runs that confirm the choices, with what was searched beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hagmeta
from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.page.facts import facts
from analysis.report import Report
from analysis.tables.panels import make_tables
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from tests.analysis.conftest import Write, sentences
from tests.analysis.held import check

OVERLAP = "debian: of the fresh seeds' test nodes 78 % were train or validation nodes."
CHOSEN: dict[str, dict[str, Any]] = {
    "hag-meta": {"learning_rate": 0.0123456, "hidden": 64},
    "cec": {"learning_rate": 0.004, "hidden": 128},
}


def curves(level: float) -> dict[int, tuple[float, ...]]:
    return {seed: (level + 0.2, level + 0.1, level + 0.001 * seed) for seed in range(3, 13)}


def launch(folder: Path, number: int, datasets: list[str], chosen: dict[str, dict[str, Any]]) -> None:
    """The note of a launch that chose these, and found nothing for `frozen`."""
    configs, cells = {}, []
    for dataset in datasets:
        for method, values in chosen.items():
            config = resolve(RunConfig.of(dataset=dataset, method=method, sessions=2, **values))
            configs[config.hash()] = config.canonical()
            cell = {"study": f"{dataset}-{method}", "title": f"{dataset} {method}", "dataset": dataset}
            cell |= {"method": method, "found": 32, "validation": 0.61, "chosen": config.hash()}
            cell |= {"pruned": 5} if method == "cec" else {}  # older launches pruned none
            cells.append(cell | {"sampled": list(values), "values": values})
        lost = {"study": f"{dataset}-frozen", "title": f"{dataset} frozen", "dataset": dataset, "found": 0}
        lost |= {"method": "frozen", "validation": None, "chosen": None, "sampled": ["hidden"], "values": {}}
        cells.append(lost)
    search = {"samples": 32, "seeds": [0, 1, 2], "objective": "macro accuracy", "overlap": [OVERLAP]}
    note = {
        "space": "tune",
        "description": "",
        "command": "hagmeta-study tune",
        "configs": configs,
        "seeds": list(range(3, 13)),
    }
    note |= {"time": f"2026-01-0{number}T00:00:00+00:00", "search": search | {"cells": cells}}
    (folder / "launches").mkdir(exist_ok=True)
    (folder / "launches" / f"{number}.json").write_text(json.dumps(note))


@pytest.fixture
def searched(write: Write) -> Path:
    """Samples, an earlier choice, and what is chosen now on two datasets."""
    write({seed: (0.9, 0.9, 0.9) for seed in range(3)}, val_classes=6, hidden=32)
    write(curves(0.9), hidden=256, learning_rate=0.001)
    for dataset in ("debian", "cora-full"):
        write(curves(0.5), dataset=dataset, **CHOSEN["hag-meta"])
        folder = write(curves(0.4), dataset=dataset, method="cec", **CHOSEN["cec"])
    launch(folder, 1, ["debian"], {"hag-meta": {"hidden": 256, "learning_rate": 0.001}})
    launch(folder, 2, ["debian", "cora-full"], CHOSEN)
    return folder


def test_the_report_of_a_search_is_made_of_what_confirms_its_last_choice(searched: Path) -> None:
    results = read([searched])
    assert len(results.runs) == 4 * 10 and set(results.runs["seed"]) == set(range(3, 13))
    assert results.missing == []  # of what was chosen before, nothing is missed
    tables = {table.name: table for table in make_tables(Analysis(results))}
    for dataset in ("debian", "cora-full"):
        rows = tables[f"sessions-{dataset}-strict-3-way-5-shot"].rows
        assert [row[0].text for row in rows] == ["HAG-Meta", "CEC"]  # and not what was chosen for each
        assert [row[1].text for row in rows] == ["10", "10"]
    assert any("It is significantly better than CEC." in text for text in sentences(results))


def test_what_one_launch_chose_stands_beside_what_another_did(searched: Path, write: Write) -> None:
    write(curves(0.7), method="cec", learning_rate=0.02, hidden=32)
    launch(searched, 3, ["debian"], {"cec": {"learning_rate": 0.02, "hidden": 32}})
    results = read([searched])
    assert len(results.runs) == 4 * 10 and results.missing == []
    chosen = results.runs.groupby(["dataset", "method"])["hidden"].unique().map(list).to_dict()
    assert chosen[("debian", "cec")] == [32] and chosen[("cora-full", "cec")] == [128]
    assert chosen[("debian", "hag-meta")] == [64]
    (table,) = [table for table in make_tables(Analysis(results)) if table.name.startswith("search-")]
    assert [row[0].text for row in table.rows].count("debian cec") == 1


def test_what_was_chosen_stands_beside_with_objective_and_overlap(searched: Path) -> None:
    results = read([searched])
    (table,) = [table for table in make_tables(Analysis(results)) if table.name.startswith("search-")]
    assert table.columns == ["search", "samples", "validation", "learning_rate", "hidden"]
    shown = [[cell.text for cell in row] for row in table.rows]
    assert shown[0] == ["debian hag-meta", "32", "61.0", "0.0123", "64"]
    assert shown[1][:3] == ["debian cec", "32 (5 pruned)", "61.0"]
    assert shown[2] == ["debian frozen", "0 of 32", "", "", ""]
    assert table.notes == [
        "Nothing was chosen for debian frozen, cora-full frozen, because no sample finished.",
        "Pruned samples did not run all seeds, because they were significantly worse.",
        "Seeds 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 had confirmed an earlier choice of these searches. They are "
        "not fresh, so differences on them can be too optimistic.",
        OVERLAP,
    ]
    assert shown[-1][:3] == ["debian hag-meta, earlier choice", "32", "61.0"]
    assert shown[-1][3:] == ["0.001", "256"]
    told = {fact.name: fact.value for fact in facts(Analysis(results))}
    chosen = "the best of 32 samples (10 pruned) in 6 searches, seeds 0, 1, 2, by macro accuracy"
    assert told["chosen"] == chosen
    assert told["overlap"] == OVERLAP


def test_beside_other_studies_configurations_are_told_apart_by_what_was_chosen(
    searched: Path, write: Write
) -> None:
    other = write(curves(0.45), study="other")
    labels = set(read([searched, other]).runs.query("dataset == 'debian' and method == 'hag-meta'")["label"])
    assert len(labels) == 2 and "HAG-Meta" in labels


def with_default(searched: Path, write: Write) -> Path:
    """The search with runs of the default of CEC on debian."""
    write(curves(0.3), dataset="debian", method="cec")
    config = resolve(RunConfig.of(dataset="debian", method="cec", sessions=2))
    path = searched / "launches" / "2.json"
    note = json.loads(path.read_text())
    note["configs"][config.hash()] = config.canonical()
    for cell in note["search"]["cells"]:
        if (cell["dataset"], cell["method"]) == ("debian", "cec"):
            cell |= {"default": config.hash(), "default_validation": 0.52}
    path.write_text(json.dumps(note))
    return searched


def test_the_gain_from_tuning_is_told_with_one_verdict_everywhere(searched: Path, write: Write) -> None:
    folder = with_default(searched, write)
    report = Report(read([folder]))
    (table,) = [table for table in report.tables if table.name == "tuning"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["CEC", "debian, strict, 3-way 5-shot", "30.8 ± 0.2", "40.8 ± 0.2", "+10.0 [+10.0, +10.0]"]
        + ["significantly better"]
    ]
    assert "each tuned method minus its own default" in table.caption
    (found,) = [finding.text for finding in report.findings if finding.kind == "tuning"]
    words = "uning gains CEC +10.0 points [+10.0, +10.0] (significantly better), at the last session."
    assert found.endswith(words)
    told = report.comparisons
    pair = ("debian, strict, 3-way 5-shot", "CEC (tuned)", "CEC (default)")
    assert not {pair, (pair[0], *pair[:0:-1])} & {*told.reference.comparisons, *told.pairs.comparisons}
    assert told.configurations[pair] is told.tuning[pair]
    check(folder)
    own = Report(report.results.where({"method": ["cec"], "dataset": ["debian"]}))
    (summary,) = [table for table in own.tables if table.name.startswith("summary")]
    assert "Not tested" not in summary.caption and "Gain from tuning" in summary.caption


def test_a_confirmation_counts_until_the_next_one_has_runs(searched: Path, write: Write) -> None:
    values = {"learning_rate": 0.02, "hidden": 16}
    launch(searched, 3, ["debian", "cora-full"], {"hag-meta": values, "cec": values})
    results = read([searched])
    assert len(results.runs) == 4 * 10 and set(results.runs["hidden"]) == {64, 128}
    write(curves(0.7), method="cec", **values)
    assert set(read([searched]).runs["hidden"]) == {16}


def test_a_frame_and_results_are_of_the_confirmed_runs(searched: Path, write: Write) -> None:
    study = hagmeta.open_study(searched)
    assert study.complete
    frame = study.frame()
    assert set(frame["role"]) == {"tuned"} and list(frame).index("role") == list(frame).index("label") + 1
    runs = {(record["config_hash"], record["seed"]) for each in study.results() for record in each.records}
    assert runs == {*frame[["config", "seed"]].itertuples(index=False, name=None)} and len(runs) == 40
    launch(searched, 3, ["debian"], {"cec": {"learning_rate": 0.02, "hidden": 32}})
    assert not hagmeta.open_study(searched).complete  # not yet confirmed
    assert len(study.results()) == 4
    write(curves(0.7), method="cec", learning_rate=0.02, hidden=32)
    assert hagmeta.open_study(searched).complete
    # The search goes on with more samples.
    (searched / "searches").mkdir()
    file = searched / "searches" / "debian-cec.json"
    file.write_text(json.dumps({"samples": [], "time": "2026-01-04T00:00:00+00:00"}))
    study = hagmeta.open_study(searched)
    assert not study.complete and len(study.frame()) == len(frame)
    # Before the first confirmation there are only samples.
    for path in (searched / "launches").iterdir():
        path.unlink()
    study = hagmeta.open_study(searched)
    assert not study.complete
    for read_runs in (study.frame, study.results):
        with pytest.raises(UserError, match="has not confirmed any choice yet"):
            read_runs()
