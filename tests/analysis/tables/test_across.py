"""What holds on all datasets is told apart from what holds on some."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.tables.across import across_tables, compared_effects
from tests.analysis.conftest import Write, sentences

SEEDS = range(10)
LAST = {
    "debian": {"hag-meta": 0.5, "proto-gcn": 0.5, "gpn": 0.6, "cec": 0.4, "icarl": 0.45, "joint": 0.8},
    "wordnet": {"hag-meta": 0.5, "proto-gcn": 0.5, "gpn": 0.7, "cec": 0.3, "icarl": 0.55, "joint": 0.8},
}


def curves(last: float, noise: Sequence[int] = (0,)) -> dict[int, list[float]]:
    return {seed: [0.9, 0.8, last + seed / 1000 + noise[seed % len(noise)] / 1000] for seed in SEEDS}


@pytest.fixture(scope="module")
def compared(write_once: Write) -> Results:
    for dataset, methods in LAST.items():
        for method, last in methods.items():
            noise = (1, -1) if method == "proto-gcn" else (0,)
            folder = write_once(curves(last, noise), method=method, dataset=dataset)
    return read([folder])


def test_methods_with_their_ranks_and_where_each_is_ahead(compared: Results) -> None:
    (table,) = across_tables(Analysis(compared))
    assert table.columns[1:] == ["debian (rank)", "wordnet (rank)", "mean rank", "compared with HAG-Meta"]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert [text.split()[-1] for text in rows["GPN"][:2]] == ["(1)", "(1)"]
    assert rows["GPN"][-1] == "significantly better on all"
    assert [text.split()[-1] for text in rows["iCaRL"][:2]] == ["(4)", "(2)"]
    assert rows["iCaRL"][2:] == ["3.0", "significantly better on wordnet; significantly worse on debian"]
    assert rows["CEC"][-1] == "significantly worse on all"
    assert rows["Proto-GCN"][-1] == "equivalent on all"
    assert (
        "(" not in "".join(rows["Joint (oracle)"])
        and rows["Joint (oracle)"][-1] == "significantly better on all"
    )  # no rank


def test_effects_on_every_dataset(write: Write) -> None:
    for dataset, gain in (("debian", 0.05), ("wordnet", -0.05)):
        for nla in (False, True):
            for tla in (False, True):
                last = 0.5 + gain * nla + 0.1 * tla
                folder = write(curves(last, (1, -1)), dataset=dataset, nla=nla, tla=tla)
    results = read([folder])
    ((effects),) = compared_effects(Analysis(results), "last").values()
    assert {each.name: each.verdict for each in effects} == {
        "NLA": "significantly better on debian; significantly worse on wordnet",
        "TLA": "significantly better on all",
    }
    words = [text for text in sentences(results) if text.startswith("On debian and wordnet")]
    assert (
        words[0] == "On debian and wordnet, effects at the last session: TLA is significantly better on all. "
        "NLA is conclusive on some datasets only."
    )


def test_one_dataset_or_several_settings_of_one_are_not_compared(compared: Results, write: Write) -> None:
    assert not Analysis(compared.where({"dataset": ["debian"]})).by_dataset
    for method in ("hag-meta", "cec"):
        folder = write(curves(0.5), method=method, dataset="wordnet", k_shot=3)
    assert not Analysis(read([*compared.folders, folder])).by_dataset


def test_released_runs_take_no_part(compared: Results, write: Write) -> None:
    for method in ("hag-meta", "cec"):
        folder = write(curves(0.5), method=method, dataset="debian", protocol="released")
    assert set(Analysis(read([*compared.folders, folder])).by_dataset) == {"debian", "wordnet"}
