"""The figures of benchmarks/scaling.py, from its tables."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from scaling_table import peak

from analysis.figures import style

EDGE_TICKS = [10_000, 100_000, 1_000_000, 10_000_000]


def draw(folder: Path) -> None:
    """For each table in the folder a figure beside it, as PNG and SVG."""
    tables = sorted(folder.glob("edges-*.csv")) + sorted(folder.glob("seeds-*.csv"))
    if not tables:
        raise SystemExit(f"{folder} has no edges-*.csv and no seeds-*.csv; run edges or seeds --out {folder}")
    for path in tables:
        _figure(pd.read_csv(path), path)


@style.styled
def _figure(rows: pd.DataFrame, path: Path) -> None:
    rows["megabytes"] = [peak(row) / 1e6 for row in rows.to_dict("records")]
    figure, ((seconds, memory),) = style.grid(1, 2, 3.3)
    for axes in (seconds, memory):
        axes.set_xscale("log")
        axes.set_yscale("log")
    if path.name.startswith("edges"):
        _against_edges(rows, seconds, memory)
    else:
        _against_seeds(rows, seconds, memory)
    seconds.set_ylabel("seconds a run, of the whole pack")
    memory.set_ylabel("peak memory (MB)")
    on_gpu = bool(rows["peak_gpu_bytes"].iloc[0])
    threads = rows["threads"].iloc[0]
    machine = rows["machine"].iloc[0] + ("" if on_gpu else f", {threads} thread{'s' if threads > 1 else ''}")
    seconds.set_title(f"Time: {machine}")
    memory.set_title("Memory of the GPU" if on_gpu else "Memory of the process, Python included")
    for axes in (seconds, memory):
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_locator(NullLocator())
        axes.legend(loc="upper left")
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=200)
        print(path.with_suffix(suffix))


def _against_edges(rows: pd.DataFrame, seconds: Axes, memory: Axes) -> None:
    for look, (pack, part) in zip(style.LOOKS, rows.groupby("seeds"), strict=False):
        called = "1 seed" if pack == 1 else f"{pack} seeds in a pack"
        for axes, column in ((seconds, "seconds"), (memory, "megabytes")):
            axes.plot(part["edges"], part[column], label=called, **look.line() | {"linestyle": "-"})
    for axes in (seconds, memory):
        axes.set_xlabel("edges (nodes: an eighth, at most 232,965)")
        low, high = rows["edges"].min(), rows["edges"].max()
        axes.xaxis.set_major_locator(FixedLocator([tick for tick in EDGE_TICKS if low <= tick <= high]))
        _make_room(axes, 2)


def _against_seeds(rows: pd.DataFrame, seconds: Axes, memory: Axes) -> None:
    packs = rows["seeds"].to_numpy()
    for axes, column in ((seconds, "seconds"), (memory, "megabytes")):
        values = rows[column].to_numpy()
        axes.plot(packs, values, label="measured", **style.LOOKS[0].line())
        axes.plot(packs, values[0] * packs, "--", label="one seed's, times the seeds", color=style.GREY)
        axes.set_xlabel("seeds in the pack")
        axes.xaxis.set_major_locator(FixedLocator(packs.tolist()))
        _make_room(axes, 2)


def _make_room(axes: Axes, lines: int) -> None:
    """For a legend of so many lines, above what is drawn; and at least from 1 to 5, so that ticks fit."""
    low, high = axes.get_ylim()
    low, high = low / 1.1, max(high, 5 * low)
    axes.set_ylim(low, high * (high / low) ** (0.1 * lines))


def _short(count: float) -> str:
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"
