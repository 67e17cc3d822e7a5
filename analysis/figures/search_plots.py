"""Adapt Optuna's plots of a search: history, importances, slices and parallel coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from optuna.visualization import matplotlib as plots

from analysis.drawing import Drawing
from analysis.figures import style
from analysis.figures.search_style import (
    OBJECTIVE,
    SAMPLE,
    Search,
    drawing_of,
    marks,
    our_style,
    sized,
)

COLUMNS = 3  # of slices


def draw(search: Search) -> Iterator[Drawing]:
    """Yield each plot that the samples allow."""
    for figure_of in (_history, _importances, _slices, _coordinates):
        with our_style():
            drawing = figure_of(search)
        if drawing is not None:
            yield drawing


def _history(search: Search) -> Drawing:
    axes = plots.plot_optimization_history(search.study, target_name=OBJECTIVE)
    figure = sized(axes, (style.WIDTH, 3.0))
    axes.legend().remove()  # replaced by our legend
    points = axes.collections[0]
    marks(points)
    best = axes.lines[0]
    best.set(color=style.INK, linewidth=1.4, alpha=1, drawstyle="steps-post")
    axes.set(title=search.name, xlabel="sample, in the order of proposal", ylabel=OBJECTIVE)
    style.legend_below(figure, [points, best], ["sample", "best so far"], columns=2)
    caption = (
        f"Samples in the order in which Optuna proposed them, and the best so far: {search.words()}. The"
        " score is the mean over the seeds of the search on validation nodes. Test labels are"
        " not used. If the best still rises at the end, more samples can help."
    )
    return drawing_of(search, "history", "Search history", caption, figure)


def _importances(search: Search) -> Drawing | None:
    try:
        axes = plots.plot_param_importances(search.study)
    except (ValueError, RuntimeError):  # all scores alike
        return None
    figure = sized(axes, (style.WIDTH, 0.9 + 0.3 * len(axes.patches)))
    axes.legend().remove()  # replaced by our legend
    for bar in axes.patches:
        bar.set_facecolor(SAMPLE.color)
    axes.set(title=search.name, xlabel="share of the score's variation explained", ylabel="")
    axes.grid(axis="y", visible=False)
    caption = (
        "Share of the variation between samples that each hyperparameter explains, by Optuna's default"
        f" evaluator: {search.words()}. With few samples, the order of small bars means little. A"
        " hyperparameter can still matter outside the ranges that were searched."
    )
    return drawing_of(search, "importances", "Hyperparameter importance", caption, figure)


def _slices(search: Search) -> Drawing:
    made: Any = plots.plot_slice(search.study, target_name=OBJECTIVE)
    axes = np.atleast_1d(made)
    rows = -(-len(axes) // COLUMNS)
    figure = sized(axes[0], (style.WIDTH, 1.75 * rows + 0.4))
    axes[-1].collections[0].colorbar.remove()  # colours of the samples' order
    shape = GridSpec(rows, COLUMNS, figure=figure)
    for index, each in enumerate(axes):
        each.set_subplotspec(shape[index // COLUMNS, index % COLUMNS])
        marks(each.collections[0])
        first = index % COLUMNS == 0
        each.tick_params(labelleft=first)
        each.set(title="", ylabel="validation (%)" if first else "")
        each.xaxis.label.set_visible(True)
    figure.suptitle("")
    style.heading(figure, search.name)
    caption = (
        f"Score of every sample against each hyperparameter: {search.words()}. Each panel shows all samples."
        " Look for ranges without good samples. If the best sample is at an edge, the range was too small."
    )
    return drawing_of(search, "slices", "Score by hyperparameter", caption, figure)


def _coordinates(search: Search) -> Drawing:
    axes = plots.plot_parallel_coordinate(search.study, target_name=OBJECTIVE)
    figure = sized(axes, (style.WIDTH, 3.9), None)
    *coordinates, bar = figure.axes[:1] + figure.axes[2:] + figure.axes[1:2]
    bar.set_position((0.9, 0.16, 0.018, 0.76))
    lines = axes.collections[0]
    scores = np.asarray(lines.get_array())
    lines.set_cmap(style.HEAT)
    lines.set_linewidth([2.6 if score == scores.max() else 0.8 for score in scores])
    lines.set_alpha(0.85)
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    labels = [OBJECTIVE, *ticks[1:]]
    axes.set_xticks(axes.get_xticks(), [label.replace("_", "\n").replace(" ", "\n") for label in labels])
    axes.tick_params(axis="x", labelrotation=0, labelsize=7.5, length=0)
    axes.set_title(search.name, y=1.0)
    for each in coordinates:
        each.set_position((0.07, 0.16, 0.76, 0.76))
        each.grid(False)
        each.minorticks_off()
        if each is not axes:
            _over_lines(each)
    caption = (
        f"Each line is a sample, through its values and coloured by its score: {search.words()}. The thick"
        " line is the best. A hyperparameter matters if light lines gather on its axis."
    )
    return drawing_of(search, "coordinates", "Parallel coordinates", caption, figure)


def _over_lines(axes: Axes) -> None:
    """Draw small tick labels on white, so that the lines behind them stay readable."""
    axes.spines["right"].set(visible=True, color=style.GREY, linewidth=0.8)
    axes.tick_params(axis="y", labelsize=7, length=2, pad=1)
    for label in axes.get_yticklabels():
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6})
