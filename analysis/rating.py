"""Show the ranking of methods over datasets: ranks, Nemenyi's test, win rates and ratings."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis
from analysis.labels import transductive_words
from analysis.over_datasets import (
    FEWEST_DATASETS,
    FEWEST_FOR_INTERVALS,
    FEWEST_METHODS,
    MOST_METHODS,
    OverDatasets,
)
from analysis.table import Cell, Table
from analysis.words import p_value


def why_not(analysis: Analysis) -> str:
    """Return why a comparison of methods has no ranking over datasets; an empty string if it has one."""
    runs = analysis.results.runs
    if runs["method"].nunique() < 2 or analysis.over_datasets is not None:
        return ""
    count = runs["dataset"].nunique()
    if count < FEWEST_DATASETS:
        there = "there is 1" if count == 1 else f"there are {count}"
        return f"no ranking: it needs {FEWEST_DATASETS} datasets, and {there}"
    shared = f"share {FEWEST_METHODS} to {MOST_METHODS} methods"
    return f"no ranking: no three datasets have one setting each and {shared}"


def friedman_words(found: OverDatasets) -> str:
    """Return "Friedman's test of equal mean ranks gives p = 0.031."."""
    return f"Friedman's test of equal mean ranks gives {p_value(found.friedman)}."


def rating_table(analysis: Analysis) -> Table | None:
    """Return ranks, Nemenyi's verdicts, win rates and ratings, or None if there is no ranking."""
    found = analysis.over_datasets
    if found is None:
        return None
    ratings, rates, ranks = found.ratings, found.win_rates, found.ranks.mean()
    reference, apart = found.methods[0], set(found.apart)
    best = ranks.sort_values().index[0]
    rows, numbers = [], []
    for place, method in enumerate(ranks.sort_values().index):
        over = found.improvement.loc[method, reference]
        verdict = "best" if method == best else "separated" if method in apart else "not separated"
        above = "reference" if method == reference else "" if np.isnan(over) else f"{100 * over:.0f} %"
        rows.append(
            [
                Cell(str(method), str(method)),
                Cell(f"{ranks[method]:.1f}", float(ranks[method])),
                Cell(verdict, float(place)),
                Cell(f"{100 * rates[method]:.0f} %", float(rates[method])),
                Cell(_rating_words(found, str(method)), float(ratings.loc[method, "rating"])),
                Cell(above, None if np.isnan(over) else float(over)),
            ]
        )
        numbers.append(
            {
                "method": method,
                "mean rank": ranks[method],
                "from the best": verdict,
                "win rate": rates[method],
                **ratings.loc[method],
                f"above {reference}": over,
            }
        )
    return Table(
        name="over-datasets",
        section="datasets",
        title=f"Over {len(found.scores)} datasets: ranks, win rates and ratings",
        caption=(
            f"All columns use {found.metric} at the last session. Mean ranks and win rates use means over "
            'seeds. The win rate is how often a method is above another one on a dataset. "From the best" '
            f"is Nemenyi's test of mean ranks at 5 % (critical difference {found.critical_difference:.1f}). "
            f"{friedman_words(found)} {rating_words(found)} The last column is how often a method is above "
            f"{reference} with the same seed, averaged over datasets."
        ),
        columns=["method", "mean rank", "from the best", "win rate", "rating", f"above {reference}"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(found.runs),
    )


def rating_words(found: OverDatasets) -> str:
    """Return sentences that describe the ratings and their intervals."""
    count = len(found.scores)
    intervals = (
        f"Intervals are Student's 95 % intervals over {count} datasets (jackknife), and are rough."
        if count >= FEWEST_FOR_INTERVALS
        else f"There are no intervals: they need {FEWEST_FOR_INTERVALS} datasets, and there are {count}."
    )
    always = (
        ' "Or more" and "or less" mark methods above or below all others in every run; only the prior bounds '
        "their rating."
    )
    return (
        "Ratings are Bradley-Terry ratings on Elo's scale, with a mean of zero. They count which method is "
        "above which with the same seed, and their prior is half a run. "
        f"{intervals}{always if found.constant.any() else ''}"
    )


def _rating_words(found: OverDatasets, method: str) -> str:
    rating = found.ratings.loc[method]
    constant = found.constant[found.methods.index(method)]
    if constant:
        return f"{rating['rating']:+.0f} or {'more' if constant > 0 else 'less'}"
    limits = "" if np.isnan(rating["low"]) else f" [{rating['low']:+.0f}, {rating['high']:+.0f}]"
    return f"{rating['rating']:+.0f}{limits}"
