"""Reports of searches: made of the runs that confirm the choices, with what was searched beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.page.facts import facts
from analysis.tables.panels import make_tables
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from tests.analysis.conftest import Write, sentences

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
        "command": "",
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
    assert any("It is ahead of CEC." in text for text in sentences(results))


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
        OVERLAP,
    ]
    told = {fact.name: fact.value for fact in facts(Analysis(results))}
    chosen = "the best of 32 samples (10 pruned) in 6 searches, seeds 0, 1, 2, by macro accuracy"
    assert told["chosen"] == chosen
    assert told["overlap"] == OVERLAP


def test_some_of_a_search_keep_their_names(searched: Path) -> None:
    found = read([searched]).where({"dataset": ["debian"]})
    assert list(found.runs["label"].unique()) == ["HAG-Meta", "CEC"]
    with pytest.raises(UserError, match="no run has this value"):
        read([searched]).where({"val_classes": ["6"]})


def test_beside_other_studies_configurations_are_told_apart_by_what_was_chosen(
    searched: Path, write: Write
) -> None:
    other = write(curves(0.45), study="other")
    labels = set(read([searched, other]).runs.query("dataset == 'debian' and method == 'hag-meta'")["label"])
    assert len(labels) == 2 and "HAG-Meta" in labels
