"""Find the methods of a search that ran with the values it chose and with their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.data.results import Panel, Results


@dataclass(frozen=True)
class Tuned:
    """A method with the values that a search chose, and with its default, under one setting."""

    panel: Panel
    method: str  # its title
    chosen: str  # labels
    default: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.panel.title, self.chosen, self.default


def tuned(results: Results, panels: Sequence[Panel]) -> Iterator[Tuned]:
    """Yield each method of a panel that ran with chosen values and with its default."""
    cells = [cell for search in results.searches.values() for cell in search["cells"]]
    pairs = dict.fromkeys((cell["chosen"], cell.get("default")) for cell in cells)  # older: no default
    for panel in panels:
        if panel.pooled:
            continue
        labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
        for chosen, default in pairs:
            if chosen in labels.index and default in labels.index and chosen != default:
                name = str(labels[chosen])
                yield Tuned(panel, name.removesuffix(" (tuned)"), name, str(labels[default]))
