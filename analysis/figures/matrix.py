"""Draw forgetting: accuracy after session t on the classes of session j."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis
from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel
from analysis.labels import TOGGLES

MOST_NUMBERED = 12  # with more sessions, cells have no room for numbers


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield the matrices of the reference and of one other configuration, for each setting."""
    panels = [panel for panel in analysis.panels if panel.runs["matrix"].notna().all()]
    chosen = summary.richest(panels, summary.MOST_PANELS)
    for panel in chosen:
        yield _matrices(panel, summary.left_out(len(chosen), len(panels)))


def contrast(panel: Panel) -> str | None:
    """Return the configuration to compare with the reference.

    It is the one with all switches off, otherwise the best other method without oracles, otherwise the worst
    configuration.
    """
    first = panel.runs.drop_duplicates("label").set_index("label")
    apart = {panel.reference, *first.index[first["oracle"]]}
    last = panel.runs.groupby("label", sort=False)["last"].mean().drop(list(apart))
    if last.empty:
        return None
    own = first["method"] == first.loc[panel.reference, "method"]
    off = own & (first.reindex(columns=list(TOGGLES)) == False).all(axis=1)  # noqa: E712
    if off.any() and off.idxmax() != panel.reference:
        return str(off.idxmax())
    others = last[~own[last.index]]
    return str(last.idxmin() if others.empty else others.idxmax())


def mean_matrix(runs: pd.DataFrame) -> np.ndarray:
    """Return the mean over seeds (sessions + 1, sessions + 1) in percent; NaN above the diagonal."""
    sessions = max(map(len, runs["matrix"]))
    filled = np.full((len(runs), sessions, sessions), np.nan)
    for number, rows in enumerate(runs["matrix"]):
        for after, row in enumerate(rows):
            filled[number, after, : len(row)] = row
    held = ~np.isnan(filled).all(axis=0)
    mean = np.full((sessions, sessions), np.nan)
    mean[held] = 100 * np.nanmean(filled[:, held], axis=0)
    return mean


@style.styled
def _matrices(panel: Panel, rest: str) -> Drawing:
    labels = [label for label in (panel.reference, contrast(panel)) if label]
    matrices = [mean_matrix(panel.runs[panel.runs["label"] == label]) for label in labels]
    low, high = (float(limit([limit(m) for m in matrices])) for limit in (np.nanmin, np.nanmax))
    side = style.WIDTH / 2 if len(labels) == 2 else style.WIDTH * 0.62
    figure, ((*axes,),) = style.grid(1, len(labels), side, width=side * len(labels), sharey=True)
    called = names.shown(panel)
    for each, label, values in zip(axes, labels, matrices, strict=True):
        many = len(values) > MOST_NUMBERED
        texts = np.array([["" if many or np.isnan(v) else f"{v:.0f}" for v in row] for row in values])
        image = style.heat_map(each, values, texts, low, high, 7.5)
        step = 5 if many else 1
        ticks = range(0, len(values), step)
        each.set_xticks(ticks, ["known" if tick == 0 else str(tick) for tick in ticks], fontsize=7.5)
        each.set_yticks(ticks, map(str, ticks))
        each.set_title(style.wrapped(called[label], 40), fontweight="normal")
        each.set_xlabel("classes that arrived in session")
    axes[0].set_ylabel("after session")
    figure.colorbar(image, ax=axes, label=style.ACCURACY, location="bottom", shrink=0.5, aspect=35, pad=0.02)
    style.heading(figure, summary.heading(panel))
    both = panel.runs[panel.runs["label"].isin(labels)]
    caption = (
        "Accuracy after each session (rows) on the test nodes of the classes that arrived in each session"
        ' (columns). "Known" means the classes of session 0. Values are means over'
        f" {summary.seeds_of(both)} per configuration. Lighter is higher, on one scale. Read down a column to"
        " see how those classes are forgotten or improve. The diagonal shows the accuracy on the new classes"
        f" of each session.{summary.warning(panel)}{rest}"
    )
    title = f"Forgetting by session: {panel.title}"
    return Drawing(f"matrix-{panel.slug}", "forgetting", title, caption, figure, panel.leaks)
