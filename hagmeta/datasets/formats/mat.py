"""Read the ``.mat`` layout that is common in the literature on few-shot node classification.

A graph has three files. ``PREFIX_network`` has one edge per line: two node numbers, separated by a tab.
``PREFIX_train.mat`` and ``PREFIX_test.mat`` have ``Index`` (node numbers from 0), ``Label`` (their classes)
and ``Attributes`` (one row of features per node). Nodes without neighbours are kept. A node with edges but
without a label in either file is left out with its edges, and a warning tells you.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import expanded
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.clean import one_line, require_data_file, whole_numbers

SUFFIXES = ("_network", "_train.mat", "_test.mat")


def paths(prefix: str) -> list[Path]:
    """Return the paths of the three files of a graph."""
    return [expanded(prefix + suffix) for suffix in SUFFIXES]


def load(prefix: str, name: str) -> Dataset:
    """Read the three files of the graph at ``prefix`` and call it ``name``."""
    network_path, *label_paths = paths(prefix)
    for path in (network_path, *label_paths):
        require_data_file(path, f"; mat:PREFIX reads PREFIX{', PREFIX'.join(SUFFIXES)}")
    edges = _read_network(network_path)
    parts = [_read_labels(path) for path in label_paths]
    widths = [attributes.shape[1] for _, _, attributes in parts]
    if widths[0] != widths[1]:
        raise UserError(
            f"{label_paths[1]}: 'Attributes' has {widths[1]} columns; "
            f"expected {widths[0]}, as in {label_paths[0]}."
        )
    index = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    attributes = scipy.sparse.vstack([part[2] for part in parts], format="csr")

    nodes, first_rows, inverse = np.unique(index, return_index=True, return_inverse=True)
    clash = np.flatnonzero(labels != labels[first_rows][inverse])
    if len(clash):
        raise UserError(
            f"{prefix}: node {index[clash[0]]} has two labels, {labels[first_rows][inverse][clash[0]]} "
            f"and {labels[clash[0]]}; expected one."
        )
    return make_dataset(
        name,
        edges=_renumber(edges, nodes, source=str(network_path)),
        labels=labels[first_rows],
        features=attributes[first_rows],
        source=prefix,
    )


def _renumber(edges: np.ndarray, nodes: np.ndarray, *, source: str) -> np.ndarray:
    """Renumber the labelled nodes from 0, and drop edges to other nodes."""
    if len(nodes) == 0:
        raise UserError(f"{source}: there are no labelled nodes; expected at least one.")
    position = np.minimum(np.searchsorted(nodes, edges), len(nodes) - 1)
    labelled = nodes[position] == edges
    if not labelled.all():
        unlabelled = np.unique(edges[~labelled])
        warnings.warn(
            f"{source}: {len(unlabelled)} nodes have no label (the first is node {unlabelled[0]}); "
            f"they and their edges are left out.",
            stacklevel=3,
        )
    return np.asarray(position[labelled.all(axis=1)])


def _read_network(path: Path) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # make_dataset reports an empty file more clearly
            edges = np.loadtxt(path, dtype=np.int64, comments=None, ndmin=2)
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(
            f"{path}: expected one edge per line, two node numbers separated by a tab ({one_line(error)})."
        ) from error
    if edges.size and edges.shape[1] != 2:
        raise UserError(f"{path}: lines have {edges.shape[1]} columns; expected two node numbers.")
    return whole_numbers(edges.reshape(-1, 2), source=str(path), key="edges", dimensions=2)


def _read_labels(path: Path) -> tuple[np.ndarray, np.ndarray, scipy.sparse.csr_matrix]:
    try:
        content = scipy.io.loadmat(path, variable_names=["Index", "Label", "Attributes"], spmatrix=True)
        for array in content.values():
            if scipy.sparse.issparse(array):
                array.check_format(full_check=True)  # scipy reads invalid indices, and crashes on them later
    except Exception as error:  # damaged bytes make scipy raise many kinds of errors
        raise UserError(f"{path}: not a readable .mat file ({one_line(error)}).") from error
    for key in ("Index", "Label", "Attributes"):
        if key not in content:
            raise UserError(f"{path}: {key!r} is missing; expected Index, Label and Attributes.")
    index, labels = (
        whole_numbers(_flat(content[key]), source=str(path), key=key, dimensions=1)
        for key in ("Index", "Label")
    )
    attributes = content["Attributes"]
    if attributes.dtype.kind not in "biuf" or attributes.ndim != 2:
        raise UserError(
            f"{path}: 'Attributes' has type {attributes.dtype}; expected a matrix of real numbers."
        )
    if not len(index) == len(labels) == attributes.shape[0]:
        raise UserError(
            f"{path}: 'Index' has {len(index)} entries, 'Label' {len(labels)} and 'Attributes' "
            f"{attributes.shape[0]} rows; expected equal lengths."
        )
    return index, labels, scipy.sparse.csr_matrix(attributes)


def _flat(array: Any) -> np.ndarray:
    """Return a one-dimensional array. Matlab stores vectors as matrices with one row or column."""
    dense = array.toarray() if scipy.sparse.issparse(array) else array
    return np.asarray(dense).ravel()
