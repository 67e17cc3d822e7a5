"""Draw methods over datasets: critical differences, pairwise wins, ratings and performance profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from analysis.comparisons import Analysis
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.statistics.over_datasets import OverDatasets
from analysis.tables.over_datasets import friedman_words, rating_words
from analysis.words import are, listed, some

MOST_PROFILES = 12  # the legend has no room for more
MOST_NUMBERS = 20  # methods whose pairs have legible numbers in their cells
WITHIN = np.linspace(0, 20, 201)  # points below the best


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield four figures if at least three datasets share methods."""
    found = analysis.over_datasets
    if found is not None:
        yield _critical(found)
        yield _improvement(found)
        yield _ratings(found)
        yield _profiles(found, analysis.results.labels)


def _named(found: OverDatasets, name: str, title: str, caption: str, figure: Any) -> Drawing:
    seeds = summary.seeds_of(found.runs)
    by = (
        f" The score is {found.metric} at the last session, with {seeds} per method and dataset, on"
        f" {listed(list(found.scores))}."
    )
    return Drawing(f"over-datasets-{name}", "datasets", title, caption + by, figure)


@style.styled
def _critical(found: OverDatasets) -> Drawing:
    ranks = found.ranks.mean().sort_values()
    far = found.critical_difference
    figure, ((axes,),) = style.grid(1, 1, 1.0 + 0.26 * len(ranks))
    axes.plot(ranks.to_numpy(), range(len(ranks)), "o", color=style.INK)
    for row, (_, rank) in enumerate(ranks.items()):
        axes.plot([rank, min(rank + far, len(ranks))], [row, row], color=style.GREY, linewidth=2.5, zorder=1)
    _rows(axes, list(ranks.index))
    axes.set_xlim(0.8, len(ranks) + 0.2)
    axes.set_xlabel("mean rank")
    style.heading(figure, f"critical difference {far:.1f} ranks")
    count = len(found.scores)
    apart = found.apart
    worse = f"{some(apart)} {are(apart)}" if apart else "No other method is"
    caption = (
        f"Mean ranks (dots) over {count} datasets, by means over seeds. Bars show the critical difference of "
        "Nemenyi's test at 5 %. Methods beyond the end of a bar are significantly worse than its method. "
        f"{worse} significantly worse than {ranks.index[0]}. {friedman_words(found)} This p is rough with "
        "few datasets."
    )
    return _named(found, "ranks", "Mean ranks and critical difference", caption, figure)


@style.styled
def _improvement(found: OverDatasets) -> Drawing:
    order = list(found.ranks.mean().sort_values().index)
    shares = 100 * found.improvement.loc[order, order]
    figure, ((axes,),) = style.grid(1, 1, 1.2 + 0.3 * len(order))
    mask = np.eye(len(order), dtype=bool)
    bar = {"label": "seeds with the row above (%)", "shrink": 0.7}
    crowded = len(order) > MOST_NUMBERS
    options: dict[str, Any] = {
        "vmin": 0,
        "vmax": 100,
        "cmap": "RdBu",
        "annot_kws": {"fontsize": min(7.5, 125 / len(order))},
    }
    sns.heatmap(shares, ax=axes, mask=mask, annot=not crowded, fmt=".0f", cbar_kws=bar, **options)
    style.bare(axes)
    numbers = range(1, len(order) + 1)
    axes.set_ylabel("")
    axes.set_xlabel("the same methods, by number")
    axes.set_xticklabels(map(str, numbers), rotation=90 * crowded)
    axes.set_yticklabels(
        [f"{_short(name)}  {row}" for row, name in zip(numbers, order, strict=True)], rotation=0
    )
    caption = (
        "How often the method of the row is above the method of the column with the same seed. Each cell is"
        " the share of seeds, averaged over datasets; ties count half. There are no intervals."
    )
    return _named(found, "improvement", "Probability of improvement, all pairs", caption, figure)


@style.styled
def _ratings(found: OverDatasets) -> Drawing:
    table = found.ratings.sort_values("rating", ascending=False)
    figure, ((axes,),) = style.grid(1, 1, 1.0 + 0.26 * len(table))
    options: dict[str, Any] = {"fmt": "o", "color": style.LOOKS[0].color}
    rows = np.arange(len(table))
    style.interval(axes, table["rating"], rows, table["low"], table["high"], horizontal=True, **options)
    _rows(axes, list(table.index))
    axes.set_xlabel("rating (400 points: odds of ten to one)")
    caption = rating_words(found)
    return _named(found, "ratings", "Ratings", caption, figure)


@style.styled
def _profiles(found: OverDatasets, everyone: list[str]) -> Drawing:
    table = found.profile(WITHIN)
    far = WITHIN[np.argmax((table >= 0.9999).all(axis=1).to_numpy())] or WITHIN[-1]
    long = (100 * table.loc[: far * 1.02]).melt(ignore_index=False, var_name="method", value_name="share")
    apart = everyone[: len(style.LOOKS)]  # later ones have no unique look
    best = [str(method) for method in found.ranks.mean().sort_values().index if method in apart]
    looks = style.looks(everyone, best[:MOST_PROFILES])
    figure, ((axes,),) = style.grid(1, 1, 3.4)
    for method, look in looks.items():
        own = long[long["method"] == method]
        line = look.line() | {"marker": "none", "label": method}
        axes.step(own.index, own["share"], where="post", **line)
    axes.set_xlabel("points below the best method of the dataset and seed")
    axes.set_ylabel("runs within (%)")
    style.legend(figure, *axes.get_legend_handles_labels())
    caption = (
        "Performance profiles: the share of runs, over all datasets and seeds, at most x points below the "
        "best method with the same seed and dataset. Up and to the left is better. There are no "
        f"intervals.{summary.left_out(len(looks), len(found.methods), 'methods')}"
    )
    return _named(found, "profiles", "Performance profiles", caption, figure)


def _rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), map(_short, labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _short(label: str) -> str:
    """Return `label` in at most two lines, to leave room for the axes."""
    lines = style.wrapped(label, 36).split("\n")
    return "\n".join(lines[:2]) + (" …" if len(lines) > 2 else "")
