"""What a run's accuracies are summed up in."""

from __future__ import annotations

from typing import Any

from hagmeta.protocol.evaluator import Evaluator


def summarise(evaluator: Evaluator) -> dict[str, Any]:
    """Every metric of a record, from the evaluator's matrix. Values before any novel class are None."""
    accuracy = evaluator.accuracy()
    matrix = evaluator.matrix()
    base = [row[0] for row in matrix]
    novel = evaluator.novel_accuracy()
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
    }


def harmonic_mean(base: float, novel: float | None) -> float | None:
    """Zero where either is."""
    if novel is None:
        return None
    return 2 * base * novel / (base + novel) if base + novel else 0.0


def forgetting(matrix: list[list[float]]) -> list[float]:
    """For each task but the last: the best accuracy it ever had, less the one it ends with."""
    last = len(matrix) - 1
    return [max(matrix[t][j] for t in range(j, last)) - matrix[last][j] for j in range(last)]
