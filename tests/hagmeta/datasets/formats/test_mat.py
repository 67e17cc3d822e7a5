from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, fingerprint, load

SHARED = Path(__file__).resolve().parents[4].parent / "shared"
WriteMat = Callable[[Path], str]


def load_mat(prefix: str) -> Dataset:
    return load(f"mat:{prefix}", root=Path("unused"))


def test_amazon_clothing_20_is_taken_as_it_is() -> None:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent")
    dataset = load_mat(str(SHARED / "data/amazon_clothing_20/Amazon_clothing_20"))
    assert (dataset.num_nodes, len(dataset.edges), dataset.num_features) == (9_360, 29_077, 9_034)
    # Labels have gaps in the source; names keep them.
    assert dataset.num_classes == 20
    assert dataset.class_names[:3] == ("2", "9", "11") and dataset.class_names[-1] == "65"
    # Nodes without neighbours are nodes.
    assert dataset.num_nodes - len(np.unique(dataset.edges)) == 802
    assert np.bincount(dataset.labels).min() == 104
    assert dataset.features.sum() == pytest.approx(390_677)


def test_both_files_are_joined_by_node(graph: Dataset, write_mat: WriteMat, tmp_path: Path) -> None:
    dataset = load_mat(write_mat(tmp_path))
    assert fingerprint(dataset) == fingerprint(graph)
    assert dataset.class_names == ("10", "11", "12", "13", "14")


def test_unlabelled_nodes_are_left_out_with_a_warning(write_mat: WriteMat, tmp_path: Path) -> None:
    prefix = write_mat(tmp_path)
    before = load_mat(prefix)
    with Path(f"{prefix}_network").open("a") as network:
        network.write("3\t75\n75\t80\n")
    with pytest.warns(UserWarning, match="2 nodes have no label .the first is node 75"):
        assert fingerprint(load_mat(prefix)) == fingerprint(before)


def test_missing_file_is_named(write_mat: WriteMat, tmp_path: Path) -> None:
    prefix = write_mat(tmp_path)
    Path(f"{prefix}_test.mat").unlink()
    assert_one_line(prefix, f"{prefix}_test.mat: no such file")


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ("", "'edges' has no edge between"),
        ("0\t1\n2\n", "two node numbers separated by a tab"),
        ("0\t1\t2\n", "lines have 3 columns"),
        ("0\tone\n", "could not convert string 'one'"),
        ("0\t1.5\n", "could not convert string '1.5'"),
        ("0\t-1\n", "'edges' holds -1 in row 0"),
        ("0\t99999999999999999999\n", "two node numbers"),
        ("\x00\xff\x80", "two node numbers"),
    ],
)
def test_wrong_network_is_said_in_one_line(
    write_mat: WriteMat, tmp_path: Path, network: str, says: str
) -> None:
    prefix = write_mat(tmp_path)
    Path(f"{prefix}_network").write_bytes(network.encode("latin-1"))
    assert_one_line(prefix, says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"Label": None}, "'Label' is missing; expected Index, Label and Attributes"),
        ({"Label": np.zeros((3, 1))}, "'Index' has 30 entries, 'Label' 3"),
        ({"Label": np.full((30, 1), 0.5)}, "'Label' holds 0.5 in row 0"),
        ({"Label": np.full((30, 1), -1)}, "'Label' holds -1 in row 0"),
        ({"Index": np.zeros((1, 30))}, "node 0 has two labels"),
        ({"Attributes": np.ones((29, 20))}, "'Attributes' 29 rows"),
        ({"Attributes": np.ones((30, 21))}, "'Attributes' has 21 columns; expected 20"),
        ({"Attributes": np.full((30, 20), np.nan)}, "'features' holds nan in row 1"),
        ({"Attributes": "words"}, "'Attributes' has type <U5"),
    ],
)
def test_wrong_labels_are_said_in_one_line(
    write_mat: WriteMat, tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    prefix = write_mat(tmp_path)
    content = scipy.io.loadmat(f"{prefix}_test.mat", spmatrix=True) | changes
    content = {key: value for key, value in content.items() if value is not None and not key.startswith("__")}
    scipy.io.savemat(f"{prefix}_test.mat", content)
    assert_one_line(prefix, says)


def test_sparse_matrix_beyond_its_shape_is_said_in_one_line(write_mat: WriteMat, tmp_path: Path) -> None:
    # scipy reads this without a word and crashes the process when the matrix is used.
    prefix = write_mat(tmp_path)
    content = scipy.io.loadmat(f"{prefix}_test.mat", spmatrix=True)
    content["Attributes"].indices[-1] = 2_000_000_000
    scipy.io.savemat(f"{prefix}_test.mat", {key: content[key] for key in ("Index", "Label", "Attributes")})
    assert_one_line(prefix, "_test.mat: not a readable .mat file")


def assert_one_line(prefix: str, says: str) -> None:
    with pytest.raises(UserError) as error:
        load_mat(prefix)
    assert str(error.value).startswith(prefix)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_truncated_or_flipped_mat_never_gives_another_graph(
    data: st.DataObject, write_mat: WriteMat, tmp_path: Path
) -> None:
    prefix = write_mat(tmp_path)
    whole = fingerprint(load_mat(prefix))
    path = Path(f"{prefix}_train.mat")
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans(), label="truncate"):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        assert fingerprint(load_mat(prefix)) == whole  # a flip in the header's free text
    except UserError as error:
        assert str(error).startswith(prefix) and "\n" not in str(error)
