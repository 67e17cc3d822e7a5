"""Methods over datasets: what would hold on another graph like these, as far as so few can tell.

Datasets are what is sampled here, and each counts as one. Below three datasets nothing is said, and below six
no interval is given: it would rest on too few.
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
SCALE = 400 / np.log(10)  # of ratings: 400 is ten to one
NEMENYI = 0.05  # a level of its own: it is about graphs, and the other verdicts about seeds of one graph
WEAKEST = 1e-6  # penalty that keeps the mean of all ratings at zero, and changes nothing else


@dataclass(frozen=True, eq=False)
class OverDatasets:
    """Methods that several datasets have in common, oracles aside."""

    scores: Mapping[str, pd.DataFrame]  # by dataset: (seeds, methods), at the last session; NaN: not run
    metric: str
    runs: pd.DataFrame

    @property
    def methods(self) -> list[str]:
        return list(next(iter(self.scores.values())).columns)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """(datasets, methods) by the mean over seeds, adjusted for missing ones; equals share a rank."""
        means = pd.DataFrame({name: adjusted_means(table) for name, table in self.scores.items()}).T
        return means.round(10).rank(axis=1, ascending=False)

    @cached_property
    def wins(self) -> np.ndarray:
        """(datasets, methods, methods): how often the first is above the second, by seed; level counts half.

        NaN where the two have no seed in common.
        """
        found = []
        for table in self.scores.values():
            values = table.to_numpy().round(10)
            found.append(_mean((np.sign(values[:, :, None] - values[:, None, :]) + 1) / 2))
        return np.array(found)

    @property
    def improvement(self) -> pd.DataFrame:
        """(methods, methods): how often the first is above the second, by seed, a mean over datasets."""
        return pd.DataFrame(_mean(self.wins), self.methods, self.methods)

    @cached_property
    def ratings(self) -> pd.DataFrame:
        """Of each method (rating, low, high): Bradley and Terry's, on Elo's scale, with a mean of zero.

        Intervals are Student's, from ratings that leave one dataset out (jackknife). A method that is above
        all others in all runs, or below, has only its prior for a rating, and no interval.
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
        """(methods,): 1 of a method that is above all others in all runs, -1 of one that is below, else 0."""
        won = _mean(self.wins)
        np.fill_diagonal(won, np.nan)
        return (np.nanmin(won, axis=1) == 1).astype(int) - (np.nanmax(won, axis=1) == 0)

    @property
    def _prior(self) -> float:
        """Half a win more for everyone, over all runs: who always wins has no finite rating otherwise."""
        return 0.5 / sum(map(len, self.scores.values()))

    @property
    def win_rates(self) -> pd.Series:
        """How often a method is above another one on a dataset, by means."""
        ranks = self.ranks
        return (len(self.methods) - ranks).mean() / (len(self.methods) - 1)

    @property
    def friedman(self) -> float:
        """p of Friedman's test that all have the same mean rank; 1 where all are level everywhere."""
        if (self.ranks.nunique(axis=1) == 1).all():
            return 1.0
        return float(scipy.stats.friedmanchisquare(*(self.ranks[method] for method in self.methods)).pvalue)

    @property
    def critical_difference(self) -> float:
        """Of mean ranks, by Nemenyi's test (Demšar 2006)."""
        k, n = len(self.methods), len(self.scores)
        return float(
            scipy.stats.studentized_range.ppf(1 - NEMENYI, k, np.inf)
            / np.sqrt(2)
            * np.sqrt(k * (k + 1) / (6 * n))
        )

    @property
    def apart(self) -> list[str]:
        """Methods that Nemenyi's test separates from the one with the best mean rank."""
        ranks = self.ranks.mean().sort_values()
        return [str(name) for name, rank in ranks.items() if rank - ranks.iloc[0] > self.critical_difference]

    def profile(self, within: np.ndarray) -> pd.DataFrame:
        """(points, methods): the share of runs that are within so many points of the best of their seed."""
        gaps = pd.concat([(table.max(axis=1).to_numpy()[:, None] - table) for table in self.scores.values()])
        known = 100 * gaps.to_numpy()[None]
        shares = (known <= within[:, None, None] + 1e-9).sum(axis=1) / (~np.isnan(known)).sum(axis=1)
        return pd.DataFrame(shares, pd.Index(within, name="points"), self.methods)


def _mean(wins: np.ndarray) -> np.ndarray:
    """(methods, methods) over the seeds, or the datasets, that have both of a pair; NaN where none has."""
    shared = (~np.isnan(wins)).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(shared > 0, np.nansum(wins, axis=0) / shared, np.nan)


def ratings_of(wins: np.ndarray, prior: float) -> np.ndarray:
    """(methods,) of maximum likelihood, from (methods, methods) with ``prior`` wins more for each."""
    count = len(wins)
    one, other = np.nonzero(~np.isnan(wins) & ~np.eye(count, dtype=bool))
    design = np.zeros((len(one), count))
    rows = np.arange(len(one))
    design[rows, one], design[rows, other] = 1, -1
    weights = wins[one, other] + prior
    # Each row is a win of the first; its mirror image, with the other's wins, is a row of its own.
    fit = LogisticRegression(
        C=1 / WEAKEST, fit_intercept=False, solver="newton-cholesky", tol=1e-9, max_iter=1000
    )
    fit.fit(np.vstack([design, -design]), np.repeat([1, 0], len(one)), sample_weight=np.tile(weights, 2))
    found = fit.coef_[0]
    return SCALE * (found - found.mean())


@lru_cache(maxsize=1)  # a table and four figures ask for the same
def over_datasets(results: Results) -> OverDatasets | None:
    """Where at least three datasets share at least three methods, not too many, which share seeds."""
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
    """Where methods were compared and nothing is said over datasets: the reason."""
    if results.runs["method"].nunique() < 2 or over_datasets(results) is not None:
        return ""
    count = results.runs["dataset"].nunique()
    if count < FEWEST_DATASETS:
        return f"nothing is said over datasets: it takes {FEWEST_DATASETS}, and these are {count}"
    shared = f"{FEWEST_METHODS} to {MOST_METHODS} methods in common"
    return f"nothing is said over datasets: no three have one setting each and {shared}"


def over_datasets_words(results: Results) -> Iterator[str]:
    """What mean ranks tell, and how little so few datasets decide."""
    found = over_datasets(results)
    if found is None:
        return
    ranks = found.ranks.mean().sort_values()
    first = str(ranks.index[0])
    level = [str(name) for name in ranks.index if ranks[name] == ranks.iloc[0]]
    apart = found.apart
    who = f"{first} has the best mean rank" if len(level) == 1 else f"{some(level)} share the best mean rank"
    yield (
        f"Over {len(found.scores)} datasets {who}, {ranks.iloc[0]:.1f} of {len(ranks)}. Nemenyi's test "
        f"separates {first} from {some(apart) if apart else 'no other'} (critical difference "
        f"{found.critical_difference:.1f}; Friedman's test that all are alike: {p_value(found.friedman)})."
    )


def rating_table(results: Results) -> Table | None:
    """Ranks, Nemenyi's verdicts, win rates and ratings over datasets."""
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
            f"By {found.metric} at the last session. Mean ranks and win rates are of means over seeds: how "
            "often a method is above another on a dataset. «From the best» is Nemenyi's test of mean ranks "
            f"at 5 %, with a critical difference of {found.critical_difference:.1f}. Friedman's test that "
            f"all are alike: {p_value(found.friedman)}. {rating_words(found)} The last column is how often a "
            f"method is above {reference} with the same seed, a mean over datasets."
        ),
        columns=["method", "mean rank", "from the best", "win rate", "rating", f"above {reference}"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(found.runs),
    )


def rating_words(found: OverDatasets) -> str:
    """How ratings were made, and what their intervals can mean."""
    count = len(found.scores)
    intervals = (
        f"Intervals are Student's 95 % over datasets (jackknife): on {count} datasets they are rough."
        if count >= FEWEST_FOR_INTERVALS
        else f"Without intervals: {count} datasets are too few, and {FEWEST_FOR_INTERVALS} the fewest."
    )
    always = (
        " «Or more», «or less»: above or below every other in every run, so that only the prior bounds it."
    )
    return (
        "Ratings are Bradley and Terry's, on Elo's scale with a mean of zero, from who is above whom with "
        f"the same seed; the prior is half a run. {intervals}{always if found.constant.any() else ''}"
    )


def _rating_words(found: OverDatasets, method: str) -> str:
    rating = found.ratings.loc[method]
    constant = found.constant[found.methods.index(method)]
    if constant:
        return f"{rating['rating']:+.0f} or {'more' if constant > 0 else 'less'}"
    limits = "" if np.isnan(rating["low"]) else f" [{rating['low']:+.0f}, {rating['high']:+.0f}]"
    return f"{rating['rating']:+.0f}{limits}"
