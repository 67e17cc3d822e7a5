from __future__ import annotations

import pytest

from analysis.data.reading import read
from analysis.tables.papers import (
    COLUMNS_OF_PAPERS,
    follower_tables,
    published_tables,
    read_followers,
    read_published,
)
from tests.analysis.conftest import Write

CURVES = {0: [0.8, 0.7, 0.6], 1: [0.8, 0.7, 0.6]}


def test_printed_drops_are_first_minus_last() -> None:
    printed = read_followers()
    assert len(printed) == 14 and not printed.duplicated(["dataset", "system"]).any()
    assert (printed["first"] - printed["last"] - printed["pd"]).abs().max() < 0.011


def test_what_is_called_chance_is_one_divided_by_the_number_of_classes() -> None:
    printed = read_followers().set_index(["dataset", "system"])
    chance = printed[printed["why"].str.startswith("Chance")]
    expected = {"coauthor-cs": (5, 10, 15), "amazon-computers": (5, 7, 10)}  # classes met
    for (dataset, _), row in chance.iterrows():
        found = row[["first", "middle", "last"]].tolist()
        assert found == pytest.approx([100 / count for count in expected[dataset]], abs=0.011)
    assert len(chance) == 2


def test_the_number_called_the_papers_is_in_the_paper() -> None:
    (row,) = (row for _, row in read_followers().iterrows() if row["comparable"] == "only released")
    paper = read_published()
    same = paper[(paper["dataset"] == row["dataset"]) & (paper["method"] == row["system"])]
    by_session = same.set_index("session")["percent"]
    assert [row["first"], row["last"], row["pd"]] == [by_session[name] for name in ("0", "9", "PD")]
    assert by_session[by_session.index.str.isdigit()].mean() == pytest.approx(row["average"], abs=0.06)


def test_every_number_says_whether_and_why_it_is_comparable(write: Write) -> None:
    (table,) = follower_tables(read([write(CURVES, dataset="amazon-clothing")]))
    *printed, ours = table.rows
    assert [row[0].text for row in printed] == ["HAG-Meta", "Mecoin", "LPMC"]
    verdicts = [row[table.columns.index("comparable")].text for row in printed]
    assert verdicts == ["only released", "no", "no"]
    assert all(row[-1].text for row in printed)
    assert [cell.text for cell in ours[1:7]] == ["this study, strict", "80.0", "70.0", "60.0", "20.0", "70.0"]
    assert ours[table.columns.index("labels per new class")].text == "5"
    assert table.notes == ["Comparable with ours: HAG-Meta: only released."]
    labels = [row[table.columns.index("labels per new class")].text for row in table.rows]
    assert labels[-2] == "25"
    assert table.rows[0][2 + COLUMNS_OF_PAPERS.index("middle")].text == ""  # not printed


def test_other_settings_have_no_such_table(write: Write) -> None:
    write(CURVES, dataset="amazon-clothing", n_way=5, study="one")
    assert not list(follower_tables(read([write(CURVES, study="one")])))


@pytest.mark.parametrize(
    ("protocol", "word"), [("strict", "are not comparable"), ("released", "are comparable")]
)
def test_the_papers_numbers_are_comparable_under_released_only(
    write: Write, protocol: str, word: str
) -> None:
    (table,) = published_tables(read([write(CURVES, dataset="amazon-clothing", protocol=protocol)]))
    assert len(table.notes) == 1 and word in table.notes[0]
