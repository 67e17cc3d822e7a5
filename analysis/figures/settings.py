"""Draw accuracy for each N-way K-shot setting."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.comparisons import Analysis
from analysis.designs.n_and_k import shapes
from analysis.drawing import Drawing
from analysis.figures import names, settings_grid, style, summary
from analysis.frame import Results

MOST_LINES = 4  # configurations in a small panel
MOST_CELLS = 24  # small panels
MOST_NAMES = 1  # configurations with lines and a heat map
MOST_GROUPS = 2  # datasets and protocols


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield small multiples per dataset and protocol, and lines and a heat map for one configuration."""
    groups = list(analysis.grids)
    groups.sort(key=lambda each: (summary.any_leak(each[1]), -len(shapes(each[1]))))
    rest = summary.left_out(MOST_GROUPS, len(groups), "datasets and protocols")
    for words, runs in groups[:MOST_GROUPS]:
        yield _multiples(words, runs, analysis.results, rest)
        for name in _most_settings(runs)[:MOST_NAMES]:
            own = runs[runs["name"] == name]
            ways, shots = own["n_way"].nunique(), own["k_shot"].nunique()
            if shots > 1:
                yield settings_grid.lines(words, name, own)
            if shots > 1 and ways > 1 and len(shapes(own)) > 3:
                yield settings_grid.heat(words, name, own)


def _most_settings(runs: pd.DataFrame) -> list[str]:
    """Return the configurations that ran in more than one setting, those with most settings first."""
    counts = runs.drop_duplicates(["name", "n_way", "k_shot"])["name"].value_counts(sort=False)
    return list(counts[counts > 1].sort_values(ascending=False, kind="stable").index)


@style.styled
def _multiples(words: str, runs: pd.DataFrame, results: Results, rest: str) -> Drawing:
    settings = shapes(runs)
    ways, shots = settings["n_way"].nunique(), settings["k_shot"].nunique()
    whole = len(settings) == ways * shots and 1 < shots <= 5 and ways > 1
    columns = shots if whole else min(3, len(settings))
    drawn = settings.head(MOST_CELLS // columns * columns)
    chosen = (_most_settings(runs) or list(dict.fromkeys(runs["name"])))[:MOST_LINES]
    label_of = dict(zip(runs["name"], runs["label"], strict=True))
    by_label = style.looks(results.labels, [label_of[name] for name in chosen])
    looks = {name: by_label[label_of[name]] for name in chosen}
    rows = -(-len(drawn) // columns)
    figure, axes = style.grid(rows, columns, 1.55 if whole else 2.1, sharey=True)
    named = results.sessions.merge(runs[["run", "name"]], on="run")
    for index, setting in enumerate(drawn.itertuples()):
        here = named[(named["n_way"] == setting.n_way) & (named["k_shot"] == setting.k_shot)]
        _small(axes.flat[index], here, looks, f"{setting.n_way}-way {setting.k_shot}-shot")
    for index, each in enumerate(axes.flat):
        each.set_visible(index < len(drawn))
        each.set_xlabel("session" if index >= len(drawn) - columns else "")
    figure.supylabel(style.ACCURACY, fontsize=9)
    style.heading(figure, summary.with_leak(words, summary.any_leak(runs)))
    style.legend_below(figure, [style.handle(looks[name]) for name in chosen], chosen)
    more = summary.left_out(len(chosen), runs["name"].nunique(), "configurations")
    caption = (
        "Accuracy over all classes seen so far, after each session, with one panel per setting. N is the"
        " number of new classes per session, and K the number of labelled nodes per class."
        f" {summary.band_words(runs)} With a larger N, the same classes arrive in fewer sessions, so compare"
        " only panels with the same N, or lines within a"
        f" panel.{summary.left_out(len(drawn), len(settings))}{more}{rest}"
    )
    title = f"Session curves for each N-way K-shot setting: {words}"
    return Drawing(
        names.slug("settings-curves", words), "settings", title, caption, figure, summary.any_leak(runs)
    )


def _small(axes: Axes, sessions: pd.DataFrame, looks: dict[str, style.Look], title: str) -> None:
    table = summary.estimates(sessions, ("name", "session"), "score")
    for name, look in looks.items():
        if name in table.index:
            line = table.loc[name]
            axes.fill_between(
                line.index, line["low"], line["high"], color=look.color, alpha=0.15, linewidth=0
            )
            axes.plot(line.index, line["mean"], **{**look.line(), "markersize": 3, "linewidth": 1.5})
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_title(title, fontsize=8.5, fontweight="normal")
