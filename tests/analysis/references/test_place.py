"""Comparisons with the reference results: who is compared, what is refused, and what the page says."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import hagmeta
from analysis.__main__ import main
from analysis.references.comparable import cheapest
from analysis.references.page import write_comparison
from analysis.references.place import Placed, place
from analysis.references.references import DEFAULTS, References, read_references
from analysis.references.words import citations, findings, paragraph
from analysis.statistics.estimates import estimate
from hagmeta.common.errors import UserError
from study.finish import compare_with_references
from study.store import archive
from tests.analysis.conftest import rewritten

GRAPH = "synthetic:nodes=300,edges=1200,features=40,classes=10"
TASK: dict[str, Any] = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "features": "propagated"}
METHODS = ("sgc-ncm", "sgc-ridge", "sgc-lda")
GOOD = '''
from hagmeta.methods.closed_form.sgc import RidgeSettings, SgcRidge


class Good(SgcRidge):
    """The same answers as ridge regression."""

    own_settings = RidgeSettings
'''
POOR = '''
import torch
from hagmeta import MethodTraits
from hagmeta.methods.closed_form.base import ClosedForm, ClosedFormSettings


class Poor(ClosedForm):
    """Always the farthest mean."""

    own_settings = ClosedFormSettings
    traits = MethodTraits(title="Poor", citation="A. Author. Poor. 2026.")

    def answer(self, statistics, query):
        return torch.cdist(query, statistics[0])
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def references(folder: Path) -> References:
    """Three methods on a small graph, ten seeds, as if their settings were the defaults."""
    for method in METHODS:
        hagmeta.run(method, GRAPH, seeds=10, **TASK).save(folder / "tuned")
    return stored(folder / "tuned", folder / "archives", "defaults")


def stored(study: Path, folder: Path, kind: str) -> References:
    """Return the runs of a study as references."""
    folder.mkdir()
    about = ["--title", "t", "--code", "2026-01-01", "--command", "c", "--commit", "abc", "--kind", kind]
    assert archive.main(["all-1", str(study), *about, "--out", str(folder)]) == 0
    return read_references(folder)


@pytest.fixture(scope="module")
def own(folder: Path) -> Callable[..., Path]:
    """Run a method from a file outside the repository, and return its study."""

    def run(name: str, source: str, seeds: Any = 10, **settings: Any) -> Path:
        file = folder / f"{name.lower()}.py"
        file.write_text(source)
        place = folder / "-".join([name, str(seeds), *map(str, settings.values())])
        if not place.exists():
            hagmeta.run(f"{file}:{name}", GRAPH, seeds=seeds, **TASK | settings).save(place)
        return place

    return run


@pytest.fixture(scope="module")
def poor(own: Callable[..., Path], references: References) -> Placed:
    return place([own("Poor", POOR)], references=references)


def test_a_poor_method_is_behind_every_reference(poor: Placed) -> None:
    (standing,) = poor.standings
    assert standing.rank == 4 and set(standing.rivals) == {"SGC-NCM", "SGC-Ridge", "SGC-LDA"}
    assert {test.verdict for test in standing.tests.values()} == {"significantly worse"}
    (finding,) = findings(poor)
    assert finding.values["rank"] == 4 and finding.text.startswith(
        f"On {standing.dataset}, Poor ranks 4 of 4 "
    )
    assert "It is significantly worse than all 3 others." in finding.text


def test_differences_are_paired_by_seed(poor: Placed, folder: Path) -> None:
    (standing,) = poor.standings
    ends: dict[str, dict[int, float]] = {}
    for study in (folder / "tuned", folder / "Poor-10"):
        for path in study.glob("runs/*/*.json"):
            record = json.loads(path.read_text())
            ends.setdefault(record["traits"]["title"], {})[record["seed"]] = record["macro_accuracy"][-1]
    for label, test in standing.tests.items():
        differences = [ends["Poor"][seed] - ends[label][seed] for seed in ends[label]]
        found = estimate(differences)
        limits = (found.mean, found.low, found.high)
        assert test.seeds == 10 and (test.mean, test.low, test.high) == pytest.approx(limits, abs=1e-6)
    assert standing.best == max(METHODS_BY_TITLE, key=lambda title: np.mean(list(ends[title].values())))


METHODS_BY_TITLE = {"SGC-NCM": "sgc-ncm", "SGC-Ridge": "sgc-ridge", "SGC-LDA": "sgc-lda"}


def test_the_same_answers_are_a_tie(own: Callable[..., Path], references: References) -> None:
    """Single precision of the references must not turn equal results into a difference."""
    (standing,) = place([own("Good", GOOD)], references=references).standings
    assert standing.tests["SGC-Ridge"].mean == 0
    assert standing.tests["SGC-Ridge"].verdict == "equivalent"
    assert standing.label == "Good"


def test_a_reference_that_was_run_again_replaces_itself(folder: Path, references: References) -> None:
    hagmeta.run("sgc-lda", GRAPH, seeds=10, **TASK).save(folder / "again")
    (standing,) = place([folder / "again"], references=references).standings
    assert standing.label == "SGC-LDA" and set(standing.rivals) == {"SGC-NCM", "SGC-Ridge"}


def test_other_settings_of_a_reference_are_marked_as_yours(folder: Path, references: References) -> None:
    hagmeta.run("sgc-lda", GRAPH, seeds=10, **TASK, hops=1).save(folder / "hops")
    (standing,) = place([folder / "hops"], references=references).standings
    assert standing.label == "SGC-LDA (yours)" and len(standing.rivals) == 3


def changed(study: Path, to: Path, settings: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Copy a study with other settings, or with other values in its records."""
    with tempfile.TemporaryDirectory() as copy:
        own = shutil.copytree(study / "runs", Path(copy, "runs")).parent
        rewritten(own, lambda record: record | changes | {"config": record["config"] | (settings or {})})
        shutil.copytree(own, to, dirs_exist_ok=True)
    return to


def test_too_few_common_seeds_are_refused_with_a_command(
    own: Callable[..., Path], references: References
) -> None:
    with pytest.raises(UserError, match="its seeds are 8, 9, 10, the references have 0-9") as error:
        place([own("Poor", POOR, seeds=(8, 9, 10))], references=references)
    assert "--methods FILE.py:Poor" in str(error.value) and "--seeds 0-9" in str(error.value)


def test_few_common_seeds_are_compared_but_not_tested(
    own: Callable[..., Path], references: References
) -> None:
    placed = place([own("Poor", POOR, seeds=(7, 8, 9, 10))], references=references)
    (standing,) = placed.standings
    assert {test.verdict for test in standing.tests.values()} == {"too few seeds"}
    assert {test.seeds for test in standing.tests.values()} == {3}
    assert "too few" in " ".join(finding.text for finding in findings(placed))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"revisions": {"protocol": 1}}, "the protocol has revision 1, the references have 2"),
        ({"data": "0" * 64}, "this graph is not the .+ of the references"),
        ({"classes_met": list(range(8))}, "with seeds 0-9, classes arrive in another order"),
        ({"oracle": True}, "it is an oracle"),
    ],
)
def test_other_data_is_refused(
    own: Callable[..., Path], references: References, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        place([changed(own("Poor", POOR), tmp_path, **changes)], references=references)


def test_a_graph_without_references_is_told_the_cheapest_methods(tmp_path: Path) -> None:
    graph = "synthetic:nodes=200,edges=800,features=30,classes=10"
    hagmeta.run("sgc-ncm", graph, seeds=3, **TASK).save(tmp_path)
    with pytest.raises(UserError, match="no references of the kind 'defaults' have this graph") as error:
        place([tmp_path])
    five = cheapest(read_references().of("defaults"))
    assert len(five) == 5 and not {"joint", "frozen"} & set(five)
    assert f"--methods {','.join(five)} --dataset {graph} --seeds 0-2" in str(error.value)
    assert "--set k_shot=3" in str(error.value)


def test_a_graph_is_known_by_its_content(
    own: Callable[..., Path], references: References, tmp_path: Path
) -> None:
    study = changed(own("Poor", POOR), tmp_path, {"dataset": "renamed@0123456789ab"})
    (standing,) = place([study], references=references).standings
    assert standing.dataset == GRAPH and standing.rank == 4


def test_what_can_be_compared_is_compared(
    own: Callable[..., Path], references: References, tmp_path: Path
) -> None:
    """One study has another task. The page compares the other one and says what is left out."""
    other = changed(own("Poor", POOR), tmp_path, {"k_shot": 2})
    placed = place([own("Poor", POOR), other], references=references)
    assert [each.label for each in placed.standings] == ["Poor"]
    assert ["k_shot is 2" in each.words for each in placed.refusals] == [True]


def test_the_page(poor: Placed, own: Callable[..., Path], tmp_path: Path, patched: None) -> None:
    page, placed = write_comparison([own("Poor", POOR)], tmp_path / "out", command="the command")
    text = page.read_text()
    assert (
        text.index("ranks 4 of 4")
        < text.index("It is significantly worse than all 3 others.")
        < text.index("<table")
    )
    assert "For your paper" in text and "A sign-flip test" not in text and "the command" in text
    assert (tmp_path / "out" / "table.tex").read_text().count(r"\\") == 5  # the header and four methods
    assert "Rank of Poor" in (tmp_path / "out/tables/landing-poor.md").read_text()
    told = (tmp_path / "out" / "paragraph.txt").read_text()
    assert paragraph(placed, "Poor") in told
    assert all(citation in told for citation in citations(placed, "Poor"))
    assert "[3]" in paragraph(placed, "Poor") and len(citations(placed, "Poor")) == 3


@pytest.fixture
def patched(references: References, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the small references instead of the packaged ones."""
    monkeypatch.setattr("analysis.references.place.read_references", lambda: references)


def test_the_command(
    own: Callable[..., Path], tmp_path: Path, patched: None, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["compare", str(own("Poor", POOR)), "--out", str(out)]) == 0
    assert (
        "It is significantly worse than all 3 others." in (told := capsys.readouterr().out)
        and "index.html" in told
    )
    refused, other = tmp_path / "refused", changed(own("Poor", POOR), tmp_path / "other", {"k_shot": 2})
    assert main(["compare", str(other), "--out", str(refused)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "k_shot is 2, the references have 3" in line and not refused.exists()
    assert main(["compare", str(own("Poor", POOR)), "--references", "tuned"]) == 2
    assert main(["compare", str(own("Poor", POOR)), "--margin", "0"]) == 2
    assert main(["compare", str(tmp_path / "none")]) == 2


def test_a_study_compares_itself_or_says_why_not(
    own: Callable[..., Path], tmp_path: Path, patched: None
) -> None:
    told = io.StringIO()
    study = changed(own("Poor", POOR), tmp_path / "good")
    compare_with_references(study, Console(file=told), DEFAULTS)
    assert (
        "It is significantly worse than all 3 others." in told.getvalue()
        and (study / "comparison" / "index.html").exists()
    )
    other = changed(own("Poor", POOR), tmp_path / "other", {"k_shot": 2})
    compare_with_references(other, Console(file=told), DEFAULTS)
    assert "k_shot is 2, the references have 3" in told.getvalue() and not (other / "comparison").exists()


def test_compare_in_python(own: Callable[..., Path], folder: Path, patched: None) -> None:
    own("Poor", POOR)
    result = hagmeta.run(f"{folder / 'poor.py'}:Poor", GRAPH, seeds=6, **TASK)
    found = hagmeta.compare(result, references=True)
    assert "Poor ranks 4 of 4" in found.title
    assert {pair.other for pair in found.pairs} == set(METHODS_BY_TITLE)
    assert {pair.last.verdict for pair in found.pairs} == {"significantly worse"}
    with pytest.raises(UserError, match="there are no references of the kind 'tuned'"):
        hagmeta.compare(result, references="tuned")
    with pytest.raises(UserError, match="expected one or more"):
        hagmeta.compare(references=True)
