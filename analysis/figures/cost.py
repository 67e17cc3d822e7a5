"""What accuracy costs: seconds a run against accuracy at the last session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from analysis.drawing import Drawing
from analysis.figures import names, style, summary
from analysis.frame import Panel, Results

MOST = 3  # figures
MOST_NAMED = 10  # configurations; of more, three have names


def draw(results: Results) -> Iterator[Drawing]:
    """A point a configuration, in each setting whose runs shared a kind of device and a size of pack."""
    panels = [panel for panel in summary.panels(results) if _comparable(panel)]
    chosen = summary.richest(panels, MOST)
    for panel in chosen:
        yield _points(panel, summary.left_out(len(chosen), len(panels)))


def _comparable(panel: Panel) -> bool:
    same = all(panel.runs[key].nunique(dropna=False) == 1 for key in ("device", "seeds_in_pack"))
    return same and panel.runs["device"].notna().all() and len(panel.labels) > 1


@style.styled
def _points(panel: Panel, rest: str) -> Drawing:
    accuracy = summary.estimates(panel.runs, ["label"], "last")
    seconds = summary.estimates(panel.runs, ["label"], "seconds") / 100  # not a percentage
    crowded = len(accuracy) > MOST_NAMED
    best, worst = accuracy["mean"].idxmax(), accuracy["mean"].idxmin()
    roles = {worst: "lowest", best: "highest", panel.reference: "reference"}
    chosen = [label for label in panel.labels if not crowded or label in roles]
    figure, ((axes,),) = style.grid(1, 1, 3.6)
    if crowded:
        rest_of = accuracy.index.difference(chosen)
        axes.plot(seconds["mean"][rest_of], accuracy["mean"][rest_of], "o", color=style.GREY, markersize=3)
    called, looks = names.shown(panel), style.looks(panel.labels, chosen)
    for label, look in looks.items():
        point, time = accuracy.loc[label], seconds.loc[label]
        options: dict[str, Any] = {"fmt": look.marker, "color": look.color, "markersize": 6.5, "alpha": 0.9}
        style.interval(axes, time["mean"], point["mean"], point["low"], point["high"], **options)
        style.interval(
            axes, time["mean"], point["mean"], time["low"], time["high"], horizontal=True, **options
        )
    if seconds["mean"].max() > 8 * seconds["mean"].min():
        axes.set_xscale("log")
    axes.set_xlabel("seconds a run")
    axes.set_ylabel("accuracy at the last session (%)")
    axes.set_title(summary.heading(panel))
    words = [called[label] + (f" ({roles[label]})" if crowded else "") for label in looks]
    style.legend(figure, [style.handle(look, linestyle="none") for look in looks.values()], words)
    device, pack = panel.runs["device"].iloc[0], panel.runs["seeds_in_pack"].iloc[0]
    caption = (
        f"Mean seconds a run, on {device} with {pack} seeds computed together and their time shared out"
        " evenly,"
        f" against accuracy at the last session. {summary.band_words(panel.runs, 'bars')} Pre-training that"
        " configurations share is counted for the one that ran first, and runs beside each other share the"
        " machine: read large differences only. Up and to the left is better."
        f"{' Grey: the other configurations.' if crowded else ''}{summary.warning(panel)}{rest}"
    )
    return Drawing(f"cost-{panel.slug}", "cost", f"What accuracy costs: {panel.title}", caption, figure)
