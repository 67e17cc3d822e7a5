from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hagmeta.common.errors import UserError
from hagmeta.datasets import UNLABELLED, Dataset, fingerprint, load
from hagmeta.datasets.formats import npz


def load_npz(path: Path) -> Dataset:
    return load(f"npz:{path}", root=path.parent)


@pytest.mark.parametrize("dense", [False, True])
def test_round_trip_keeps_everything(graph: Dataset, tmp_path: Path, dense: bool) -> None:
    original = replace(graph, features=graph.features.toarray() - 0.5) if dense else graph
    npz.save(tmp_path / "g.npz", original)
    back = load_npz(tmp_path / "g.npz")
    assert fingerprint(back) == fingerprint(original)
    assert back.class_names == original.class_names
    assert isinstance(back.features, np.ndarray) == dense
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]  # no temporary file is left


def test_round_trip_keeps_columns_that_are_used_unchanged(tmp_path: Path) -> None:
    edges, labels = [[0, 1], [1, 2]], [0, 1, 1]
    original = Dataset.from_arrays(edges, labels, np.eye(3), name="g", counts=False)
    npz.save(tmp_path / "g.npz", original)
    back = load_npz(tmp_path / "g.npz")
    assert isinstance(back.features, np.ndarray) and back.kind == "unchanged"
    assert fingerprint(back) == fingerprint(original)


def test_round_trip_keeps_nodes_without_a_label(graph: Dataset, tmp_path: Path) -> None:
    labels = graph.labels.copy()
    labels[::7] = UNLABELLED
    original = replace(graph, labels=labels)
    npz.save(tmp_path / "g.npz", original)
    assert fingerprint(load_npz(tmp_path / "g.npz")) == fingerprint(original)


@pytest.mark.parametrize("ids", [lambda count: range(count, 0, -1), lambda count: map(str, range(count))])
def test_round_trip_keeps_names(graph: Dataset, tmp_path: Path, ids: Any) -> None:
    words = tuple(f"w{column}" for column in range(graph.num_features))
    original = replace(graph, node_ids=tuple(ids(graph.num_nodes)), feature_names=words)
    npz.save(tmp_path / "g.npz", original)
    back = load_npz(tmp_path / "g.npz")
    assert (back.node_ids, back.feature_names) == (original.node_ids, words)
    assert fingerprint(back) == fingerprint(graph)


def test_save_writes_the_same_bytes_twice(graph: Dataset, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        npz.save(tmp_path / name, graph)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_values_are_ones_where_not_given(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **VALID)
    assert load_npz(tmp_path / "g.npz").features.toarray().tolist() == [[1, 0], [0, 0], [1, 1]]


VALID: dict[str, Any] = {
    "edges": [[0, 1], [1, 2]],
    "labels": [0, 1, 0],
    "feature_indptr": [0, 1, 1, 3],
    "feature_indices": [0, 0, 1],
    "num_features": 2,
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"edges": None}, "the array 'edges' is missing; found: feature_indices"),
        ({"labels": None}, "the array 'labels' is missing"),
        ({"feature_indptr": None}, "the array 'feature_indptr' is missing"),
        ({"num_features": None}, "the array 'num_features' is missing"),
        ({"num_features": [2]}, "'num_features' has shape (1,)"),
        (
            {"num_features": 1},
            "'feature_indices' holds 1 at 2 (row 2, column 1); expected 0 to 0, since 'num_features' is 1",
        ),
        ({"feature_indices": [0, -1, 1]}, "'feature_indices' holds -1 in row 1"),
        ({"feature_indptr": [0, 1, 3]}, "'feature_indptr' has 3 entries"),
        ({"feature_indptr": [0, 2, 1, 3]}, "'feature_indptr' falls from 2 to 1 in row 2"),
        ({"feature_indptr": [1, 1, 1, 3]}, "'feature_indptr' holds 1 in row 0"),
        ({"feature_indptr": [0, 1, 1, 4]}, "'feature_indptr' holds 4 in row 3; expected 4 entries"),
        ({"feature_indptr": []}, "'feature_indptr' has 0 entries"),
        ({"counts": True}, "'counts' holds True; expected false, or no such array"),
        ({"feature_values": [1.0]}, "'feature_values' has shape (1,); expected (3,)"),
        ({"class_names": [1, 2]}, "'class_names' has type int64"),
        ({"node_ids": ["a", "b"]}, "'node_ids' has type <U1 and shape (2,); expected 3 names"),
        ({"node_ids": ["a", "b", "a"]}, "'node_ids' holds 'a' twice; expected unique names"),
        ({"feature_names": [1, 2]}, "'feature_names' has type int64 and shape (2,); expected 2 names"),
        ({"labels": [0, 1]}, "'feature_indptr' has 4 entries; expected 3 entries (nodes + 1)"),
        ({"labels": np.array([0, "a", None], dtype=object)}, "not a readable .npz file"),
    ],
)
def test_wrong_content_is_said_in_one_line(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    arrays = {key: value for key, value in {**VALID, **changes}.items() if value is not None}
    np.savez(tmp_path / "g.npz", **arrays)
    assert_one_line(tmp_path / "g.npz", says)


def assert_one_line(path: Path, says: str) -> None:
    with pytest.raises(UserError) as error:
        load_npz(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04 and then nothing", b"\x93NUMPY\x01\x00"])
def test_garbage_is_said_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "g.npz").write_bytes(content)
    assert_one_line(tmp_path / "g.npz", "not a readable .npz file")


def test_single_array_is_said_in_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.arange(3))
    assert_one_line(tmp_path / "g.npy", "a single array")


def test_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    assert_one_line(tmp_path / "g.npz", "no such file")


def test_what_is_no_file_is_said_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")  # to open it would wait for ever
    assert_one_line(tmp_path / "pipe.npz", "cannot be read (it is not a regular file)")
    assert_one_line(tmp_path, "cannot be read (it is a folder)")
    assert_one_line(tmp_path / "a\0b.npz", "no such file")


def test_a_table_of_contents_that_hides_an_array_is_damage(tmp_path: Path) -> None:
    # The length of an entry's comment, made longer, swallows the entry that follows: here the values.
    np.savez_compressed(tmp_path / "g.npz", **VALID, feature_values=[1.0, 2.0, 3.0])
    content = bytearray((tmp_path / "g.npz").read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"feature_values"))
    before = content.rindex(b"PK\x01\x02", 0, entry)
    content[before + 33] ^= 1  # the high byte of the comment's length
    (tmp_path / "g.npz").write_bytes(content)
    assert_one_line(tmp_path / "g.npz", "table of contents is damaged")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_truncated_or_flipped_file_never_gives_another_graph(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    np.savez_compressed(folder / "g.npz", **VALID, feature_values=[1.0, 2.0, 3.0])
    whole = fingerprint(load_npz(folder / "g.npz"))
    content = bytearray((folder / "g.npz").read_bytes())
    if data.draw(st.booleans(), label="truncate"):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "g.npz").write_bytes(content)
    try:
        assert fingerprint(load_npz(folder / "g.npz")) == whole  # a flip where nothing is stored
    except UserError as error:
        assert "\n" not in str(error)
