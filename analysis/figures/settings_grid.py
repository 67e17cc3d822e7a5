"""Draw one configuration over N and K, as lines against K and as heat maps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.drawing import Drawing
from analysis.figures import names, style, summary

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
        names.slug("settings-lines", words, name), "settings", title, caption, figure, summary.any_leak(runs)
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
        " are half of Student's 95 % interval. Lighter cells are higher. The two maps have different scales."
    )
    title = f"Accuracy for each N and K: {name}, {words}"
    return Drawing(
        names.slug("settings-heat", words, name), "settings", title, caption, figure, summary.any_leak(runs)
    )


def _cell(mean: float, half: float) -> str:
    if np.isnan(mean):
        return "not run"
    return f"{mean:.1f}" if np.isnan(half) else f"{mean:.1f}\n±{half:.1f}"
