"""Read the samples of hyperparameter searches and draw them with Optuna's plots."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import json_to_distribution

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import search_plots
from analysis.figures.search_style import Search
from hagmeta.common.records.records import StudyFolder

FEWEST_SAMPLES = 8
MOST_SEARCHES = 2  # per study: a dozen methods would give fifty figures


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield four figures for each of the first searches with enough samples."""
    for folder in analysis.results.folders:
        found = _load(StudyFolder(folder), analysis.results.searches.get(folder.name))
        large = [search for search in found if len(search.study.trials) >= FEWEST_SAMPLES]
        for search in large[:MOST_SEARCHES]:
            yield from search_plots.draw(replace(search, others=len(large) - len(large[:MOST_SEARCHES])))


def _load(study: StudyFolder, chosen: Mapping[str, Any] | None) -> list[Search]:
    """Return the searches that have chosen configurations; all in the folder if none has."""
    files = sorted(study.searches.glob("*.json"))
    if chosen:
        named = [study.searches / f"{cell['study']}.json" for cell in chosen["cells"]]
        files = [path for path in named if path.is_file()]
    found = []
    for path in files:
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"cannot read {path} ({error}); its figures are left out.", stacklevel=2)
    return found


def _read(path: Path) -> Search:
    """Read a file of ``study/search/files.py``."""
    content = json.loads(path.read_bytes())
    ranges = {key: json_to_distribution(json.dumps(value)) for key, value in content["ranges"].items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    failed = 0
    for sample in content["samples"]:
        if sample["state"] == "fail":
            failed += 1
            continue
        values = sample["values"]
        study.add_trial(
            optuna.trial.create_trial(
                params=values,
                distributions={key: ranges[key] for key in values},
                value=100 * sample["objective"],
            )
        )
    return Search(content["title"], study, failed)
