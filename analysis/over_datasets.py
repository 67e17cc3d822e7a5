"""Rank methods over datasets, as evidence for what holds on another graph like these.

Here datasets are the sample, and each counts once. Fewer than three datasets give no ranking, and fewer than
six give no intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
import scipy.stats
from sklearn.linear_model import LogisticRegression

from analysis.across import by_dataset, common_labels, oracles_of
from analysis.frame import Results
from analysis.labels import transductive_words
from analysis.statistics import adjusted_means
from analysis.table import Cell, Table
from analysis.words import p_value, some
from hagmeta.common.interval import student

FEWEST_DATASETS, FEWEST_METHODS, MOST_METHODS = 3, 3, 40
FEWEST_FOR_INTERVALS = 6
SCALE = 400 / np.log(10)  # Elo's scale: a difference of 400 means odds of ten to one
NEMENYI = 0.05  # not part of the report's error budget, because it is about graphs and not about seeds
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


@lru_cache(maxsize=1)  # a table and four figures use the same
def over_datasets(results: Results) -> OverDatasets | None:
    """Return the methods that at least three datasets share, or None if there are too few or too many."""
    panels = by_dataset(results)
    if len(panels) < FEWEST_DATASETS or not all("method" in panel.varied() for panel in panels.values()):
        return None
    rivals = [label for label in common_labels(panels) if label not in oracles_of(panels)]
    scores = {name: panel.by_seed("last")[rivals].dropna(how="all") for name, panel in panels.items()}
    ranked = all(adjusted_means(table).notna().all() for table in scores.values())
    if not FEWEST_METHODS <= len(rivals) <= MOST_METHODS or not ranked:
        return None
    runs = pd.concat([panel.runs for panel in panels.values()])
    return OverDatasets(scores, results.metric, runs[runs["label"].isin(rivals)])


def why_not(results: Results) -> str:
    """Return why a comparison of methods has no ranking over datasets; an empty string if it has one."""
    if results.runs["method"].nunique() < 2 or over_datasets(results) is not None:
        return ""
    count = results.runs["dataset"].nunique()
    if count < FEWEST_DATASETS:
        there = "there is 1" if count == 1 else f"there are {count}"
        return f"no ranking: it needs {FEWEST_DATASETS} datasets, and {there}"
    shared = f"share {FEWEST_METHODS} to {MOST_METHODS} methods"
    return f"no ranking: no three datasets have one setting each and {shared}"


def over_datasets_words(results: Results) -> Iterator[str]:
    """Yield which method has the best mean rank, and which methods the tests separate from it."""
    found = over_datasets(results)
    if found is None:
        return
    ranks = found.ranks.mean().sort_values()
    first = str(ranks.index[0])
    level = [str(name) for name in ranks.index if ranks[name] == ranks.iloc[0]]
    apart = found.apart
    who = f"{first} has the best mean rank" if len(level) == 1 else f"{some(level)} share the best mean rank"
    yield f"Over {len(found.scores)} datasets, {who}: {ranks.iloc[0]:.1f} of {len(ranks)}."
    yield (
        f"Nemenyi's test separates {first} from {some(apart) if apart else 'no other method'} (critical "
        f"difference {found.critical_difference:.1f}). {friedman_words(found)}"
    )


def friedman_words(found: OverDatasets) -> str:
    """Return "Friedman's test of equal mean ranks gives p = 0.031."."""
    return f"Friedman's test of equal mean ranks gives {p_value(found.friedman)}."


def rating_table(results: Results) -> Table | None:
    """Return ranks, Nemenyi's verdicts, win rates and ratings, or None if there is no ranking."""
    found = over_datasets(results)
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
