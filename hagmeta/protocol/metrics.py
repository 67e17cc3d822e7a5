"""Summarise the predictions of a run in metrics.

Built-in metrics are the functions below with the decorator `_built_in`. To add one outside this package,
subclass `Metric`:

    class WorstClass(Metric):
        name, title, by_session = "worst_class", "worst class", False

        def compute(self, predictions):
            last = predictions.counts()[-1]
            return float((last.right / last.asked).min())
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.common.metrics import DIAGNOSTICS, MetricDeclaration, declaration, to_record
from hagmeta.common.record_schema import schema
from hagmeta.common.records import Record, opened
from hagmeta.common.registry import Registry
from hagmeta.protocol.predictions import ClassCounts, Predictions

DIGITS = 6  # of accuracies by class, of which a record has thousands
NAME = re.compile(r"[a-z][a-z0-9_]*")

Value = list[float | None] | float | None


class Metric(ABC):
    """Base class of additional metrics: one value per session or per run, from the predictions alone."""

    name: ClassVar[str]  # its key in records: lower-case letters, digits and _
    title: ClassVar[str]  # as tables write it
    by_session: ClassVar[bool]  # whether `compute` returns a list with one value per session
    higher_is_better: ClassVar[bool] = True
    shown: ClassVar[bool] = True  # has a column in the report's table of other metrics

    @abstractmethod
    def compute(self, predictions: Predictions) -> Value:
        """Return one number, or one number per session; None where there is nothing to measure."""

    @classmethod
    def declared(cls) -> MetricDeclaration:
        """Return how to read its values, or raise a UserError that names what is missing or wrong."""
        for key, kind in {"name": str, "title": str, **dict.fromkeys(_SWITCHES, bool)}.items():
            value = getattr(cls, key, None)
            if not isinstance(value, kind) or (not value and kind is str):
                raise UserError(
                    f"metric {cls.__name__}: its {key} is {shown(value)}; set it to a {kind.__name__}."
                )
        if not NAME.fullmatch(cls.name):
            raise UserError(
                f"metric {cls.__name__}: its name is {shown(cls.name)}; use lower-case letters, digits and _."
            )
        return MetricDeclaration(cls.name, cls.title, cls.by_session, cls.higher_is_better, shown=cls.shown)


_SWITCHES = ("by_session", "higher_is_better", "shown")
_COMPUTED: dict[str, Callable[[Predictions], Any]] = {}  # the built-in ones, in the order of a record
METRICS: Registry[type[Metric]]  # below, when all built-in metrics are known
_BUILT_IN: dict[str, type[Metric]] = {}


def metrics_of(predictions: Predictions, metrics: Mapping[str, type[Metric]] | None = None) -> dict[str, Any]:
    """Return the values of all built-in metrics, and of additional ``metrics``, by name.

    "Base" are the classes known at session 0, "novel" all that came later; values before any novel class are
    None. Macro metrics are means over classes; a class without queries in a session does not count there.
    """
    built_in = {name: compute(predictions) for name, compute in _COMPUTED.items()}
    return built_in | _additional(predictions, metrics or {})


def with_metrics(record: Record, predictions: Predictions, metrics: Mapping[str, type[Metric]]) -> Record:
    """Return a record with the values and declarations of additional metrics.

    Args:
        record: of the run that gave the predictions; it may have additional metrics already.
        predictions: of all its sessions.
        metrics: classes by the identity of their code, such as ``Mine@0123456789ab``.
    """
    if not metrics:
        return record
    said = {
        metric.name: to_record(metric.declared(), source=identity) for identity, metric in metrics.items()
    }
    taken = [name for name in said if name in record and name not in record.get("metrics", {})]
    if taken:
        raise UserError(f"metric {taken[0]}: records have another value of this name. Rename the metric.")
    more = _additional(predictions, metrics) | {"metrics": record.get("metrics", {}) | said}
    return cast(Record, opened(record) | more)


def _additional(predictions: Predictions, metrics: Mapping[str, type[Metric]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    reserved = {*schema()["properties"], *(each.name for each in DIAGNOSTICS)}
    for identity, metric in metrics.items():
        declared = metric.declared()
        if declared.name in reserved or declared.name in found:
            whose = "a built-in value" if declared.name in reserved else "another metric"
            raise UserError(f"metric {declared.name}: {whose} has this name. Rename the metric.")
        found[declared.name] = _checked(
            declared, _computed(identity, metric, predictions), len(predictions.true)
        )
    return found


def _computed(identity: str, metric: type[Metric], predictions: Predictions) -> Any:
    try:
        return metric().compute(predictions)
    except UserError:
        raise
    except Exception as error:  # of other people's code
        reason = " ".join(str(error).split())
        raise UserError(f"the metric {identity}: {type(error).__name__}: {reason}") from error


def _checked(declared: MetricDeclaration, value: Any, sessions: int) -> Value:
    """Return the value in plain Python numbers, or raise a UserError that names the metric."""
    if not declared.by_session:
        return _number(declared.name, value)
    if not isinstance(value, list | tuple | np.ndarray):
        raise UserError(
            f"metric {declared.name}: it returned {shown(value)}; return a list of {sessions} values, "
            "one per session."
        )
    if len(value) != sessions:
        raise UserError(f"metric {declared.name}: it returned {len(value)} values for {sessions} sessions.")
    return [_number(declared.name, each) for each in value]


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real | np.number) or isinstance(value, bool) or not math.isfinite(value):
        raise UserError(f"metric {name}: it returned {shown(value)}; return finite numbers, or None.")
    return float(value)


def _built_in(compute: Callable[[Predictions], Any]) -> Callable[[Predictions], Any]:
    """Register the computation of the built-in metric that is declared by the function's name."""
    declared = declaration(compute.__name__)
    members = {**vars(declared), "__doc__": compute.__doc__, "compute": lambda self, given: compute(given)}
    _COMPUTED[declared.name] = compute
    _BUILT_IN[declared.name] = type(declared.name, (Metric,), members)
    return compute


@_built_in
def accuracy(predictions: Predictions) -> list[float]:
    """Return the share of right answers by session, every query counted the same."""
    return [float(correct.mean()) for correct in predictions.correct()]


@_built_in
def base_accuracy(predictions: Predictions) -> list[float]:
    """Return the accuracy on the classes known at session 0."""
    return [row[0] for row in matrix(predictions)]


@_built_in
def novel_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the accuracy after each session on all novel classes met by then."""
    known = len(predictions.known)
    rest = predictions.counts()[1:]
    return [None, *(float(of.right[known:].sum() / of.asked[known:].sum()) for of in rest)]


@_built_in
def new_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the accuracy after each session on the classes that it brought."""
    return [None, *(row[-1] for row in matrix(predictions)[1:])]


@_built_in
def harmonic(predictions: Predictions) -> list[float | None]:
    """Return the harmonic mean of base and novel accuracy."""
    pairs = zip(base_accuracy(predictions), novel_accuracy(predictions), strict=True)
    return [harmonic_mean(base, novel) for base, novel in pairs]


@_built_in
def matrix(predictions: Predictions) -> list[list[float]]:
    """Return M[t][j]: the accuracy after session t on the classes that session j brought."""
    known, n_way = len(predictions.known), predictions.arriving.shape[1]

    def by_task(counts: np.ndarray) -> np.ndarray:
        return np.array([counts[:known].sum(), *counts[known:].reshape(-1, n_way).sum(axis=1)])

    return [(by_task(of.right) / by_task(of.asked)).tolist() for of in predictions.counts()]


@_built_in
def pd(predictions: Predictions) -> float:
    """Return the performance drop: accuracy at session 0 less that at the last."""
    curve = accuracy(predictions)
    return curve[0] - curve[-1]


@_built_in
def rpd(predictions: Predictions) -> float | None:
    """Return the drop by the accuracy at session 0; None where that is 0."""
    first = accuracy(predictions)[0]
    return pd(predictions) / first if first else None


@_built_in
def average_accuracy(predictions: Predictions) -> float:
    """Return the mean accuracy over sessions."""
    curve = accuracy(predictions)
    return sum(curve) / len(curve)


@_built_in
def forgetting(predictions: Predictions) -> list[float]:
    """Return for each task but the last: the best accuracy it ever had, less the one it ends with."""
    rows = matrix(predictions)
    last = len(rows) - 1
    return [max(rows[t][j] for t in range(j, last)) - rows[last][j] for j in range(last)]


@_built_in
def backward_transfer(predictions: Predictions) -> float | None:
    """Return BWT = 1/T sum over tasks j < T of M[T][j] - M[j][j]; None where there is one task only.

    Lopez-Paz and Ranzato, 2017. It is below zero where tasks are forgotten.
    """
    rows = matrix(predictions)
    last = len(rows) - 1
    return sum(rows[last][j] - rows[j][j] for j in range(last)) / last if last else None


@_built_in
def macro_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean over the classes met of their accuracies."""
    return [_mean(values) for values in _by_class(predictions)]


@_built_in
def macro_f1(predictions: Predictions) -> list[float | None]:
    """Return the mean over the classes met of 2 TP / (2 TP + FP + FN)."""
    return [_mean(f1_scores(of)) for of in predictions.counts()]


@_built_in
def macro_base_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean over the classes known at session 0 of their accuracies."""
    return [_mean(values[: len(predictions.known)]) for values in _by_class(predictions)]


@_built_in
def macro_novel_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean over the novel classes met of their accuracies."""
    return [_mean(values[len(predictions.known) :]) for values in _by_class(predictions)]


@_built_in
def macro_harmonic(predictions: Predictions) -> list[float | None]:
    """Return the harmonic mean of macro base and macro novel accuracy."""
    pairs = zip(macro_base_accuracy(predictions), macro_novel_accuracy(predictions), strict=True)
    return [harmonic_mean(base, novel) for base, novel in pairs]


@_built_in
def class_accuracy(predictions: Predictions) -> list[list[float | None]]:
    """Return the accuracy by session and class, in the order of `classes_met`; None: no query."""
    return [
        [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
        for values in _by_class(predictions)
    ]


@_built_in
def classes_met(predictions: Predictions) -> list[int]:
    """Return the classes in the order in which they are met."""
    return [int(each) for each in predictions.met(len(predictions.true) - 1)]


def harmonic_mean(base: float | None, novel: float | None) -> float | None:
    """Return the harmonic mean of two shares; zero where either is."""
    if base is None or novel is None:
        return None
    return 2 * base * novel / (base + novel) if base + novel else 0.0


def f1_scores(counts: ClassCounts) -> np.ndarray:
    """Return 2 TP / (2 TP + FP + FN) by class; NaN for a class without queries."""
    return _ratio(2 * counts.right, counts.asked + counts.given, counts.asked)


def _by_class(predictions: Predictions) -> list[np.ndarray]:
    """Return by session the accuracy of each class met, in the order of meeting."""
    return [_ratio(of.right, of.asked, of.asked) for of in predictions.counts()]


def _ratio(part: np.ndarray, whole: np.ndarray, asked: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=asked > 0)


def _mean(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


def _check_declared(metric: type[Metric]) -> None:
    metric.declared()


METRICS = Registry("metric", _BUILT_IN, base=Metric, check=_check_declared)
