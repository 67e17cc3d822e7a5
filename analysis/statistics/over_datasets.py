"""Rank methods over datasets, as evidence for what holds on another graph like these.

Here datasets are the sample, and each counts once. Fewer than three datasets give no ranking, and fewer than
six give no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import scipy.stats
from sklearn.linear_model import LogisticRegression

from analysis.data.results import Panel
from analysis.designs.datasets import common_labels, oracles_of
from analysis.statistics.estimates import adjusted_means
from hagmeta.common.interval import student

FEWEST_DATASETS, FEWEST_METHODS, MOST_METHODS = 3, 3, 40
FEWEST_FOR_INTERVALS = 6
SCALE = 400 / np.log(10)  # Elo's scale: a difference of 400 means odds of ten to one
NEMENYI = 0.05
WEAKEST = 1e-6  # penalty that only keeps the mean of all ratings at zero


@dataclass(frozen=True, eq=False)
class OverDatasets:
    """Methods that several datasets have in common, without oracles."""

    scores: Mapping[str, pd.DataFrame]  # by dataset: (seeds, methods) at the last session; NaN means not run
    metric: str
    runs: pd.DataFrame

    @property
    def methods(self) -> list[str]:
        return list(next(iter(self.scores.values())).columns)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Return means over seeds (datasets, methods), adjusted for missing seeds."""
        return pd.DataFrame({name: adjusted_means(table) for name, table in self.scores.items()}).T

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """Return ranks (datasets, methods) of the means; ties share a rank."""
        return self.means.round(10).rank(axis=1, ascending=False)

    @cached_property
    def wins(self) -> np.ndarray:
        """Return (datasets, methods, methods): the share of seeds in which the first is above the second.

        A tie counts half. NaN means that the two have no seed in common.
        """
        found = []
        for table in self.scores.values():
            values = table.to_numpy().round(10)
            found.append(_mean((np.sign(values[:, :, None] - values[:, None, :]) + 1) / 2))
        return np.array(found)

    @property
    def improvement(self) -> pd.DataFrame:
        """Return (methods, methods): `wins` averaged over datasets."""
        return pd.DataFrame(_mean(self.wins), self.methods, self.methods)

    @cached_property
    def ratings(self) -> pd.DataFrame:
        """Return (methods; rating, low, high): Bradley-Terry ratings on Elo's scale, with a mean of zero.

        Intervals are Student's, from ratings that leave one dataset out (jackknife). If a method is above or
        below all others in all runs, only the prior bounds its rating, and it has no interval.
        """
        found = ratings_of(_mean(self.wins), self._prior)
        count = len(self.scores)
        half = np.full(len(found), np.nan)
        if count >= FEWEST_FOR_INTERVALS:
            left_out = np.array(
                [ratings_of(_mean(np.delete(self.wins, one, axis=0)), self._prior) for one in range(count)]
            )
            error = np.sqrt((count - 1) * left_out.var(axis=0))
            half = np.where(self.constant == 0, student(count) * error, np.nan)
        return pd.DataFrame({"rating": found, "low": found - half, "high": found + half}, self.methods)

    @cached_property
    def constant(self) -> np.ndarray:
        """Return (methods,): 1 for a method above all others in all runs, -1 for one below, otherwise 0."""
        won = _mean(self.wins)
        np.fill_diagonal(won, np.nan)
        return (np.nanmin(won, axis=1) == 1).astype(int) - (np.nanmax(won, axis=1) == 0)

    @property
    def _prior(self) -> float:
        """Return the prior: half an extra win per pair over all runs, so that all ratings are finite."""
        return 0.5 / sum(map(len, self.scores.values()))

    @property
    def win_rates(self) -> pd.Series:
        """Return how often each method is above another one on a dataset, by means over seeds."""
        ranks = self.ranks
        return (len(self.methods) - ranks).mean() / (len(self.methods) - 1)

    @property
    def friedman(self) -> float:
        """Return p of Friedman's test of equal mean ranks; 1 if all methods are tied everywhere."""
        if (self.ranks.nunique(axis=1) == 1).all():
            return 1.0
        return float(scipy.stats.friedmanchisquare(*(self.ranks[method] for method in self.methods)).pvalue)

    @property
    def critical_difference(self) -> float:
        """Return the critical difference of mean ranks in Nemenyi's test (Demšar 2006)."""
        k, n = len(self.methods), len(self.scores)
        return float(
            scipy.stats.studentized_range.ppf(1 - NEMENYI, k, np.inf)
            / np.sqrt(2)
            * np.sqrt(k * (k + 1) / (6 * n))
        )

    @property
    def apart(self) -> list[str]:
        """Return the methods that Nemenyi's test separates from the one with the best mean rank."""
        ranks = self.ranks.mean().sort_values()
        return [str(name) for name, rank in ranks.items() if rank - ranks.iloc[0] > self.critical_difference]

    def profile(self, within: np.ndarray) -> pd.DataFrame:
        """Return (points, methods): the share of runs at most `within` points below the best of the seed."""
        gaps = pd.concat([(table.max(axis=1).to_numpy()[:, None] - table) for table in self.scores.values()])
        known = 100 * gaps.to_numpy()[None]
        shares = (known <= within[:, None, None] + 1e-9).sum(axis=1) / (~np.isnan(known)).sum(axis=1)
        return pd.DataFrame(shares, pd.Index(within, name="points"), self.methods)


def _mean(wins: np.ndarray) -> np.ndarray:
    """Return the mean over seeds or datasets that have both methods of a pair; NaN if none has both."""
    shared = (~np.isnan(wins)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(shared > 0, np.nansum(wins, axis=0) / shared, np.nan)


def ratings_of(wins: np.ndarray, prior: float) -> np.ndarray:
    """Return maximum-likelihood ratings (methods,) from `wins` (methods, methods) and `prior` extra wins."""
    count = len(wins)
    one, other = np.nonzero(~np.isnan(wins) & ~np.eye(count, dtype=bool))
    design = np.zeros((len(one), count))
    rows = np.arange(len(one))
    design[rows, one], design[rows, other] = 1, -1
    weights = wins[one, other] + prior
    # Each row is a win of the first method. The wins of the second method are in another row.
    fit = LogisticRegression(
        C=1 / WEAKEST, fit_intercept=False, solver="newton-cholesky", tol=1e-9, max_iter=1000
    )
    fit.fit(np.vstack([design, -design]), np.repeat([1, 0], len(one)), sample_weight=np.tile(weights, 2))
    found = fit.coef_[0]
    return SCALE * (found - found.mean())


def over_datasets(panels: Mapping[str, Panel], metric: str) -> OverDatasets | None:
    """Return the methods that at least three datasets share, or None if there are too few or too many."""
    if len(panels) < FEWEST_DATASETS or not all("method" in panel.varied() for panel in panels.values()):
        return None
    rivals = [label for label in common_labels(panels) if label not in oracles_of(panels)]
    scores = {name: panel.by_seed("last")[rivals].dropna(how="all") for name, panel in panels.items()}
    ranked = all(adjusted_means(table).notna().all() for table in scores.values())
    if not FEWEST_METHODS <= len(rivals) <= MOST_METHODS or not ranked:
        return None
    runs = pd.concat([panel.runs for panel in panels.values()])
    return OverDatasets(scores, metric, runs[runs["label"].isin(rivals)])
