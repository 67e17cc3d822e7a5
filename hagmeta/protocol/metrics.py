"""What a run's predictions are summed up in."""

from __future__ import annotations

from typing import Any

import numpy as np

from hagmeta.protocol.predictions import ClassCounts, Predictions

DIGITS = 6  # of accuracies by class, of which a record has thousands


def metrics_of(predictions: Predictions) -> dict[str, Any]:
    """Every metric of a record, session by session. Values before any novel class are None.

    "Base" are the classes known at session 0, "novel" all that came later. Macro metrics are means over
    classes of what each has on its queries; a class that a session asks nothing about takes no part in its.
    """
    accuracy = [float(correct.mean()) for correct in predictions.correct()]
    matrix = accuracy_matrix(predictions)
    base = [row[0] for row in matrix]
    novel = novel_accuracy(predictions)
    drop = accuracy[0] - accuracy[-1]
    return {
        "accuracy": accuracy,
        "base_accuracy": base,
        "novel_accuracy": novel,
        "new_accuracy": [None, *(row[-1] for row in matrix[1:])],
        "harmonic": [harmonic_mean(b, n) for b, n in zip(base, novel, strict=True)],
        "matrix": matrix,
        "pd": drop,
        "rpd": drop / accuracy[0] if accuracy[0] else None,
        "average_accuracy": sum(accuracy) / len(accuracy),
        "forgetting": forgetting(matrix),
        "backward_transfer": backward_transfer(matrix),
        **_macro_metrics(predictions),
    }


def accuracy_matrix(predictions: Predictions) -> list[list[float]]:
    """M[t][j]: accuracy after session t on the classes that session j brought."""
    brought = [predictions.known, *predictions.arriving]
    return [
        [float(correct[np.isin(true, brought[j])].mean()) for j in range(session + 1)]
        for session, (true, correct) in enumerate(zip(predictions.true, predictions.correct(), strict=True))
    ]


def novel_accuracy(predictions: Predictions) -> list[float | None]:
    """Accuracy after each session on all the novel classes met by then."""
    novel = [~np.isin(true, predictions.known) for true in predictions.true]
    rest = zip(novel[1:], predictions.correct()[1:], strict=True)
    return [None, *(float(correct[chosen].mean()) for chosen, correct in rest)]


def harmonic_mean(base: float | None, novel: float | None) -> float | None:
    """Zero where either is."""
    if base is None or novel is None:
        return None
    return 2 * base * novel / (base + novel) if base + novel else 0.0


def forgetting(matrix: list[list[float]]) -> list[float]:
    """For each task but the last: the best accuracy it ever had, less the one it ends with."""
    last = len(matrix) - 1
    return [max(matrix[t][j] for t in range(j, last)) - matrix[last][j] for j in range(last)]


def backward_transfer(matrix: list[list[float]]) -> float | None:
    """BWT = 1/T sum over tasks j < T of M[T][j] - M[j][j]: what later sessions did to a task since it came.

    Lopez-Paz and Ranzato, 2017. Below zero where tasks are forgotten; None where there is one task only.
    """
    last = len(matrix) - 1
    return sum(matrix[last][j] - matrix[j][j] for j in range(last)) / last if last else None


def _macro_metrics(predictions: Predictions) -> dict[str, Any]:
    counts, known = predictions.counts(), len(predictions.known)
    by_class = [_ratio(of.right, of.asked, of.asked) for of in counts]  # classes in the order of meeting
    base = [_mean(values[:known]) for values in by_class]
    novel = [_mean(values[known:]) for values in by_class]
    return {
        "macro_accuracy": [_mean(values) for values in by_class],
        "macro_f1": [_mean(f1_scores(of)) for of in counts],
        "macro_base_accuracy": base,
        "macro_novel_accuracy": novel,
        "macro_harmonic": [harmonic_mean(b, n) for b, n in zip(base, novel, strict=True)],
        "class_accuracy": [
            [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
            for values in by_class
        ],
        "classes_met": predictions.met(len(counts) - 1).tolist(),
    }


def f1_scores(counts: ClassCounts) -> np.ndarray:
    """By class, 2 TP / (2 TP + FP + FN); NaN for a class that is not asked about."""
    return _ratio(2 * counts.right, counts.asked + counts.given, counts.asked)


def _ratio(part: np.ndarray, whole: np.ndarray, asked: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=asked > 0)


def _mean(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None
