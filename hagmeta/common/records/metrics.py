"""Declarations of metrics. Records, their schema and the tables of a report use them.

Built-in metrics are declared in `BUILT_IN` and computed in `hagmeta.scenarios.metrics`. Additional metrics
declare themselves, and records store their declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Value = float | None


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
        "calibration error after temperature scaling",
        by_session=True,
        higher_is_better=False,
        shown=True,
    ),
    MetricDeclaration("chosen_shrinkage", "chosen shrinkage", by_session=True),
    MetricDeclaration("nla_entropy", "NLA's entropy", by_session=True),
    MetricDeclaration("tla_base_share", "TLA's weight on the base task", by_session=True),
    MetricDeclaration("tla_equal_share", "equal share", by_session=True),
)


def declaration(name: str) -> MetricDeclaration:
    """Return the declaration of a built-in metric."""
    for each in BUILT_IN:
        if each.name == name:
            return each
    raise LookupError(f"{name} is computed but not declared; add it to BUILT_IN in {__name__}")


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


def drop(accuracy: Sequence[float]) -> float:
    """Return the performance drop (PD): accuracy at session 0 minus accuracy at the last session."""
    return accuracy[0] - accuracy[-1]


def relative_drop(accuracy: Sequence[float]) -> float | None:
    """Return PD divided by the accuracy at session 0; None if that accuracy is 0."""
    return drop(accuracy) / accuracy[0] if accuracy[0] else None


def mean(accuracy: Sequence[float]) -> float:
    """Return the mean."""
    return sum(accuracy) / len(accuracy)


def forgotten(matrix: Sequence[Sequence[float]]) -> list[float]:
    """Return the forgetting of each task except the last: its best earlier accuracy minus its final one."""
    last = len(matrix) - 1
    return [max(matrix[t][j] for t in range(j, last)) - matrix[last][j] for j in range(last)]


def transferred_back(matrix: Sequence[Sequence[float]]) -> float | None:
    """Return BWT = 1/T sum over tasks j < T of M[T][j] - M[j][j]; None if there is only one task.

    Lopez-Paz and Ranzato, 2017. Negative values mean forgetting.
    """
    last = len(matrix) - 1
    return sum(matrix[last][j] - matrix[j][j] for j in range(last)) / last if last else None


def of_base(matrix: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the accuracy on the classes known at session 0."""
    return [row[0] for row in matrix]


def of_new(matrix: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the accuracy after each session on the classes that arrived in it."""
    return [None, *(row[-1] for row in matrix[1:])]


def harmonic_means(base: Sequence[Value], novel: Sequence[Value]) -> list[Value]:
    """Return the harmonic mean of base and novel accuracy by session."""
    return [harmonic_mean(*pair) for pair in zip(base, novel, strict=True)]


def harmonic_mean(base: Value, novel: Value) -> Value:
    """Return the harmonic mean of two accuracies; 0 if either is 0."""
    if base is None or novel is None:
        return None
    return 2 * base * novel / (base + novel) if base + novel else 0.0


def macro(by_class: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the mean accuracy over the classes of each session, without those that have none."""
    return [
        mean(known) if (known := [each for each in row if each is not None]) else None for row in by_class
    ]


def macro_base(by_class: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the mean accuracy over the classes known at session 0."""
    return macro([row[: len(by_class[0])] for row in by_class])


def macro_novel(by_class: Sequence[Sequence[Value]]) -> list[Value]:
    """Return the mean accuracy over the classes that arrived later."""
    return macro([row[len(by_class[0]) :] for row in by_class])


# Values of a record that follow from others: the keys of these, and how.
DERIVED: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "pd": (("accuracy",), drop),
    "rpd": (("accuracy",), relative_drop),
    "average_accuracy": (("accuracy",), mean),
    "base_accuracy": (("matrix",), of_base),
    "new_accuracy": (("matrix",), of_new),
    "harmonic": (("base_accuracy", "novel_accuracy"), harmonic_means),
    "forgetting": (("matrix",), forgotten),
    "backward_transfer": (("matrix",), transferred_back),
    "macro_accuracy": (("class_accuracy",), macro),  # up to the rounding of `class_accuracy`
    "macro_base_accuracy": (("class_accuracy",), macro_base),
    "macro_novel_accuracy": (("class_accuracy",), macro_novel),
    "macro_harmonic": (("macro_base_accuracy", "macro_novel_accuracy"), harmonic_means),
}
