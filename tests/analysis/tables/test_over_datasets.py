"""What is said over datasets, and when nothing is; what a run costs; that all numbers are of one place."""

from __future__ import annotations

import html
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from analysis.__main__ import main
from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.figures import over_datasets as figures
from analysis.statistics.estimates import estimate
from analysis.statistics.over_datasets import OverDatasets
from analysis.tables.across import across_tables
from analysis.tables.cells import estimate_cell
from analysis.tables.cost import PRETRAINING, charged, front
from analysis.tables.over_datasets import rating_table, why_not
from analysis.tables.panels import make_tables
from analysis.words import points
from hagmeta.config.settings import PretrainSettings
from hagmeta.layers.encoders.registry import EncoderSettings
from tests.analysis.conftest import Write, sentences

METHODS = ("hag-meta", "gpn", "icarl", "cec")
DATASETS = ("debian", "metamath", "wordnet")


def curves(last: float, spread: float = 0.004) -> dict[int, list[float]]:
    random = np.random.default_rng(int(1e6 * last))
    return {seed: [0.9, 0.8, last + seed / 100 + spread * random.normal()] for seed in range(8)}


@pytest.fixture(scope="module")
def compared(write_once: Write) -> Results:
    for number, dataset in enumerate(DATASETS):
        for place, method in enumerate(METHODS):
            folder = write_once(curves(0.5 + 0.03 * place + 0.001 * number), method=method, dataset=dataset)
        write_once(curves(0.9), method="joint", dataset=dataset)
    return read([folder])


def test_ranks_wins_and_ratings_by_hand() -> None:
    # A is above B with all seeds of both datasets, and C between them on one, below both on the other.
    one = pd.DataFrame({"A": [0.9, 0.8], "B": [0.5, 0.4], "C": [0.7, 0.6]})
    other = pd.DataFrame({"A": [0.9, 0.8], "B": [0.5, 0.4], "C": [0.3, 0.4]})
    found = OverDatasets({"one": one, "other": other}, "accuracy", pd.DataFrame())
    assert found.ranks.mean().to_dict() == {"A": 1.0, "B": 2.5, "C": 2.5}
    assert found.win_rates.to_dict() == {"A": 1.0, "B": 0.25, "C": 0.25}
    # C against B: both seeds, then neither and one level: (1 + 0.25) / 2.
    assert found.improvement.loc["C", "B"] == pytest.approx(0.625)
    ratings = found.ratings
    assert ratings["rating"].sum() == pytest.approx(0, abs=1e-6)
    assert ratings["rating"].idxmax() == "A" and ratings["low"].isna().all()  # two are too few for intervals
    # Bradley and Terry's model says how often one is above another: the sum over all is what was seen.
    strength = 10 ** (ratings["rating"] / 400)
    said = strength["A"] / (strength["A"] + strength["B"]) + strength["A"] / (strength["A"] + strength["C"])
    prior = 0.5 / 4
    assert said * (1 + 2 * prior) == pytest.approx(2 + 2 * prior, rel=1e-6)
    k, n = 3, 2
    studentized = scipy.stats.studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2)
    assert studentized == pytest.approx(2.343, abs=0.001)  # Demšar's Table 5
    assert found.critical_difference == pytest.approx(studentized * np.sqrt(k * (k + 1) / (6 * n)))
    profile = found.profile(np.array([0.0, 20.0, 100.0]))
    assert profile["A"].tolist() == [1, 1, 1] and profile["C"].tolist() == [0, 0.5, 1]


def test_ratings_are_the_maximum_of_the_likelihood_in_strict_order() -> None:
    # Fifteen methods in the same order on four datasets: by 100 steps of minorisation the first had 1,256.
    names = [f"m{place:02}" for place in range(15)]
    table = pd.DataFrame({name: [0.9 - 0.01 * place] * 10 for place, name in enumerate(names)})
    found = OverDatasets({str(number): table for number in range(4)}, "accuracy", pd.DataFrame())
    ratings, prior = found.ratings["rating"].to_numpy() * np.log(10) / 400, 0.5 / 40
    above = np.triu(np.ones((15, 15)), 1) + prior
    expected = (1 + 2 * prior) / (1 + np.exp(ratings[None, :] - ratings[:, None]))
    off = ~np.eye(15, dtype=bool)
    gradient = np.where(off, above - expected, 0).sum(axis=1)
    assert np.abs(gradient).max() < 1e-5
    assert found.ratings["rating"].iloc[0] > 1400
    assert found.constant.tolist() == [1, *[0] * 13, -1]


def test_from_six_datasets_on_ratings_have_intervals_but_constant_ones() -> None:
    random = np.random.default_rng(0)
    scores = {}
    for number in range(6):
        of_graph = np.array([0.6, 0.5, 0.49, 0.3]) + np.array([0, 0.03, 0.03, 0]) * random.normal(size=4)
        scores[str(number)] = pd.DataFrame(
            of_graph + 0.01 * random.normal(size=(10, 4)), columns=list("abcd")
        )
    ratings = OverDatasets(scores, "accuracy", pd.DataFrame()).ratings
    assert ratings["low"].isna().tolist() == [True, False, False, True]
    assert (ratings.loc[["b", "c"], "low"] < ratings.loc[["b", "c"], "rating"] - 20).all()


def test_methods_that_are_level_everywhere_are_not_told_apart() -> None:
    level = pd.DataFrame({name: [0.5, 0.6] for name in "abc"})
    found = OverDatasets({str(number): level for number in range(3)}, "accuracy", pd.DataFrame())
    assert found.friedman == 1.0 and found.apart == [] and found.ratings["rating"].abs().max() < 1e-6


def test_missing_seeds_make_no_winner_anywhere_on_the_page(write: Write) -> None:
    # CEC is the worst with every seed; on the six easy ones that it has its mean is the highest.
    for dataset in ("debian", "metamath", "wordnet"):
        for place, method in enumerate(("hag-meta", "gpn", "icarl")):
            seeds = {seed: [0.9, 0.8, 0.5 + 0.03 * seed + 0.01 * place + 0.001 * (seed % (place + 2))]
                     for seed in range(10)}  # fmt: skip
            folder = write(seeds, method=method, dataset=dataset)
        easy = {seed: [0.9, 0.8, 0.48 + 0.03 * seed + 0.001 * (seed % 5)] for seed in range(4, 10)}
        write(easy, method="cec", dataset=dataset)
    results = read([folder])
    assert results.runs.groupby("label")["last"].mean().idxmax() == "CEC"
    found = Analysis(results).over_datasets
    assert found is not None and found.ranks["CEC"].tolist() == [4, 4, 4]
    (methods,) = (table for table in across_tables(Analysis(results)) if table.name == "across-methods")
    (row,) = (row for row in methods.rows if row[0].text == "CEC")
    assert (
        row[-2].text == "4.0"
        and row[-1].text == "significantly worse on all"
        and not any(cell.best for cell in row)
    )
    for table in make_tables(Analysis(results)):
        if table.name.startswith("summary"):
            assert table.rows[-1][0].text == "CEC" and table.rows[-1][7].text == "4"
            assert [cell.text for row in table.rows for cell in row if cell.best] == [table.rows[0][4].text]
    text = " ".join(sentences(results))
    assert "CEC has the highest" not in text and ": ." not in text


def test_over_three_datasets(compared: Results) -> None:
    found = Analysis(compared).over_datasets
    assert found is not None and found.methods == ["HAG-Meta", "CEC", "GPN", "iCaRL"]
    table = rating_table(Analysis(compared))
    assert table is not None and [row[0].text for row in table.rows] == ["CEC", "iCaRL", "GPN", "HAG-Meta"]
    assert "There are no intervals: they need 6 datasets, and there are 3." in table.caption
    assert [row[2].text for row in table.rows] == [
        "best",
        "inconclusive",
        "inconclusive",
        "significantly worse",
    ]
    assert "or more" in table.rows[0][4].text and "or less" in table.rows[-1][4].text
    assert sentences(compared)[0].startswith(
        "Over 3 datasets, CEC has the best mean rank: 1.0 of 4. Nemenyi's test finds HAG-Meta "
        "significantly worse than CEC. Friedman's test of equal mean ranks gives p = "
    )
    assert f"critical difference {found.critical_difference:.1f}" in table.caption
    drawings = list(figures.draw(Analysis(compared)))
    assert [each.name.split("-")[-1] for each in drawings] == ["ranks", "improvement", "ratings", "profiles"]


def test_with_two_datasets_it_says_why_there_is_nothing(compared: Results) -> None:
    two = compared._with(compared.runs[compared.runs["dataset"] != "debian"])
    assert (
        Analysis(two).over_datasets is None
        and rating_table(Analysis(two)) is None
        and not list(figures.draw(Analysis(two)))
    )
    assert why_not(Analysis(two)) == "no ranking: it needs 3 datasets, and there are 2"
    assert why_not(Analysis(compared)) == ""


def test_pre_training_is_charged_to_all_that_used_it(write: Write) -> None:
    first = {"pretrain": 4.0, "gpil": 1.0}
    write(curves(0.5), record={"seconds": first}, nla=False)
    write(curves(0.6), record={"seconds": {"pretrain": 0.01, "gpil": 1.0}})
    folder = write(curves(0.6), record={"seconds": {"pretrain": 0.02, "gpil": 1.0}}, hidden=64)
    runs = charged(read([folder]).runs)
    by_hidden = runs.groupby(["hidden", "nla"])["seconds"].mean()
    assert by_hidden[32, True] == by_hidden[32, False] == pytest.approx(5.0)
    assert by_hidden[64, True] == pytest.approx(1.02)  # an encoder of its own


def test_all_that_pre_training_depends_on_is_known_to_the_cost() -> None:
    names = {item.name for kind in (EncoderSettings, PretrainSettings) for item in fields(kind)}
    assert names <= set(PRETRAINING)


def test_the_front_is_what_nothing_beats_in_both() -> None:
    seconds = pd.Series({"a": 1.0, "b": 2.0, "c": 3.0, "d": 2.5})
    assert front(seconds, pd.Series({"a": 0.5, "b": 0.7, "c": 0.9, "d": 0.6})) == ["a", "b", "c"]


@pytest.mark.usefixtures("no_figures")
def test_every_number_on_the_page_is_of_one_object(compared: Results, tmp_path: Path) -> None:
    assert main([str(compared.folders[0]), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    text = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", "", page)))
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    told = Analysis(compared).comparisons
    known = {points(each) for kind in told.families for each in kind.comparisons.values()}
    for panel in compared.panels:
        for one in panel.labels:
            known |= {points(each) for each in told.against(panel, one).values()}
    differences = re.findall(r"[+-]\d+\.\d \[[+-]\d+\.\d, [+-]\d+\.\d\]", text)
    assert len(differences) > 10 and set(differences) <= known
    measured = ("first", "last", "average", "pd", "rpd", "forgetting", "backward_transfer")
    series = [runs[key] for _, runs in compared.runs.groupby(["dataset", "label"]) for key in measured]
    last = compared.sessions[compared.sessions["session"] == 2]
    for column in ("accuracy", "base_accuracy", "novel_accuracy", "harmonic", "macro_accuracy", "macro_f1"):
        series += [runs[column] for _, runs in last.groupby(["dataset", "label"])]
    estimates = {estimate_cell(estimate(each)).text for each in series}
    means = re.findall(r"-?\d+\.\d ± \d+\.\d", text)
    assert len(means) > 20 and set(means) <= estimates
