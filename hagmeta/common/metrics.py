"""Declarations of metrics. Records, their schema and the tables of a report use them.

Built-in metrics are declared in `BUILT_IN` and computed in `hagmeta.protocol.metrics`. Additional metrics
declare themselves, and records store their declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class MetricDeclaration:
    """How to read one metric of a record."""

    name: str  # key in records
    title: str  # name in tables
    by_session: bool  # True: one value per session; False: one value per run
    higher_is_better: bool = True
    shown: bool = False  # whether tables of metrics have a column for it
    score: bool = False  # whether it can be the `--metric` of a report: by session, from 0 to 1


BUILT_IN = (  # in the order of columns
    MetricDeclaration("accuracy", "accuracy", by_session=True, shown=True, score=True),
    MetricDeclaration("macro_accuracy", "macro accuracy", by_session=True, shown=True, score=True),
    MetricDeclaration("macro_f1", "macro-F1", by_session=True, shown=True, score=True),
    MetricDeclaration("base_accuracy", "base", by_session=True, shown=True, score=True),
    MetricDeclaration("novel_accuracy", "novel", by_session=True, shown=True, score=True),
    MetricDeclaration("new_accuracy", "new", by_session=True, score=True),
    MetricDeclaration("harmonic", "harmonic", by_session=True, shown=True, score=True),
    MetricDeclaration("macro_base_accuracy", "macro base", by_session=True, score=True),
    MetricDeclaration("macro_novel_accuracy", "macro novel", by_session=True, score=True),
    MetricDeclaration("macro_harmonic", "macro harmonic", by_session=True, score=True),
    MetricDeclaration("average_accuracy", "average", by_session=False),
    MetricDeclaration("forgetting", "forgetting", by_session=False, higher_is_better=False, shown=True),
    MetricDeclaration("backward_transfer", "BWT", by_session=False, shown=True),
    MetricDeclaration("pd", "PD", by_session=False, higher_is_better=False),
    MetricDeclaration("rpd", "RPD", by_session=False, higher_is_better=False),
    # The parts of other metrics: rows by session, and the classes of their columns.
    MetricDeclaration("matrix", "accuracy by task", by_session=True),
    MetricDeclaration("class_accuracy", "accuracy by class", by_session=True),
    MetricDeclaration("classes_met", "classes", by_session=False),
)
# Only some records have these: of graphs that grow, and diagnostics of methods.
DIAGNOSTICS = (
    MetricDeclaration("macro_old_node_accuracy", "macro old nodes", by_session=True),
    MetricDeclaration("macro_new_node_accuracy", "macro new nodes", by_session=True),
    MetricDeclaration("calibration_error", "calibration error", True, higher_is_better=False, shown=True),
    MetricDeclaration(
        "tempered_calibration_error",
        "calibration error, tempered",
        by_session=True,
        higher_is_better=False,
        shown=True,
    ),
    MetricDeclaration("chosen_shrinkage", "chosen shrinkage", by_session=True),
    MetricDeclaration("nla_entropy", "NLA's entropy", by_session=True),
    MetricDeclaration("tla_base_share", "TLA's base share", by_session=True),
    MetricDeclaration("tla_equal_share", "equal share", by_session=True),
)


def declaration(name: str) -> MetricDeclaration:
    """Return the declaration of a built-in metric."""
    return next(each for each in BUILT_IN if each.name == name)


def to_record(declared: MetricDeclaration, source: str) -> dict[str, Any]:
    """Return the declaration of an additional metric for a record; ``source`` identifies its code."""
    values = asdict(declared)
    return {key: values[key] for key in ("title", "by_session", "higher_is_better", "shown")} | {
        "source": source
    }


def from_record(name: str, said: Mapping[str, Any]) -> MetricDeclaration:
    """Return the declaration of an additional metric that a record stores."""
    return MetricDeclaration(
        name, said["title"], said["by_session"], said["higher_is_better"], shown=said["shown"]
    )
