"""Pool runs: compare the values of some settings, averaged over all other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.data.labels import rows_of, setting_words
from analysis.data.results import Results
from analysis.words import listed
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records.differences import sort_key


def pooled(results: Results, axes: Sequence[str]) -> Results:
    """Return results with the values of `axes` as configurations, with one run for each of these and seed.

    A run is the mean over the combinations of the other settings that ran with this seed under all values of
    `axes`. Methods stay apart, unless "method" is one of the axes. Methods without such a setting are left
    out.

    Raises:
        UserError: There is no such setting, it is one of the task, or no combination ran under all values.
    """
    for axis in axes:
        choose("setting", axis, results.keys)
        if axis in results.scopes.task:
            raise UserError(_of_the_task(axis))
    axes = list(axes)
    apart = [key for key in ("method", *results.scopes.labels) if key in results.varied() and key not in axes]
    task = results.task
    rest = [key for key in results.varied() if key not in (*task, *axes, *apart)]
    runs = results.runs.dropna(subset=axes).sort_values(axes, key=lambda c: c.map(sort_key), kind="stable")
    kept = pd.concat(_balanced(own, axes, rest) for _, own in _groups(runs, [*task, *apart]))
    if kept.empty:
        raise UserError(f"--by {' --by '.join(axes)}: no combination of {listed(rest)} ran with all values.")
    names = [", ".join(setting_words(key, row[key], row["traits"]) for key in axes) for row in rows_of(kept)]
    which = [*task, *apart, *axes]
    hashes = _groups(kept, which)["config_hash"].transform("first")
    kept = kept.assign(
        label=names, config_hash=hashes, parts=kept["run"], run=_groups(kept, [*which, "seed"]).ngroup()
    )
    settings = (*results.keys, "seed", "run", "parts")
    measured = [name for name in kept.select_dtypes("number") if name not in settings]
    by_run = kept.groupby("run", sort=False)
    others = by_run.first().drop(columns=measured)
    pooled_runs = others.join(by_run[measured].mean()).reset_index()
    pooled_runs["matrix"] = None  # it has no mean over configurations
    sessions = results.sessions.assign(run=results.sessions["run"].map(kept.set_index("parts")["run"]))
    curves = [name for name in sessions if name not in pooled_runs or name == "run"]
    shared = [name for name in sessions if name in pooled_runs]
    by_session = sessions[curves].dropna(subset="run").groupby(["run", "session"]).mean().reset_index()
    return replace(
        results,
        runs=pooled_runs,
        sessions=by_session.merge(pooled_runs[shared], on="run"),
        keys=[key for key in results.keys if key not in rest],
        apart=tuple(apart),
        by=tuple(axes),
        pooled=f"means over all combinations of {listed(rest)}, by seed" if rest else "",
    )


def _of_the_task(axis: str) -> str:
    """Return why the values of a setting of the task are not averaged, and which section has them."""
    headings = dict.fromkeys(("n_way", "k_shot"), "N-way and K-shot")
    headings |= {"dataset": "Ranking over datasets", "protocol": "Strict and released protocol"}
    where = f": section {headings[axis]!r}" if axis in headings else ""
    return (
        f"--by {axis}: {axis} is part of the task, so accuracies with different {axis} are not averaged. "
        f"Without --by {axis}, the report compares each method with itself over {axis}{where}."
    )


def _groups(runs: pd.DataFrame, keys: Sequence[str]) -> pd.api.typing.DataFrameGroupBy:
    return runs.groupby(list(keys), dropna=False, sort=False)


def _balanced(runs: pd.DataFrame, axes: Sequence[str], rest: Sequence[str]) -> pd.DataFrame:
    """Return the runs whose seed and other settings occur under all values of `axes`.

    Settings that some methods do not have are averaged within each method.
    """
    shared = [key for key in rest if runs[key].notna().all()]
    value = _groups(runs, axes).ngroup()
    there = _groups(runs.assign(value=value), [*shared, "seed"])["value"].transform("nunique")
    return runs[there == value.nunique()]
