"""Results of different tasks share nothing, and methods that may read different labels are not compared."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

import hagmeta
from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Panel, Results
from analysis.references.place import place
from analysis.references.references import read_references
from analysis.report import Report
from analysis.tables.designs import rank_tables
from analysis.tables.panels import summary_table
from analysis.tables.table import Table
from hagmeta.common.errors import UserError
from hagmeta.common.records.records import OpenRecord, Record
from hagmeta.config.run_config import SETTINGS, RunConfig, resolve
from study.store import archive
from tests.analysis.conftest import Write, about, figures, reconfigured, sentences

METHODS = {"sgc-ncm": 0.0, "sgc-ridge": 0.01, "hag-meta": 0.02}
SEEDS = range(6)
CLASSES = {"classes": (20, 10, 11)}
TASK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # two values of each setting of the task
    "dataset": ({"dataset": "debian"}, {"dataset": "foldoc"}),
    "protocol": ({"protocol": "strict"}, {"protocol": "released"}),
    "classes": ({"classes": (20, 10, 11)}, {"classes": (19, 10, 11)}),
    "split": (CLASSES, CLASSES | {"split": "fixed"}),
    "drop_small": ({}, {"drop_small": True}),
    "n_way": ({"n_way": 3}, {"n_way": 2}),
    "k_shot": ({"k_shot": 5}, {"k_shot": 3}),
    "sessions": ({"sessions": 2}, {"sessions": 3}),
    "queries_per_class": ({}, {"queries_per_class": 10}),
    "val_classes": ({}, {"val_classes": 4}),
    "scored_on": ({}, {"scored_on": "validation"}),
    "visibility": ({}, {"visibility": "whole"}),
    "mislabelled": ({}, {"mislabelled": 1}),
    "unlabelled_nodes": ({}, {"unlabelled_nodes": "training"}),
}
LABELS = {"rehearsal": ({"rehearsal": "all"}, {"rehearsal": "none"})}
GRAPH = "synthetic:nodes=300,edges=1200,features=40,classes=10"
HIGH, LOW = 0.9, 0.1  # accuracies under the first and the second value


resolved = cache(lambda settings: resolve(RunConfig.of(**dict(settings))))


def record_of(level: float, seed: int, **settings: Any) -> OpenRecord:
    told = about(resolved(tuple(({"sessions": 2} | settings).items())))
    score = level + METHODS[told["config"]["method"]] + seed / 1000
    curve = figures([score] * (told["config"]["sessions"] + 1))
    return told | curve | {"seed": seed}


def save(folder: Path, record: OpenRecord) -> Path:
    path = folder / "runs" / record["config_hash"] / f"{record['seed']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return folder


def write_both(folder: Path, key: str) -> Results:
    """Write three methods with both values of a setting, and read them."""
    for level, values in zip((HIGH, LOW), (TASK | LABELS)[key], strict=True):
        for method, seed in itertools.product(METHODS, SEEDS):
            save(folder, record_of(level, seed, method=method, **values))
    return read([folder])


COMMON = ("dataset", "protocol", "visibility")  # of the others, the slow tests show the same


@pytest.fixture(
    scope="module",
    params=[pytest.param(key, marks=() if key in COMMON else pytest.mark.slow) for key in TASK],
)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Results]:
    """A setting of the task, and results with two values of it. Tests of one setting share them."""
    return request.param, write_both(tmp_path_factory.mktemp("both"), request.param)


def tables_of(results: Results) -> Iterator[Table]:
    yield from Report(results).tables


def numbers_of(table: Table) -> Iterator[float]:
    """Yield the number at the start of each cell."""
    for row in table.rows:
        for cell in row:
            if found := re.match(r"[+-]?\d+\.\d", cell.text):
                yield abs(float(found[0]))


def is_mixed(percent: float) -> bool:
    """Whether a mean is of runs with both values: means of one value are near 90 or 10, changes near 80."""
    return 30 < percent < 70


def method_of(results: Results, label: str) -> set[str]:
    return set(results.runs.loc[results.runs["label"] == label, "method"])


def test_two_values_of_every_setting_of_the_task_are_tried_here() -> None:
    declared = {name: item.metadata["scope"] for name, item in SETTINGS.items()}
    assert {name for name, scope in declared.items() if scope == "task"} == TASK.keys()
    assert {name for name, scope in declared.items() if scope == "labels"} == LABELS.keys()


def test_results_of_different_tasks_share_no_panel_mean_or_rank(both: tuple[str, Results]) -> None:
    key, found = both
    panels = found.panels
    assert len(panels) == 2
    for panel in panels:
        assert panel.runs[key].nunique() == 1 and len(panel.labels) == len(METHODS)
        table = summary_table(panel, Analysis(found).comparisons)
        ranks = [row[table.columns.index("rank")].text for row in table.rows]
        assert ranks == ["1", "2", "3"]
    for table in tables_of(found):
        if table.name != "cost":
            assert not [number for number in numbers_of(table) if is_mixed(number)], table.name
    assert not Analysis(found).by_dataset or key == "dataset"


def test_only_a_method_itself_is_compared_between_tasks(both: tuple[str, Results]) -> None:
    key, found = both
    told = Analysis(found).comparisons
    for family in (told.reference, told.pairs, told.margins, *told.effects.values()):
        assert all(abs(each.mean) < 0.1 for each in family.comparisons.values())
    titles = {panel.title for panel in found.panels}
    assert {panel for panel, *_ in told.configurations} == titles
    assert all(name != key or where for where, name, *_ in told.values.comparisons)
    for sentence in sentences(found):
        assert not re.search(r"[78]\d\.\d points", sentence) or key in {"protocol", "k_shot"}, sentence


def result_of(settings: dict[str, Any]) -> hagmeta.Result:
    records = [record_of(HIGH, seed, **settings) | {"data": "0" * 64} for seed in SEEDS]
    return hagmeta.Result(cast(list[Record], records), resolve(RunConfig.of(**{"sessions": 2, **settings})))


@pytest.mark.parametrize("key", TASK)
def test_compare_refuses_results_of_different_tasks(key: str) -> None:
    first, second = TASK[key]
    for methods in (("sgc-ncm", "sgc-ridge"), ("sgc-ncm", "sgc-ncm")):
        pair = [
            result_of(values | {"method": method})
            for values, method in zip((first, second), methods, strict=True)
        ]
        with pytest.raises(UserError, match=rf"cannot compare results of different tasks: .*{key} is "):
            hagmeta.compare(*pair)


def like_references(folder: Path, **settings: Any) -> Path:
    """Write three runs with the task of the references, except for these settings."""
    theirs = {
        record["seed"]: record
        for record in read_references().of("defaults", ["debian"])
        if record["config"]["method"] == "sgc-ncm"
    }
    for seed in sorted(theirs)[:3]:
        own = record_of(LOW, seed, **{"method": "sgc-ncm", "sessions": None} | settings)
        save(folder, own | {key: theirs[seed][key] for key in ("data", "classes_met")})
    return folder


def test_a_run_like_the_references_is_compared(tmp_path: Path) -> None:
    assert place([like_references(tmp_path)]).standings


@pytest.mark.parametrize("key", sorted((TASK | LABELS).keys() - {"dataset"}))
def test_another_task_is_not_compared_with_the_references(key: str, tmp_path: Path) -> None:
    folder = like_references(tmp_path, **(TASK | LABELS)[key][1])
    with pytest.raises(UserError, match=rf"[:;] {key} is [^;]*, the references"):
        place([folder])


@pytest.mark.parametrize("key", sorted((TASK | LABELS).keys() - {"dataset"}))
def test_references_of_one_graph_have_one_task(key: str) -> None:
    first, second = (TASK | LABELS)[key]
    records = [
        record_of(HIGH, seed, **values, method=method) | {"data": "0" * 64, "classes_met": [0]}
        for seed, (values, method) in enumerate([(first, "sgc-ncm"), (second, "sgc-ridge")])
    ]
    with pytest.raises(UserError, match=r"debian: .* is .* and .*; references need one task per graph"):
        archive.check_tasks(records)


def test_methods_under_different_labels_are_not_compared(tmp_path: Path) -> None:
    found = write_both(tmp_path, "rehearsal")
    assert [panel.title[-len("rehearsal none") :].strip(", ") for panel in found.panels] == [
        "rehearsal all",
        "rehearsal none",
    ]
    for panel, one, other in Analysis(found).comparisons.configurations:
        values = {label[label.index("rehearsal") :].strip(")") for label in (one, other)}
        assert len(values) == 1 and panel.endswith(values.pop())
    for table in tables_of(found):
        if table.name != "cost":
            assert not [number for number in numbers_of(table) if is_mixed(number)], table.name
    assert {key[1:3] for key in Analysis(found).comparisons.values.comparisons} == {("rehearsal", "none")}


def test_methods_that_each_ran_under_other_labels_are_not_compared(write: Write) -> None:
    """The names of two methods alone would hide that one of them may read more labels."""
    write({seed: [0.9, 0.9, 0.8] for seed in SEEDS}, method="sgc-ncm")
    folder = write({seed: [0.9, 0.9, 0.4] for seed in SEEDS}, method="sgc-ridge", rehearsal="none")
    found = read([folder])
    assert not Analysis(found).comparisons.configurations
    assert found.labels == ["SGC-NCM (rehearsal all)", "sgc-ridge (rehearsal none)"]
    assert not [
        text for text in sentences(found) if "significantly worse" in text or "significantly better" in text
    ]


def test_one_method_is_compared_with_itself_and_every_row_names_its_labels(write: Write) -> None:
    write({seed: [0.9, 0.9, 0.8] for seed in SEEDS}, method="hag-meta")
    write({seed: [0.9, 0.9, 0.7] for seed in SEEDS}, method="hag-meta", hidden=16)
    folder = write({seed: [0.9, 0.9, 0.4] for seed in SEEDS}, method="hag-meta", rehearsal="none")
    found = read([folder])
    (panel,) = found.panels
    assert panel.labels == ["rehearsal all", "rehearsal all, hidden 16", "rehearsal none"]
    test = Analysis(found).comparisons.pair(panel, "rehearsal none", "rehearsal all")
    assert test is not None and test.verdict == "significantly worse"


def test_the_labels_of_one_method_are_an_axis_beside_another_method(write: Write) -> None:
    """A second method separates the panels; the effect of the labels on the first is still tested."""
    write({seed: [0.9, 0.9, 0.8] for seed in SEEDS}, method="sgc-ncm")
    write({seed: [0.9, 0.9, 0.4] for seed in SEEDS}, method="sgc-ncm", rehearsal="none")
    folder = write({seed: [0.9, 0.9, 0.7] for seed in SEEDS}, method="sgc-ridge")
    found = read([folder])
    ((_, setting, value, method),) = Analysis(found).comparisons.values.comparisons
    assert (setting, value, method) == ("rehearsal", "none", "sgc-ncm")
    (table,) = rank_tables(Analysis(found))
    assert table.title.startswith("Does rehearsal matter?") and [row[-1].text for row in table.rows] == [
        "significantly worse"
    ]


def test_an_upper_bound_is_in_the_panel_of_every_value_of_the_labels(write: Write) -> None:
    for method in ("sgc-ncm", "sgc-ridge"):
        for rehearsal in ("all", "none"):
            write({seed: [0.9, 0.9, 0.8] for seed in SEEDS}, method=method, rehearsal=rehearsal)
    folder = write({seed: [0.9, 0.9, 0.85] for seed in SEEDS}, method="joint")
    panels: list[Panel] = read([folder]).panels
    assert [len(panel.labels) for panel in panels] == [3, 3]
    assert all("Joint (oracle)" in panel.labels for panel in panels)


def test_compare_refuses_methods_under_different_labels() -> None:
    task: dict[str, Any] = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "features": "propagated"}
    own = [hagmeta.run("sgc-ncm", GRAPH, seeds=2, rehearsal=value, **task) for value in ("all", "none")]
    other = hagmeta.run("sgc-ridge", GRAPH, seeds=2, rehearsal="none", **task)
    for refused in ((own[0], other), (*own, other)):
        with pytest.raises(UserError, match="different labels: rehearsal is all and none"):
            hagmeta.compare(*refused)
    (pair,) = hagmeta.compare(*own).pairs
    assert (pair.one, pair.other) == ("rehearsal all", "rehearsal none")
    assert len(hagmeta.compare(own[1], other).pairs) == 1


def test_datasets_of_different_tasks_are_not_summarised_together(write: Write) -> None:
    for dataset, visibility in (("debian", "arriving"), ("foldoc", "arriving"), ("wordnet", "whole")):
        for method in METHODS:
            curve = {seed: [0.9, 0.9, 0.8] for seed in SEEDS}
            folder = write(curve, method=method, dataset=dataset, visibility=visibility)
        found = read([folder])
        assert bool(Analysis(found).by_dataset) == (dataset == "foldoc")


def test_a_report_names_what_is_not_the_default(both: tuple[str, Results]) -> None:
    key, found = both
    named = " ".join([*found.not_default, *(panel.title for panel in found.panels)])
    value = found.runs.loc[found.runs["last"] < 0.5, key].iloc[0]
    assert str(value).lower() in named.lower()


def test_a_setting_of_the_task_of_a_plug_in_separates_panels(tmp_path: Path) -> None:
    """Nothing lists it but its declaration, which the record repeats."""
    for method, value in (("sgc-ncm", 1), ("sgc-ridge", 2)):
        record = record_of(HIGH, 0, method=method)
        scopes = record["scopes"] | {"distance": "task"}
        reconfigured(save(tmp_path / method, record | {"scopes": scopes}), distance=value)
    assert [panel.title[-10:] for panel in read([tmp_path]).panels] == ["distance 1", "distance 2"]
