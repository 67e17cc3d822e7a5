"""Draw a t-SNE of the embeddings of two configurations after a session, as in the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from threadpoolctl import threadpool_limits

from analysis.comparisons import Analysis
from analysis.data.results import Panel
from analysis.figures import style, summary
from analysis.figures.forgetting import contrast
from analysis.figures.style import Drawing
from hagmeta.common.records.records import StudyFolder

MOST = 2  # figures; each takes seconds
MOST_POINTS = 1000
MOST_COLOURED = 12  # classes
KNOWN_COLOURED = 2  # base classes, and the same number of novel-train classes
MARKERS = {"base": "o", "novel-train": "^", "arrived": "*"}
SIZES = {"base": 14, "novel-train": 16, "arrived": 42}
COLOURS = [look.color for look in style.LOOKS]


@dataclass(frozen=True)
class Cloud:
    """Nodes of one run after one session."""

    points: np.ndarray  # (nodes, width)
    classes: np.ndarray  # (nodes,)
    kinds: np.ndarray  # (nodes,): base, novel-train or arrived
    arrived: np.ndarray  # (nodes,): the session, 0 for classes known from the start
    among: int  # nodes of the file


def draw(analysis: Analysis) -> Iterator[Drawing]:
    """Yield a figure per setting with saved embeddings of one or two configurations."""
    found = [
        (panel, files) for panel in analysis.panels if (files := _files(panel, analysis.results.folders))
    ]
    found.sort(key=lambda each: (each[0].leaks, -len(each[1])))
    for panel, files in found[:MOST]:
        yield _clouds(panel, files, summary.left_out(MOST, len(found)))


def _files(panel: Panel, folders: list[Path]) -> dict[str, Path]:
    """Return files by label: the reference and its contrast, for the first seed and last session of both."""
    rows = []
    for label, name in panel.runs.drop_duplicates("label")[["label", "config_hash"]].to_numpy():
        folders_of_files = (StudyFolder(folder).embeddings / name for folder in folders)
        for path in (path for folder in folders_of_files for path in folder.glob("*.npz")):
            seed, _, session = path.stem.partition("-")
            rows.append((label, int(seed), int(session), path))
    table = pd.DataFrame(rows, columns=["label", "seed", "session", "path"])
    table = table[table["seed"].isin(panel.runs["seed"])].drop_duplicates(["label", "seed", "session"])
    wanted = [label for label in (panel.reference, contrast(panel)) if label in set(table["label"])]
    labels = list(dict.fromkeys([*wanted, *table["label"]]))[:2]
    chosen = table[table["label"].isin(labels)]
    if chosen.empty:
        return {}
    shared = chosen.groupby(["seed", "session"])["label"].nunique()
    best = (
        shared[shared == shared.max()].reset_index().sort_values(["session", "seed"], ascending=[False, True])
    )
    seed, session = best.iloc[0][["seed", "session"]]
    chosen = chosen[(chosen["seed"] == seed) & (chosen["session"] == session)].set_index("label")
    return {label: chosen.loc[label, "path"] for label in labels if label in chosen.index}


def load(path: Path) -> Cloud:
    """Return a uniform sample of at most MOST_POINTS nodes, the same for all files with the same nodes."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in ("embeddings", "labels", "base", "arrived")}
    count = len(arrays["labels"])
    if count > MOST_POINTS:
        keep = np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))
        arrays = {key: array[keep] for key, array in arrays.items()}
    kinds = np.where(arrays["base"], "base", np.where(arrays["arrived"] > 0, "arrived", "novel-train"))
    return Cloud(arrays["embeddings"].astype(float), arrays["labels"], kinds, arrays["arrived"], count)


def coloured(cloud: Cloud) -> list[int]:
    """Return the classes to colour: the latest to arrive, and a few of session 0."""
    table = pd.DataFrame({"label": cloud.classes, "kind": cloud.kinds, "arrived": cloud.arrived})
    table = table.drop_duplicates("label").sort_values(["arrived", "label"], ascending=[False, True])
    came = table[table["kind"] == "arrived"]["label"].head(MOST_COLOURED - 2 * KNOWN_COLOURED)
    known = [table[table["kind"] == kind]["label"].head(KNOWN_COLOURED) for kind in ("novel-train", "base")]
    return [int(label) for label in pd.concat([came, *known])]


@style.styled
def _clouds(panel: Panel, files: dict[str, Path], rest: str) -> Drawing:
    figure, ((*axes,),) = style.grid(1, len(files), 3.9, width=style.WIDTH if len(files) == 2 else 4.6)
    called = summary.shown(panel)
    clouds = {label: load(path) for label, path in files.items()}
    for each, (label, cloud) in zip(axes, clouds.items(), strict=True):
        classes = coloured(cloud)
        _scatter(each, cloud, dict(zip(classes, COLOURS, strict=False)))
        apart = silhouette_score(cloud.points, cloud.classes)
        each.set_title(f"{style.wrapped(called[label], 44)}\nsilhouette {apart:.2f}", fontweight="normal")
    seed, _, session = next(iter(files.values())).stem.partition("-")
    style.heading(figure, f"{summary.heading(panel)}; after session {session}, seed {seed}")
    style.legend_below(figure, *_entries(), columns=3)
    rest_count = len(np.unique(cloud.classes)) - len(classes)
    caption = (
        f"t-SNE of the embeddings of {_nodes(cloud)} after session {session} with seed {seed} (scikit-learn,"
        f" perplexity 30, seeded). {len(classes)} classes have a colour and a number: the latest to arrive,"
        f" and a few of session 0. The nodes of the other {rest_count} classes are light grey."
        " Circles are base classes, triangles novel-train classes, and stars classes that arrived in"
        " sessions. Look for stars that are separate from grey. Distances between distant groups have no"
        " meaning. The silhouette (1: well separated, 0: not separated) is computed in the embedding space,"
        f" over the same nodes. One seed is an illustration, not evidence.{summary.warning(panel)}{rest}"
    )
    title = f"Embeddings after session {session}: {panel.title}"
    return Drawing(f"tsne-{panel.slug}", "embeddings", title, caption, figure, panel.leaks)


def _nodes(cloud: Cloud) -> str:
    few = len(cloud.classes)
    return (
        f"{few} test nodes" if few == cloud.among else f"{few} of {cloud.among} test nodes (a uniform sample)"
    )


def _scatter(axes: Axes, cloud: Cloud, colours: dict[int, str]) -> None:
    nearest = min(30.0, (len(cloud.points) - 1) / 3)
    with threadpool_limits(1):  # more threads are slower with so few points
        layout = TSNE(perplexity=nearest, init="pca", random_state=0, max_iter=500)
        flat = layout.fit_transform(cloud.points)  # (nodes, 2)
    has_colour = np.isin(cloud.classes, list(colours))
    for kind, marker in MARKERS.items():
        options: dict[str, Any] = {"marker": marker, "s": SIZES[kind], "linewidths": 0.3, "rasterized": True}
        faint = flat[~has_colour & (cloud.kinds == kind)]
        axes.scatter(*faint.T, color="#d9d9d9", **options, zorder=1)
        own = has_colour & (cloud.kinds == kind)
        options |= {
            "facecolors": [colours[int(label)] for label in cloud.classes[own]],
            "edgecolors": "white",
        }
        axes.scatter(*flat[own].T, **options, zorder=2)
    for label, colour in colours.items():
        x, y = np.median(flat[cloud.classes == label], axis=0)
        axes.text(
            x, y, str(label), color=colour, weight="bold", ha="center", va="center", path_effects=style.HALO
        )
    axes.set_axis_off()


def _entries() -> tuple[list[Line2D], list[str]]:
    lines = [
        Line2D([], [], linestyle="none", marker=marker, color=style.INK, markersize=6)
        for marker in MARKERS.values()
    ]
    return lines, ["base class", "novel-train class", "class that arrived in a session"]
