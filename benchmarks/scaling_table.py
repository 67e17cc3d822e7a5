"""The tables of benchmarks/scaling.py: a row a measurement."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from hagmeta.common.files.files import written_whole

Row = dict[str, Any]


def save(path: Path, rows: list[Row]) -> None:
    """Write all rows anew."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial, partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def peak(row: Row) -> float:
    """On a GPU, of its memory; elsewhere the process's, Python and torch included."""
    return float(row["peak_gpu_bytes"] or row["peak_memory_bytes"])
