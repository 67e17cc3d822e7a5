"""Draw the README's picture: `python benchmarks/curves.py results/comparison_tuned_48 OUT.png`."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.data import reading
from analysis.figures import style, summary

DATASETS = {"debian": "Debian", "metamath": "Metamath", "wordnet": "WordNet"}
METHODS = {  # drawn in this order
    "joint": "Joint (GNN, all training labels)",
    "posterior-means": "Posterior means (new)",
    "ranpac": "RanPAC",
    "sgc-lda": "SGC-LDA",
    "hag-meta": "HAG-Meta",
    "frozen": "Frozen (learns nothing)",
}


@style.styled
def draw(study: Path, out: Path) -> None:
    """Draw macro accuracy by session with 95 % intervals, one panel per dataset, for `METHODS`."""
    panels = reading.read([study]).panels
    figure, (row,) = style.grid(1, len(panels), 2.9, sharey=True)
    for axes, panel in zip(row, panels, strict=True):
        methods = panel.runs.drop_duplicates("label").set_index("label")["method"]
        rows = panel.sessions.assign(method=panel.sessions["label"].map(methods))
        table = summary.estimates(rows, ("method", "session"), "score")
        for look, (method, title) in zip(style.LOOKS, METHODS.items(), strict=False):
            part = table.loc[method]
            line = look.line() | ({"color": style.GREY, "linestyle": "--"} if method == "joint" else {})
            axes.plot(part.index, part["mean"], label=title, **line)
            axes.fill_between(part.index, part["low"], part["high"], color=line["color"], alpha=0.15, lw=0)
        style.whole_sessions(axes, int(panel.sessions["session"].max()))
        axes.set_title(DATASETS[str(panel.runs["dataset"].iloc[0])])
    row[0].set_ylabel("macro accuracy (%)")
    figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(out, dpi=160)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder of a study with the methods of the picture")
    parser.add_argument("out", type=Path, help="image to write")
    arguments = parser.parse_args()
    draw(arguments.study, arguments.out)
