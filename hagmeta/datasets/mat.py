"""The ``.mat`` layout of the few-shot node classification literature, and its three public datasets.

A graph is three files: ``PREFIX_network``, an edge a line, two node numbers with a tab between; and
``PREFIX_train.mat`` and ``PREFIX_test.mat``, each with ``Index`` (node numbers from 0), ``Label`` (their
classes) and ``Attributes`` (a row of features for each). Nodes without neighbours are kept. A node that has
edges but no label in either file belongs to no class: it is left out with its edges, and a warning says so.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.common.files import expanded
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.clean import one_line, require_data_file, whole_numbers

SUFFIXES = ("_network", "_train.mat", "_test.mat")


def paths(prefix: str) -> list[Path]:
    """The three files of a graph."""
    return [expanded(prefix + suffix) for suffix in SUFFIXES]


def load(prefix: str, name: str) -> Dataset:
    """Read the three files of a graph."""
    network_path, *label_paths = paths(prefix)
    for path in (network_path, *label_paths):
        require_data_file(path, f"; mat:PREFIX reads PREFIX{', PREFIX'.join(SUFFIXES)}")
    edges = _read_network(network_path)
    parts = [_read_labels(path) for path in label_paths]
    widths = [attributes.shape[1] for _, _, attributes in parts]
    if widths[0] != widths[1]:
        raise UserError(
            f"{label_paths[1]}: 'Attributes' has {widths[1]} columns; "
            f"valid are {widths[0]}, as in {label_paths[0]}."
        )
    index = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    attributes = scipy.sparse.vstack([part[2] for part in parts], format="csr")

    nodes, first_rows, inverse = np.unique(index, return_index=True, return_inverse=True)
    clash = np.flatnonzero(labels != labels[first_rows][inverse])
    if len(clash):
        raise UserError(
            f"{prefix}: node {index[clash[0]]} is given two labels, {labels[first_rows][inverse][clash[0]]} "
            f"and {labels[clash[0]]}; valid is one."
        )
    return make_dataset(
        name,
        edges=_renumber(edges, nodes, source=str(network_path)),
        labels=labels[first_rows],
        features=attributes[first_rows],
        source=prefix,
    )


def _renumber(edges: np.ndarray, nodes: np.ndarray, *, source: str) -> np.ndarray:
    """Number the labelled nodes from 0 and leave out edges to any other."""
    if len(nodes) == 0:
        raise UserError(f"{source}: there is not one labelled node.")
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
            warnings.simplefilter("ignore", UserWarning)  # an empty file: make_dataset says it better
            edges = np.loadtxt(path, dtype=np.int64, comments=None, ndmin=2)
    except (ValueError, OverflowError, OSError) as error:
        raise UserError(
            f"{path}: valid is an edge a line, two node numbers with a tab between ({one_line(error)})."
        ) from error
    if edges.size and edges.shape[1] != 2:
        raise UserError(f"{path}: a line has {edges.shape[1]} columns; valid are two node numbers.")
    return whole_numbers(edges.reshape(-1, 2), source=str(path), key="edges", dimensions=2)


def _read_labels(path: Path) -> tuple[np.ndarray, np.ndarray, scipy.sparse.csr_matrix]:
    try:
        content = scipy.io.loadmat(path, variable_names=["Index", "Label", "Attributes"], spmatrix=True)
        for array in content.values():
            if scipy.sparse.issparse(array):
                array.check_format(full_check=True)  # scipy reads whatever is there, and crashes on it later
    except Exception as error:  # damaged bytes make scipy raise nearly anything
        raise UserError(f"{path}: this is not a readable .mat file ({one_line(error)}).") from error
    for key in ("Index", "Label", "Attributes"):
        if key not in content:
            raise UserError(f"{path}: {key!r} is missing; valid are Index, Label and Attributes.")
    index, labels = (
        whole_numbers(_flat(content[key]), source=str(path), key=key, dimensions=1)
        for key in ("Index", "Label")
    )
    attributes = content["Attributes"]
    if attributes.dtype.kind not in "biuf" or attributes.ndim != 2:
        raise UserError(
            f"{path}: 'Attributes' has type {attributes.dtype}; valid is a matrix of real numbers."
        )
    if not len(index) == len(labels) == attributes.shape[0]:
        raise UserError(
            f"{path}: 'Index' has {len(index)} entries, 'Label' {len(labels)} and 'Attributes' "
            f"{attributes.shape[0]} rows; valid is one number."
        )
    return index, labels, scipy.sparse.csr_matrix(attributes)


def _flat(array: Any) -> np.ndarray:
    """Matlab knows no vectors, only matrices of one row or one column."""
    dense = array.toarray() if scipy.sparse.issparse(array) else array
    return np.asarray(dense).ravel()
