"""Methods over datasets: what would hold on another graph like these, as far as so few can tell.

Intervals are from resampling datasets, and within each its seeds. Below three datasets there is nothing to
resample, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd
import scipy.stats

from analysis.across import by_dataset, common_labels, oracles_of
from analysis.frame import Results
from analysis.labels import transductive_words
from analysis.table import Cell, Table

FEWEST_DATASETS, FEWEST_METHODS, MOST_METHODS = 3, 3, 40
RESAMPLES = 1_000
SCALE = 400 / np.log(10)  # of ratings: 400 is ten to one
STEPS = 100  # of the fit of ratings
RESAMPLED = f"intervals are 95 % of {RESAMPLES:,} resamples of the datasets and, within each, of its seeds"


@dataclass(frozen=True, eq=False)
class OverDatasets:
    """Methods that several datasets have in common, oracles aside."""

    scores: Mapping[str, pd.DataFrame]  # by dataset: (seeds that all have, methods), at the last session
    metric: str
    runs: pd.DataFrame

    @property
    def methods(self) -> list[str]:
        return list(next(iter(self.scores.values())).columns)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """(datasets, methods) by the mean over seeds; equals share a rank."""
        means = pd.DataFrame({name: table.mean() for name, table in self.scores.items()}).T
        return means.round(10).rank(axis=1, ascending=False)

    @cached_property
    def wins(self) -> dict[str, np.ndarray]:
        """By dataset (seeds, methods, methods): 1 where the first is above the second, half where level."""
        found = {}
        for name, table in self.scores.items():
            values = table.to_numpy().round(10)
            apart = values[:, :, None] - values[:, None, :]
            found[name] = (np.sign(apart) + 1) / 2
        return found

    @property
    def improvement(self) -> pd.DataFrame:
        """(methods, methods): how often the first is above the second, by seed, a mean over datasets."""
        mean = np.mean([wins.mean(axis=0) for wins in self.wins.values()], axis=0)
        return pd.DataFrame(mean, self.methods, self.methods)

    @cached_property
    def resampled(self) -> np.ndarray:
        """(resamples, methods, methods): the same of drawn datasets and seeds."""
        random = np.random.default_rng(0)
        tables = list(self.wins.values())
        drawn = random.multinomial(len(tables), np.full(len(tables), 1 / len(tables)), size=RESAMPLES)
        total = np.zeros((RESAMPLES, len(self.methods) ** 2))
        for number, wins in enumerate(tables):
            flat = wins.reshape(len(wins), -1)
            for time in range(drawn[:, number].max()):
                seeds = random.multinomial(len(wins), np.full(len(wins), 1 / len(wins)), size=RESAMPLES)
                total += (drawn[:, [number]] > time) * (seeds @ flat) / len(wins)
        return (total / len(tables)).reshape(RESAMPLES, len(self.methods), -1)

    @cached_property
    def ratings(self) -> pd.DataFrame:
        """Of each method (rating, low, high): Bradley and Terry's, on Elo's scale, with a mean of zero."""
        found = _ratings(self.improvement.to_numpy()[None], self._prior)[0]
        low, high = np.quantile(_ratings(self.resampled, self._prior), [0.025, 0.975], axis=0)
        return pd.DataFrame({"rating": found, "low": low, "high": high}, self.methods)

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
        """p of Friedman's test that all have the same mean rank."""
        return float(scipy.stats.friedmanchisquare(*(self.ranks[method] for method in self.methods)).pvalue)

    @property
    def critical_difference(self) -> float:
        """Of mean ranks, by Nemenyi's test (Demšar 2006)."""
        k, n = len(self.methods), len(self.scores)
        return float(
            scipy.stats.studentized_range.ppf(0.95, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n))
        )

    def profile(self, within: np.ndarray) -> pd.DataFrame:
        """(points, methods): the share of runs that are within so many points of the best of their seed."""
        gaps = pd.concat([(table.max(axis=1).to_numpy()[:, None] - table) for table in self.scores.values()])
        shares = (100 * gaps.to_numpy()[None] <= within[:, None, None] + 1e-9).mean(axis=1)
        return pd.DataFrame(shares, pd.Index(within, name="points"), self.methods)


def _ratings(wins: np.ndarray, prior: float) -> np.ndarray:
    """(resamples, methods) from (resamples, methods, methods), by minorisation and maximisation."""
    count = wins.shape[-1]
    won = (wins + prior).sum(axis=-1) - (0.5 + prior)  # not against itself
    strength = np.ones(won.shape)
    off = 1 - np.eye(count)
    for _ in range(STEPS):
        met = ((1 + 2 * prior) * off / (strength[:, :, None] + strength[:, None, :])).sum(axis=-1)
        strength = won / met
        strength /= np.exp(np.log(strength).mean(axis=1, keepdims=True))
    return SCALE * np.log(strength)


@lru_cache(maxsize=1)  # a table and four figures ask for the same
def over_datasets(results: Results) -> OverDatasets | None:
    """Where at least three datasets share at least three methods, not too many, and some seeds each."""
    panels = by_dataset(results)
    if len(panels) < FEWEST_DATASETS or not all("method" in panel.varied() for panel in panels.values()):
        return None
    rivals = [label for label in common_labels(panels) if label not in oracles_of(panels)]
    scores = {name: panel.by_seed("last")[rivals].dropna() for name, panel in panels.items()}
    if not FEWEST_METHODS <= len(rivals) <= MOST_METHODS or any(table.empty for table in scores.values()):
        return None
    runs = pd.concat([panel.runs for panel in panels.values()])
    return OverDatasets(scores, results.metric, runs[runs["label"].isin(rivals)])


def why_not(results: Results) -> str:
    """Where methods were compared and nothing is said over datasets: the reason."""
    if results.runs["method"].nunique() < 2 or over_datasets(results) is not None:
        return ""
    count = results.runs["dataset"].nunique()
    if count < FEWEST_DATASETS:
        return f"nothing is said over datasets: there are {count}, and fewer than three cannot be resampled"
    shared = f"{FEWEST_METHODS} to {MOST_METHODS} methods in common"
    return f"nothing is said over datasets: no three have one setting each and {shared}"


def rating_table(results: Results) -> Table | None:
    """Ranks, win rates and ratings over datasets."""
    found = over_datasets(results)
    if found is None:
        return None
    ratings, rates, ranks = found.ratings, found.win_rates, found.ranks.mean()
    first = found.methods[0]
    rows, numbers = [], []
    for method in ranks.sort_values().index:
        rating = ratings.loc[method]
        over = found.improvement.loc[method, first]
        shown = [f"{ranks[method]:.1f}", f"{100 * rates[method]:.0f} %"]
        shown += [f"{rating['rating']:+.0f} [{rating['low']:+.0f}, {rating['high']:+.0f}]"]
        shown += ["reference" if method == first else f"{100 * over:.0f} %"]
        values = [ranks[method], rates[method], rating["rating"], over]
        rows.append([Cell(method, method), *(Cell(t, float(v)) for t, v in zip(shown, values, strict=True))])
        numbers.append(
            {
                "method": method,
                "mean rank": ranks[method],
                "win rate": rates[method],
                **rating,
                f"above {first}": over,
            }
        )
    return Table(
        name="over-datasets",
        section="datasets",
        title=f"Over {len(found.scores)} datasets: ranks, win rates and ratings",
        caption=(
            f"By {found.metric} at the last session. Mean ranks and win rates are of means over seeds: how "
            "often a method is above another on a dataset. Ratings are Bradley and Terry's, on Elo's scale "
            f"with a mean of zero, from who is above whom with the same seed; {RESAMPLED}. The last column "
            f"is how often a method is above {first} with the same seed, a mean over datasets. With so few "
            "datasets all of this is a description of them: overlapping intervals decide nothing."
        ),
        columns=["method", "mean rank", "win rate", "rating", f"above {first}"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(found.runs),
    )
