"""Draw accuracy for each N-way K-shot setting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.comparisons import Analysis
from analysis.data.results import Results
from analysis.designs.n_and_k import shapes
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from analysis.statistics.inference import BETTER, WORSE
from analysis.tables.margins import Margin, Margins, as_grid, margins
from analysis.words import points

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
                yield lines(words, name, own)
            if shots > 1 and ways > 1 and len(shapes(own)) > 3:
                yield heat(words, name, own)


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
        f" panel.{summary.left_out(len(drawn), len(settings), 'combinations of N and K')}{more}{rest}"
    )
    title = f"Session curves for each N-way K-shot setting: {words}"
    return Drawing(
        summary.slug("settings-curves", words), "settings", title, caption, figure, summary.any_leak(runs)
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


MEASURES = {"last": "accuracy at the last session (%)", "average": "average over sessions (%)"}


@style.styled
def lines(words: str, name: str, runs: pd.DataFrame) -> Drawing:
    """Return accuracy against K, with one line per N."""
    ways = sorted(runs["n_way"].unique())
    looks = dict(zip(ways, style.LOOKS, strict=False))
    figure, ((*axes,),) = style.grid(1, 2, 3.1)
    for each, (metric, label) in zip(axes, MEASURES.items(), strict=True):
        table = summary.estimates(runs.sort_values("k_shot"), ("n_way", "k_shot"), metric)
        for number, (way, look) in enumerate(looks.items()):
            line = table.loc[way]
            shifted = line.index + 0.1 * (number - (len(looks) - 1) / 2)  # so that bars do not overlap
            style.interval(each, shifted, line["mean"], line["low"], line["high"], **look.line())
        each.set_xticks(sorted(runs["k_shot"].unique()))
        each.set_xlabel("K, labelled nodes per new class")
        each.set_ylabel(label)
    style.heading(figure, summary.with_leak(f"{name}: {words}", summary.any_leak(runs)))
    style.legend(figure, [style.handle(look) for look in looks.values()], [f"N = {way}" for way in looks])
    caption = (
        f"{name}: accuracy against K, with one line per N. {summary.band_words(runs, 'bars')} All lines end"
        " with the same classes; a larger N adds them in larger steps. Look for the K at which more labels"
        " stop helping."
    )
    title = f"Accuracy against labels per class: {name}, {words}"
    return Drawing(
        summary.slug("settings-lines", words, name),
        "settings",
        title,
        caption,
        figure,
        summary.any_leak(runs),
    )


@style.styled
def heat(words: str, name: str, runs: pd.DataFrame) -> Drawing:
    """Return accuracy for each N and K, as numbers and colours."""
    rows, columns = runs["n_way"].nunique(), runs["k_shot"].nunique()
    figure, ((*axes,),) = style.grid(1, 2, max(2.3, 1.2 + 0.42 * rows))
    for each, (metric, label) in zip(axes, MEASURES.items(), strict=True):
        table = summary.estimates(runs, ("n_way", "k_shot"), metric)
        mean = table["mean"].unstack().sort_index().sort_index(axis=1)  # (N, K)
        half = (table["high"] - table["mean"]).unstack().reindex_like(mean)
        texts = np.array(
            [
                [_cell(m, h) for m, h in zip(*pair, strict=True)]
                for pair in zip(mean.values, half.values, strict=True)
            ]
        )
        low, high = np.nanmin(mean.values), np.nanmax(mean.values)
        style.heat_map(each, mean.to_numpy(), texts, low, max(high, low + 1e-9), 8.5 if columns < 5 else 7)
        each.set_xticks(range(columns), map(str, mean.columns))
        each.set_yticks(range(rows), map(str, mean.index))
        each.set_xlabel("K, labelled nodes per new class")
        each.set_title(label, fontweight="normal")
    axes[0].set_ylabel("N, new classes per session")
    style.heading(figure, summary.with_leak(f"{name}: {words}", summary.any_leak(runs)))
    caption = (
        f"{name}: mean accuracy in percent for each N and K, over {summary.seeds_of(runs)}. Numbers after ±"
        " are half of Student's 95 % interval. The two maps have different colour scales."
    )
    title = f"Accuracy for each N and K: {name}, {words}"
    return Drawing(
        summary.slug("settings-heat", words, name), "settings", title, caption, figure, summary.any_leak(runs)
    )


def _cell(mean: float, half: float) -> str:
    if np.isnan(mean):
        return "not run"
    return f"{mean:.1f}" if np.isnan(half) else f"{mean:.1f}\n±{half:.1f}"


MARKS = {BETTER: " ▲", WORSE: " ▼"}
HEAT = "RdBu"  # red is worse, blue is better, and white is no margin


def draw_margins(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a heat map for each dataset in which N, K and the method vary."""
    for found in margins(analysis):
        yield _map(found)


@style.styled
def _map(found: Margins) -> Drawing:
    ways, shots, places = as_grid(found)
    values, texts = np.full(places.shape, np.nan), np.full(places.shape, "not run", dtype=object)
    for place, index in np.ndenumerate(places):
        if index >= 0:
            values[place] = 100 * found.cells[index].lead.mean
            texts[place] = _text(found.cells[index])
    figure, ((axes,),) = style.grid(1, 1, 1.3 + 0.72 * len(ways), width=max(3.8, 1.2 + 1.5 * len(shots)))
    most = max(float(np.nanmax(np.abs(values))), 1e-9)
    image = axes.imshow(np.ma.masked_invalid(values), cmap=HEAT, vmin=-most, vmax=most, aspect="auto")
    for (row, column), text in np.ndenumerate(texts):
        strong = abs(values[row, column]) > 0.6 * most
        color = "white" if strong else style.INK
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=7.5)
    style.bare(axes)
    axes.set_xticks(range(len(shots)), map(str, shots))
    axes.set_yticks(range(len(ways)), map(str, ways))
    axes.set_xlabel("K, labelled nodes per new class")
    axes.set_ylabel("N, new classes per session")
    figure.colorbar(image, ax=axes, label="margin (points)", shrink=0.8)
    leaks = summary.any_leak(found.runs)
    style.heading(figure, summary.with_leak(f"{found.label} minus the best other: {found.where}", leaks))
    caption = (
        "Each cell shows the margin with its interval, and the best other method. ▲ means significantly"
        " better than all others; ▼ means significantly worse than at least one, not always the one that is"
        " named. Values are means over"
        f" {summary.seeds_of(found.runs)} per configuration. {found.words}"
    )
    title = f"Margins over N and K: {found.where}"
    return Drawing(summary.slug("margins", found.where), "settings", title, caption, figure, leaks)


def _text(cell: Margin) -> str:
    mean, *limits = points(cell.lead).split(" ", 1)
    return "\n".join([mean + MARKS.get(cell.verdict, ""), *limits, style.wrapped(cell.rival, 18)])
