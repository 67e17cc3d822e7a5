"""ogbn-arxiv: papers in computer science and their citations, by arXiv category.

This module reads the raw files from the zip file of the Open Graph Benchmark, without its package. No hashes
are published, so shapes are checked against each other and against the published counts.

**STATS:**

.. list-table::
    :header-rows: 1

    * - #nodes
      - #edges
      - #features
      - #classes
    * - 169,343
      - 1,157,799
      - 128
      - 40

The file has 1,166,243 citations; some pairs of papers cite each other. Few-shot studies divide the classes
20/10/10 into train, validation and test (TLP, "Transductive Linear Probing", Tan et al. 2022). Here, these
are base, novel-train and novel-test.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.clean import one_line

ARCHIVE = "arxiv.zip"
SHAPES = {"node-feat": (169_343, 128), "node-label": (169_343, 1), "edge": (1_166_243, 2)}
CLASSES = 40


def read(folder: Path) -> Dataset:
    """Read the zip file in ``folder``."""
    path = folder / ARCHIVE
    try:
        with zipfile.ZipFile(path) as archive:
            features = _table(archive, "node-feat", np.float32)
            labels = _table(archive, "node-label", np.int64)
            edges = _table(archive, "edge", np.int64)
            categories = _categories(archive)
    except UserError:
        raise
    except Exception as error:  # damaged bytes make zipfile, gzip and numpy raise many kinds of errors
        raise UserError(f"{path}: cannot be read ({one_line(error)}). Delete it and run again.") from error
    return make_dataset("ogbn-arxiv", edges, labels.ravel(), features, categories, source=str(path))


def _table(archive: zipfile.ZipFile, name: str, dtype: type) -> np.ndarray:
    with archive.open(f"arxiv/raw/{name}.csv.gz") as packed, gzip.open(packed) as text:
        table: np.ndarray = np.loadtxt(text, dtype=dtype, delimiter=",", ndmin=2)
    if table.shape != SHAPES[name]:
        raise UserError(
            f"{archive.filename}: {name}.csv.gz has shape {table.shape}; expected {SHAPES[name]}."
        )
    return table


def _categories(archive: zipfile.ZipFile) -> list[str]:
    """Return class names such as "arxiv cs na". The misspelt file name is that of the archive."""
    with archive.open("arxiv/mapping/labelidx2arxivcategeory.csv.gz") as packed, gzip.open(packed) as text:
        rows = list(csv.reader(io.TextIOWrapper(text, encoding="utf-8")))[1:]
    names = {int(number): name for number, name in rows}
    if sorted(names) != list(range(CLASSES)):
        raise UserError(f"{archive.filename}: found {len(names)} class names; expected {CLASSES}.")
    return [names[number] for number in range(CLASSES)]
