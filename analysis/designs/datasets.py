"""Find the datasets with the same task, and the configurations that they share."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.data.configs import REVISION
from analysis.data.results import Panel, Results

# Each dataset has its own values of these.
OF_THE_DATASET = ("dataset", "classes", "drop_small", "n_way", "k_shot", "sessions", "val_classes", REVISION)


def by_dataset(results: Results) -> dict[str, Panel]:
    """Return the panel of each dataset that has exactly one panel without leaks.

    Return none if fewer than two datasets have one, or if they have different tasks.
    """
    panels = [panel for panel in results.panels if not panel.leaks and len(panel.labels) > 1]
    names = [panel.dataset for panel in panels]
    found = {name: panel for name, panel in zip(names, panels, strict=True) if names.count(name) == 1}
    alike = [key for key in results.keys if key in results.scopes.both and key not in OF_THE_DATASET]
    everyone = pd.concat([panel.runs[alike] for panel in found.values()]) if found else pd.DataFrame()
    one_task = not (everyone.nunique() > 1).any()
    return found if len(found) > 1 and one_task else {}


def oracles_of(panels: Mapping[str, Panel]) -> set[str]:
    """Return the configurations that are oracles on any dataset."""
    return set.union(*(panel.oracles for panel in panels.values()))


def common_labels(panels: Mapping[str, Panel]) -> list[str]:
    """Return the configurations that all `panels` have, in the order of the first panel."""
    shared = set.intersection(*(set(panel.labels) for panel in panels.values()))
    return [label for label in next(iter(panels.values())).labels if label in shared]
