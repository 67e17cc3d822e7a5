"""Methods over datasets: critical differences, who is above whom, ratings and performance profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes

from analysis.drawing import Drawing
from analysis.figures import style, summary
from analysis.frame import Results
from analysis.over_datasets import OverDatasets, over_datasets, rating_words
from analysis.words import p_value, some

MOST_PROFILES = 12  # that a legend has room for
WITHIN = np.linspace(0, 20, 201)  # points below the best


def draw(results: Results) -> Iterator[Drawing]:
    """Four figures where at least three datasets share methods."""
    found = over_datasets(results)
    if found is not None:
        yield _critical(found)
        yield _improvement(found)
        yield _ratings(found)
        yield _profiles(found, results.labels)


def _named(found: OverDatasets, name: str, title: str, caption: str, figure: Any) -> Drawing:
    by = f" By {found.metric} at the last session, on {', '.join(found.scores)}."
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
    said = f"behind {ranks.index[0]}: {some(apart)}" if apart else "none is told from the first"
    caption = (
        f"Mean ranks over {count} datasets, the datasets being what is sampled; seeds enter by their means. "
        "Bars are the critical difference of Nemenyi's test at 5 %: who stands beyond a bar's end is told "
        f"from the bar's method. Here {said}. Friedman's test that all are alike: {p_value(found.friedman)}, "
        "a rough value for so few datasets."
    )
    return _named(found, "ranks", "Mean ranks and critical difference", caption, figure)


@style.styled
def _improvement(found: OverDatasets) -> Drawing:
    order = list(found.ranks.mean().sort_values().index)
    shares = 100 * found.improvement.loc[order, order]
    figure, ((axes,),) = style.grid(1, 1, 1.2 + 0.3 * len(order))
    mask = np.eye(len(order), dtype=bool)
    bar = {"label": "seeds in which the row is above (%)", "shrink": 0.7}
    options: dict[str, Any] = {
        "vmin": 0,
        "vmax": 100,
        "cmap": "RdBu",
        "annot_kws": {"fontsize": min(7.5, 125 / len(order))},
    }
    sns.heatmap(shares, ax=axes, mask=mask, annot=True, fmt=".0f", cbar_kws=bar, **options)
    style.bare(axes)
    numbers = range(1, len(order) + 1)
    axes.set_ylabel("")
    axes.set_xlabel("the same, by number")
    axes.set_xticklabels(map(str, numbers), rotation=0)
    axes.set_yticklabels(
        [f"{_short(name)}  {row}" for row, name in zip(numbers, order, strict=True)], rotation=0
    )
    caption = (
        "Of every pair, how often the row's method is above the column's with the same seed: a mean over the"
        " datasets of shares of seeds, level counting half; nothing is resampled."
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
    axes.set_xlabel("rating (400: ten to one)")
    caption = rating_words(found)
    return _named(found, "ratings", "Ratings", caption, figure)


@style.styled
def _profiles(found: OverDatasets, everyone: list[str]) -> Drawing:
    table = found.profile(WITHIN)
    far = WITHIN[np.argmax((table >= 0.9999).all(axis=1).to_numpy())] or WITHIN[-1]
    long = (100 * table.loc[: far * 1.02]).melt(ignore_index=False, var_name="method", value_name="share")
    apart = everyone[: len(style.LOOKS)]  # by their looks
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
        "Performance profiles: the share of runs, over all datasets and seeds, that are within so many "
        "points of the best method with the same seed on the same dataset. Up and to the left is better; "
        f"nothing is resampled.{summary.left_out(len(looks), len(found.methods), 'methods')}"
    )
    return _named(found, "profiles", "Performance profiles", caption, figure)


def _rows(axes: Axes, labels: list[str]) -> None:
    axes.set_yticks(range(len(labels)), map(_short, labels))
    axes.set_ylim(len(labels) - 0.5, -0.5)


def _short(label: str) -> str:
    """In at most two lines, which leave the axes room."""
    lines = style.wrapped(label, 36).split("\n")
    return "\n".join(lines[:2]) + (" …" if len(lines) > 2 else "")
