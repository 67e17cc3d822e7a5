"""Render a card for each embedded graph: `<!-- generate: data-cards -->`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hagmeta.datasets import EMBEDDED, Dataset, describe, load
from tools.datasets.croissant import DATA, SUFFIX, files


def data_cards() -> str:
    """Return the cards of all embedded graphs, from their metadata and their arrays."""
    return "\n\n".join(map(_card, EMBEDDED))


def _card(name: str) -> str:
    card, info = EMBEDDED[name].CARD, describe(name, Path())
    graph = load(name, Path())
    base, train, test = info.class_split or ()
    rows = {
        "source": f"[{card.source}]({card.url})",
        "licence": f"{_licence(card.licence)}{_text(name)}",
        "nodes": card.nodes,
        "classes": card.classes,
        "edges": card.edges,
        "features": card.features,
        "default split": f"{base} base, {train} novel-train and {test} novel-test classes; {info.n_way}-way "
        f"{info.k_shot}-shot. The largest are base. A seed draws the others, their order and the labels.",
        "counts": _counts(graph),
        "measured": " ".join(card.findings),
        "biases": " ".join(card.biases),
        "limits": " ".join(card.limits),
        "cite": card.cite,
        "files": ", ".join(f"`{path.name}` ({path.stat().st_size / 1e6:.2f} MB)" for path in files(name))
        + f", `{name}{SUFFIX}`",
        "rebuild": f"`python -m tools.datasets.build_{name} {name}.npz`",
    }
    lines = [f"| {key} | {value} |" for key, value in rows.items()]
    title = f"{info.description[0].upper()}{info.description[1:]}."
    return "\n".join([f"### `{name}`", "", title, "", "| | |", "|---|---|", *lines])


def _licence(licence: str) -> str:
    """Return an SPDX expression as code, and words as they are."""
    return licence if " " in licence and " AND " not in licence else f"`{licence}`"


def _text(name: str) -> str:
    return f"; text in `{name}.LICENSE`" if (DATA / f"{name}.LICENSE").exists() else ""


def _counts(graph: Dataset) -> str:
    """Return what follows from the arrays: sizes of classes, degrees, homophily and empty nodes."""
    ends = graph.labels[graph.edges]
    shares = np.bincount(ends.ravel()) / ends.size
    least, most = graph.class_sizes.min(), graph.class_sizes.max()
    degrees = np.bincount(graph.edges.ravel(), minlength=graph.num_nodes)
    empty = np.sum(graph.features.getnnz(axis=1) == 0)
    return (
        f"{graph.num_nodes:,} nodes, {len(graph.edges):,} edges, {graph.num_features:,} features, "
        f"{graph.num_classes} classes of {least:,} to {most:,} nodes. "
        f"{np.mean(ends[:, 0] == ends[:, 1]):.0%} of the edges are within a class, "
        f"{np.sum(shares**2):.0%} by chance. A node has {degrees.mean():.1f} neighbours on average. "
        f"{np.sum(degrees == 0):,} nodes have none, and {empty:,} have no feature."
    ).replace("%", " %")


GENERATORS = {"data-cards": data_cards}
