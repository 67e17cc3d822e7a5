"""Configurations are told apart by what was chosen, not by what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hagmeta.common.records import differences
from hagmeta.common.records.differences import sort_key
from hagmeta.common.settings.scopes import scopes_in
from hagmeta.config.run_config import RunConfig


def differing(configs: Sequence[dict[str, Any]], given: list[list[str]] | None = None) -> list[str]:
    return differences.differing(configs, scopes_in([{"scopes": RunConfig.of().scopes()}]), given)


def config(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "debian",
        "method": "hag-meta",
        "protocol": "strict",
        "classes": [8, 8, 9],
        "n_way": 3,
        "k_shot": 5,
        "sessions": 3,
        "query_shot": 5,
        "val_classes": 0,
        "hidden": 32,
        **changes,
    }


def test_settings_of_the_task_count_wherever_they_differ_and_others_within_a_method() -> None:
    other = config(method="cec", hidden=64, val_classes=2)
    assert differing([config(), other]) == ["method", "val_classes"]
    assert differing([config(), other, config(hidden=16)]) == ["method", "val_classes", "hidden"]
    assert differing([config()]) == differing([]) == []


def test_the_labels_that_may_be_read_count_between_methods_as_well() -> None:
    assert differing([config(split="drawn"), config(split="fixed", method="cec")]) == ["method", "split"]
    other = config(rehearsal="none", method="cec")
    assert differing([config(rehearsal="all"), other]) == ["method", "rehearsal"]


def test_the_classes_of_other_datasets_are_no_difference() -> None:
    assert differing([config(), config(dataset="cora", classes=[2, 2, 3])]) == ["dataset"]
    assert differing([config(), config(classes=[2, 2, 3])]) == ["classes"]


def test_what_the_task_has_decided_counts_only_where_it_was_given() -> None:
    more_labels = config(k_shot=9, query_shot=9)
    assert differing([config(), more_labels], [[], ["k_shot"]]) == ["k_shot"]
    assert differing([config(), more_labels], [[], ["k_shot", "query_shot"]]) == ["k_shot", "query_shot"]
    fewer = config(n_way=1, sessions=9)
    assert differing([config(), fewer], [[], []]) == ["n_way"]
    assert differing([config(), fewer], [["sessions"], ["sessions"]]) == ["n_way", "sessions"]
    assert differing([config(), config(sessions=2)], [[], ["sessions"]]) == ["sessions"]


def test_where_nobody_knows_what_was_given_the_task_has_decided_what_it_can() -> None:
    assert differing([config(), config(k_shot=9, query_shot=9)]) == ["k_shot"]
    assert differing([config(), config(protocol="released", query_shot=20)]) == ["protocol"]
    assert differing([config(), config(n_way=1, sessions=9)]) == ["n_way"]
    assert differing([config(), config(query_shot=9, sessions=2)]) == ["sessions", "query_shot"]


def test_a_setting_that_one_method_alone_has_is_no_difference() -> None:
    assert differing([config(), config(method="er-gnn", memory=10)]) == ["method"]


def test_numbers_stand_by_size_and_names_after_them() -> None:
    values = ["gcn", 10, np.float64(2.5), "gat", 3]
    assert [str(value) for value in sorted(values, key=sort_key)] == ["2.5", "3", "10", "gat", "gcn"]


def test_values_of_a_damaged_record_are_compared_as_well() -> None:
    nested = config(classifier=[[1, {"a": [2]}]])
    assert differing([nested, config(classifier=[[1, {"a": [2]}]])]) == []
    assert differing([nested, config(classifier=[[1, {"a": [3]}]])]) == ["classifier"]
