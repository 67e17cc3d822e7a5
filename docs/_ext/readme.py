"""Fill in the values and the table of README.md, which no program renders: `python docs/_ext/readme.py`.

`<!-- value: ARGUMENT -->...<!-- -->` is a count of what hagmeta contains, the leaderboard, or a value of
stored results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import stored_results

from analysis.references.archives import archive_of, names
from hagmeta import datasets
from hagmeta.common.plugins.identity import is_identity
from hagmeta.methods import METHODS

README = Path(__file__).resolve().parents[2] / "README.md"
VALUE = re.compile(r"<!-- value: (?P<argument>[^>]+?) -->(?P<text>.*?)<!-- -->", re.DOTALL)
FIRST = 10  # methods of the leaderboard
BOUNDS = ("Joint", "Frozen")


def filled(text: str) -> str:
    """Return `text` with what each mark names today."""
    return VALUE.sub(
        lambda mark: f"<!-- value: {mark['argument']} -->{value(mark['argument'])}<!-- -->", text
    )


def value(argument: str) -> str:
    """Return what a mark names."""
    return VALUES[argument]() if argument in VALUES else stored_results.value(argument)


def leaderboard() -> str:
    """Return the first methods by mean rank among tuned ones, and the bounds, which are not tuned."""
    tuned, defaults = (stored_results.runs_of(f"references-{kind}") for kind in ("tuned", "defaults"))
    ranks, means = tuned.over_graphs.ranks.mean().sort_values(), tuned.means()
    untuned, highest = defaults.means(oracles=True), means.idxmax().value_counts()
    rows = [
        [
            *(label, f"{ranks[label]:.1f}", f"{means.loc[label].mean():.1f}"),
            *(f"{untuned.loc[label].mean():.1f}", str(highest.get(label, 0))),
        ]
        for label in ranks.index[:FIRST]
    ]
    rows += [[f"*{label}*", "-", "-", f"{untuned.loc[label].mean():.1f}", "-"] for label in BOUNDS]
    both = replace(tuned, name=f"{tuned.name}, {defaults.name}", records=[*tuned.records, *defaults.records])
    heads = ["method", "mean rank", "tuned on each graph", "with defaults", "graphs where it is highest"]
    return f"\n\n{stored_results._table(heads, rows, 1)}\n\n{stored_results.source(both)}\n\n"


def _methods() -> str:
    return str(sum(not is_identity(name) for name in METHODS))


def _graphs() -> str:
    return str(sum(not name.startswith("synthetic-") for name in datasets.names()))


def _runs() -> str:
    records = [record for name in names() for record in archive_of(name).records]
    found = {(r["config_hash"], r["seed"], *r["revisions"].values()) for r in records}
    return f"{len(found):,}"


VALUES: Mapping[str, Callable[[], str]] = {
    **{"count of methods": _methods, "count of graphs": _graphs, "count of runs": _runs},
    "leaderboard": leaderboard,
}

if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
