"""Read the samples of hyperparameter searches and draw them with Optuna's plots."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import matplotlib.style
import numpy as np
import optuna
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryFormatter
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from optuna.distributions import json_to_distribution
from optuna.visualization import matplotlib as plots

from analysis.comparisons import Analysis
from analysis.data.labels import readable
from analysis.figures import style, summary
from analysis.figures.style import Drawing
from hagmeta.common.records.records import StudyFolder

OBJECTIVE = "validation accuracy (%)"
SAMPLE = style.LOOKS[0]


@dataclass(frozen=True)
class Search:
    """The scored samples of a search, in percent."""

    name: str
    study: optuna.Study
    failed: int
    others: int = 0  # searches of the same study that are not drawn

    def words(self) -> str:
        """Return the number of samples in words."""
        text = f"{len(self.study.trials)} samples"
        return text + (f" ({self.failed} failed, not shown)" if self.failed else "")


@contextmanager
def our_style() -> Iterator[None]:
    """Replace the style `ggplot`, which Optuna sets globally, by ours while Optuna draws."""
    library: dict[str, Any] = matplotlib.style.library
    theirs = library["ggplot"]
    library["ggplot"] = style.RC
    try:
        with warnings.catch_warnings(), plt.rc_context(style.RC):
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        library["ggplot"] = theirs


def drawing_of(search: Search, kind: str, title: str, caption: str, figure: Figure) -> Drawing:
    """Return the figure with its title and caption, and close it in pyplot."""
    plt.close(figure)
    name = summary.slug("search", kind, search.name)
    if search.others:
        caption += f" Not drawn: {search.others} more searches of this study."
    return Drawing(name, "search", f"{title}: {search.name}", caption, figure)


def marks(points: Any) -> None:
    """Draw one mark per sample in our colour."""
    points.set_array(None)
    points.set_facecolor(SAMPLE.color)
    points.set_edgecolor(SAMPLE.color)
    points.set_sizes([26])


def sized(axes: Axes, inches: tuple[float, float], layout: Any = "constrained") -> Figure:
    """Return the figure of `axes`, resized to `inches`."""
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.set_layout_engine(layout)
    figure.set_size_inches(*inches)
    return figure


COLUMNS = 3  # of slices


def _draw(search: Search) -> Iterator[Drawing]:
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
        _plain_ticks(each.xaxis)
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
            _plain_ticks(each.yaxis)
            _over_lines(each)
    caption = (
        f"Each line is a sample, through its values and coloured by its score: {search.words()}. The thick"
        " line is the best. A hyperparameter matters if light lines gather on its axis."
    )
    return drawing_of(search, "coordinates", "Parallel coordinates", caption, figure)


def _plain_ticks(axis: Axis) -> None:
    """Label a logarithmic axis with numbers instead of TeX, and categories without the quotes of Python."""
    formatter = axis.get_major_formatter()
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        if high < 100 * low:  # too few powers of ten to read the scale
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    elif isinstance(formatter, StrCategoryFormatter):
        ticks = list(axis.get_majorticklocs())
        values = [ast.literal_eval(text) for text in formatter.format_ticks(ticks)]
        axis.set_ticks(ticks, [readable(value) for value in values])


def _over_lines(axes: Axes) -> None:
    """Draw small tick labels on white, so that the lines behind them stay readable."""
    axes.spines["right"].set(visible=True, color=style.GREY, linewidth=0.8)
    axes.tick_params(axis="y", labelsize=7, length=2, pad=1)
    for label in axes.get_yticklabels():
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.6})


FEWEST_SAMPLES = 8
MOST_SEARCHES = 2  # per study: a dozen methods would give fifty figures


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield four figures for each of the first searches with enough samples."""
    for folder in analysis.results.folders:
        found = _load(StudyFolder(folder), analysis.results.searches.get(folder.name))
        large = [search for search in found if len(search.study.trials) >= FEWEST_SAMPLES]
        for search in large[:MOST_SEARCHES]:
            yield from _draw(replace(search, others=len(large) - len(large[:MOST_SEARCHES])))


def _load(study: StudyFolder, chosen: Mapping[str, Any] | None) -> list[Search]:
    """Return the searches that have chosen configurations; all in the folder if none has."""
    files = sorted(study.searches.glob("*.json"))
    if chosen:
        named = [study.searches / f"{cell['study']}.json" for cell in chosen["cells"]]
        files = [path for path in named if path.is_file()]
    found = []
    for path in files:
        try:
            found.append(_read(path))
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"cannot read {path} ({error}); its figures are left out.", stacklevel=2)
    return found


def _read(path: Path) -> Search:
    """Read a file of ``study/search/files.py``."""
    content = json.loads(path.read_bytes())
    ranges = {key: json_to_distribution(json.dumps(value)) for key, value in content["ranges"].items()}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize")
    failed = 0
    for sample in content["samples"]:
        if sample["state"] == "fail":
            failed += 1
            continue
        values = sample["values"]
        study.add_trial(
            optuna.trial.create_trial(
                params=values,
                distributions={key: ranges[key] for key in values},
                value=100 * sample["objective"],
            )
        )
    return Search(content["title"], study, failed)
