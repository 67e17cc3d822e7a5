"""Terminal output of `python -m hagmeta datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import rich.box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hagmeta.datasets.base import DatasetInfo
from hagmeta.datasets.descriptions.probes import MODEL
from hagmeta.datasets.descriptions.summary import Fold, Summary

BAR = 30  # characters of the longest bar
NAME = 38  # characters of a class name
EIGHTHS = " ▏▎▍▌▋▊▉"


def datasets_table(infos: Sequence[DatasetInfo]) -> Table:
    """Return a table of all named datasets."""
    table = Table(
        title="Datasets",
        caption="also: FILE.npz, mat:PREFIX and synthetic:nodes=N,edges=E,features=F,classes=C",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    table.add_column("name and description", min_width=max(len(info.name) for info in infos))
    for column in ("nodes", "edges", "features", "classes"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("default task", no_wrap=True)
    for info in infos:
        counts = (info.nodes, info.edges, info.features, info.classes)
        split = "/".join(map(str, info.class_split or ()))
        table.add_row(
            f"[bold]{info.name}[/]\n{info.description}{'' if info.on_disk else ' (downloaded on first use)'}",
            *(f"{count:,}" if count is not None else "" for count in counts),
            f"{split}\n{info.n_way}-way {info.k_shot}-shot",
        )
        table.add_section()
    return table


def summary_view(summary: Summary) -> Group:
    """Return the description of one dataset: counts, classes, homophily and linear models."""
    return Group(
        Text.assemble((summary.name, "bold"), ": ", summary.about),
        _facts(summary),
        Text("\nNodes by class", "bold"),
        _classes(summary),
        Text("\nMacro accuracy of a linear model", "bold"),
        _probes(summary),
    )


def share(part: int, whole: int) -> str:
    """Return a count with its percentage, such as "25 (12.5 %)", or "none"."""
    rounded = f"{100 * part / whole:.1f} %" if part >= whole / 1000 else "below 0.1 %"
    return f"{part:,} ({rounded})" if part else "none"


def _fact_rows(summary: Summary) -> Iterator[tuple[str, str]]:
    """Yield names and values of facts about a dataset."""
    yield "nodes", f"{summary.nodes:,}"
    yield "edges", f"{summary.edges:,}"
    yield "features", summary.features_described
    yield "classes", f"{len(summary.classes):,}"
    if summary.unlabelled:
        yield "nodes without a label", share(summary.unlabelled, summary.nodes)
    yield "nodes without features", share(summary.without_features, summary.nodes)
    yield "isolated nodes", share(summary.isolated, summary.nodes)
    yield "degree", ", ".join(f"{degree:,} ({name})" for name, degree in summary.degree_quantiles.items())
    yield (
        "edge homophily",
        f"{summary.homophily:.3f} of edges join nodes of the same class "
        f"({summary.homophily_by_chance:.3f} if edge ends are shuffled)",
    )


def one_line_name(name: str) -> str:
    """Return ``name`` with unprintable characters replaced, so that it cannot break the output."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))


def _facts(summary: Summary) -> Table:
    grid = _grid()
    for name, value in _fact_rows(summary):
        grid.add_row(Text(name, "dim"), Text(value))
    return grid


def _classes(summary: Summary) -> Table:
    grid = _grid()
    grid.add_column(max_width=NAME, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right")
    most = summary.classes[0][1]
    for row in summary.listed_classes():
        if isinstance(row, Fold):
            grid.add_row(Text(f"{row.classes:,} more classes", "dim"), "", Text(_between(row), "dim"))
        else:
            name, size = row
            grid.add_row(Text(one_line_name(name)), f"{size:,}", _bar(size / most))
    return grid


def _between(fold: Fold) -> str:
    sizes = f"{fold.most:,}" if fold.least == fold.most else f"{fold.most:,} to {fold.least:,}"
    return f"with {sizes} nodes each, {fold.nodes:,} in total"


def _probes(summary: Summary) -> RenderableType:
    if not summary.probes:
        return Text("not computed: every class has fewer than 5 nodes")
    grid = _grid()
    for probe in summary.probes:
        grid.add_row(Text(probe.given), _percent(probe.accuracy), _bar(probe.accuracy))
    grid.add_row(Text("chance", "dim"), _percent(summary.chance), _bar(summary.chance))
    return Group(grid, Text(MODEL, "dim"))


def _percent(part: float) -> str:
    return f"{100 * part:5.1f} %"


def _bar(part: float) -> str:
    """Return a bar in steps of an eighth of a character. Any positive value is visible."""
    eighths = max(round(8 * BAR * part), 1 if part else 0)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
