"""Find runs with several N or K."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from analysis.data.labels import across
from analysis.data.results import Results, common_words

Grid = tuple[str, pd.DataFrame]  # where, and runs with several N or K
PROPOSED = "proposed"  # the role of our methods


def shapes(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the combinations of N and K in `runs`, in order."""
    return runs[["n_way", "k_shot"]].drop_duplicates().sort_values(["n_way", "k_shot"])


def grids(results: Results) -> list[Grid]:
    """Return (where, runs) for settings with several N or K; the column `name` is the configuration."""
    keys = [key for key in results.task if key not in ("n_way", "k_shot", "sessions")]
    if results.sessions_apart:
        keys.append("sessions")
    differ = results.varied()
    told = [key for key in keys if key in differ or key in ("dataset", "protocol")]
    labels = [key for key in results.scopes.labels if key in differ]
    found = []
    for values, alike in results.runs.groupby(keys, dropna=False, sort=False):
        if len(shapes(alike)) < 2:
            continue
        first = dict(zip(keys, values, strict=True))
        words = [str(first[key]) if key in ("dataset", "protocol") else f"{key} {first[key]}" for key in told]
        named = alike.assign(name=across(alike, differ, results.scopes, results.task))
        for runs in results.comparable(named):
            if len(shapes(runs)) > 1:
                found.append((", ".join([*words, *common_words(runs, labels)]), runs))
    return found


def maps(found: Sequence[Grid]) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (where, label, runs) where N and K vary and one method can be compared with others.

    `label` is the first proposed method, or the first method if none is proposed. Oracles are left out.
    """
    mapped = []
    for where, grid in found:
        runs = grid[~grid["oracle"] | grid["leaks"]]
        if all(runs[key].nunique() > 1 for key in ("n_way", "k_shot", "method")):
            own = runs[[traits.role == PROPOSED for traits in runs["traits"]]]
            label = str((own if len(own) else runs)["label"].iloc[0])
            cells = runs.assign(own=runs["label"] == label).groupby(["n_way", "k_shot"])
            whole = runs[cells["own"].transform("any") & (cells["label"].transform("nunique") > 1)]
            if len(shapes(whole)) > 1:
                mapped.append((where, label, whole))
    return mapped


def shots(found: Sequence[Grid]) -> Iterator[tuple[str, str, int, int, int, pd.Series]]:
    """Yield (where, configuration, N, smallest K, largest K, change by seed at the last session)."""
    for where, runs in found:
        for (name, n_way), group in runs.groupby(["name", "n_way"], sort=False):
            few, many = (int(limit(group["k_shot"])) for limit in (min, max))
            ends = [group[group["k_shot"] == k] for k in (few, many)]
            if few < many and not any(end["seed"].duplicated().any() for end in ends):
                less, more = (end.set_index("seed")["last"] for end in ends)
                yield where, str(name), int(n_way), few, many, more - less
