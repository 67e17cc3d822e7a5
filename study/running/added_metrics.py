"""Compute additional metrics of finished runs from their stored predictions, without running them again."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from hagmeta.common.plugins.identity import is_identity
from hagmeta.common.records.records import Record
from hagmeta.scenarios.metrics import METRICS, with_metrics
from hagmeta.scenarios.predictions import read_predictions
from study.store.store import Store
from study.terminal.naming import counted


def names_of(references: Sequence[str]) -> tuple[str, ...]:
    """Return the identities of metrics, without built-in ones, which every record has."""
    names = dict.fromkeys(METRICS.name_of(reference) for reference in references)
    return tuple(name for name in names if is_identity(name))


def measure(metrics: Sequence[str], store: Store, console: Console) -> None:
    """Add metrics to all records that lack them or have them from an older version of their code.

    Args:
        metrics: Identities of additional metrics.
        store: Holds records and predictions.
        console: Where to print how many runs have no predictions.
    """
    without = 0
    for record in store.records() if metrics else ():
        lacking = [name for name in metrics if not _has(record, name)]
        predictions = store.predictions_of((record["config_hash"], record["seed"]))
        if lacking and not predictions.exists():
            without += 1
        elif lacking:
            asked = {name: METRICS[name] for name in lacking}
            store.write(with_metrics(record, read_predictions(predictions), asked))
    if without:
        console.print(
            f"note: no stored predictions for {counted(without, 'finished run')}; no new metrics there",
            style="yellow",
        )


def _has(record: Record, name: str) -> bool:
    return any(each.get("source") == name for each in record.get("metrics", {}).values())
