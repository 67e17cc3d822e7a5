"""Run the samples of a search in a worker."""

from __future__ import annotations

from ray import tune

from study.running.reports import LiveReports
from study.running.trial import TrialSpec, errors_reported, run_spec
from study.search.objective import objective, score_of


def run_sample(spec: TrialSpec) -> None:
    """Run samples of a search as Ray Tune's trainable; report their mean objective at the end."""
    with errors_reported():
        result = run_spec(spec, LiveReports(tells_test=False))
        scores = [score_of(record) for record in result.records]
        values = {"val_accuracy": objective(scores)} if scores else {}
        tune.report({**values, **result.report()})
