"""Make the tables of a panel: summary, sessions and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis, Comparisons
from analysis.data.reading import last_and_average
from analysis.data.results import PER_RUN, Panel
from analysis.statistics.estimates import (
    HALVES,
    Estimate,
    adjusted_means,
    estimates,
    rank_correlation,
    ranks_of,
    times_first,
)
from analysis.tables.cells import (
    ABOUT_RANKS,
    BOLD,
    DIFFERENCES,
    INTERVAL,
    by_rank,
    difference_cell,
    estimate_cell,
    notes_of,
    numbers_of,
    seed_count,
    top_of,
    verdict_cell,
)
from analysis.tables.cost import cost_table
from analysis.tables.designs import (
    ablation_table,
    effects_table,
    protocol_tables,
    sensitivity_table,
    settings_tables,
    shots_tables,
)
from analysis.tables.diagnostics import ages_table, attention_table
from analysis.tables.searches import search_tables, tuning_table
from analysis.tables.table import Cell, Table
from analysis.words import listed
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS, MetricDeclaration

AT_THE_LAST_SESSION = {each.title: each.name for each in BUILT_IN if each.shown and each.by_session}
OVER_ALL_SESSIONS = {each.title: each.name for each in BUILT_IN if each.name in PER_RUN}
TOLD_AT_THE_LAST_SESSION = {each.title: each.name for each in DIAGNOSTICS if each.shown}
LOW_IS_GOOD = [each.title for each in (*BUILT_IN, *DIAGNOSTICS) if not each.higher_is_better]
ABOUT_SIDES = "Base and novel are accuracies at the last session, on classes of session 0 and on later ones."
ABOUT_BWT = (
    " BWT (backward transfer) is the final accuracy of each earlier task minus its accuracy when it arrived, "
    "averaged over tasks."
)
CALIBRATION = "calibration error"
ABOUT_CALIBRATION = (
    " Calibration error is the mean gap between the confidence and the accuracy of predictions, over bins of "
    "confidence (lower is better)."
)
TEMPERED = "calibration error after temperature scaling"
ABOUT_TEMPERED = (
    " Temperature scaling fits one temperature per run to validation nodes of the classes known at session 0."
)


def make_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield the tables of each panel, and those of settings, protocols and cost."""
    results, told = analysis.results, analysis.comparisons
    for panel in analysis.panels:
        yield summary_table(panel, told)
        yield sessions_table(panel, told)
        yield metrics_table(panel, told)
        if table := other_metrics_table(panel, results.others, told):
            yield table
        if table := ages_table(panel, by_rank(panel)):
            yield table
        for factorial in analysis.factorials(panel):
            yield ablation_table(factorial, told)
            yield effects_table(factorial, told)
        if len(analysis.one_at_a_time(panel)) > 1:
            yield sensitivity_table(analysis, panel)
        if table := attention_table(panel):
            yield table
    if gains := tuning_table(analysis):
        yield gains
    yield from search_tables(results.searches)
    yield from settings_tables(analysis)
    yield from shots_tables(analysis)
    yield from protocol_tables(analysis)
    yield cost_table(results)


def summary_table(panel: Panel, told: Comparisons) -> Table:
    """Return accuracies, ranks and differences from the reference, the highest row first."""
    columns = {moment: estimates(panel.by_seed(moment)) for moment in ("first", "average", "last")}
    end = int(panel.sessions["session"].max())
    sides = {name: estimates(panel.by_seed(f"{name}_score", end)) for name in ("base", "novel") if end}
    tests = told.against(panel, panel.reference)
    top, ordered = top_of(panel, told), by_rank(panel)
    means = adjusted_means(panel.by_seed("last")[panel.rivals])
    ranks = ranks_of(panel.by_seed("last")[panel.rivals])
    gaps = means - means.max()
    ranked = len(panel.rivals) > 1
    rows = []
    for label in ordered:
        cells = [estimate_cell(found[label]) for found in columns.values()]
        cells[-1] = replace(cells[-1], best=label in top)
        cells += [_mean_cell(found[label].mean) for found in sides.values()]
        if ranked:
            cells += [_rank_cell(ranks.get(label, np.nan)), _gap_cell(gaps.get(label, np.nan))]
        tested = [difference_cell(tests.get(label)), verdict_cell(tests.get(label))] if tests else []
        rows.append([Cell(label, label), seed_count(panel, label), *cells, *tested])
    about = [
        INTERVAL,
        *([ABOUT_SIDES] if sides else []),
        *([ABOUT_RANKS] if ranked else []),
        *([f"{DIFFERENCES} {told.reference_words}"] if tests else []),
        *([BOLD] if top else []),
    ]
    found = Table(
        name=f"summary-{panel.slug}",
        section=_section(panel),
        title=f"First session, average and last session: {panel.title}",
        caption=" ".join(about),
        columns=[
            *("configuration", "seeds", *columns, *sides),
            *(["rank", "gap to best"] if ranked else []),
            *(["last minus reference", "verdict"] if tests else []),
        ],
        rows=rows,
        numbers=numbers_of(panel, columns | sides, tests, ranks),
        notes=[*_stability(panel), *notes_of(panel, told)],
        reference=ordered.index(panel.reference) if tests else None,
        leaks=panel.leaks,
        badge=panel.badge,
        extra=("seeds", "first", "average", *sides, "gap to best", "last minus reference"),
    )
    return replace(found, paper=_for_paper(found, bool(tests)))


def _stability(panel: Panel) -> list[str]:
    """Return how often the first rank stays the same in random halves of the seeds."""
    last = panel.by_seed("last")[panel.rivals]
    if len(panel.rivals) < 2 or panel.badge or ranks_of(last).isna().any():
        return []
    return [
        f"In {times_first(last)} of {HALVES} random halves of the seeds, {by_rank(panel)[0]} ranks first."
    ]


def _for_paper(table: Table, tested: bool) -> Table:
    """Return a narrow version for LaTeX, with intervals in its last two columns only."""
    rows = []
    for name, _, first, average, last, *rest in table.rows:
        means = [replace(cell, text=cell.text.partition(" ")[0]) for cell in (first, average)]
        rows.append([name, *means, last, *(rest[-2:-1] if tested else [])])
    return replace(
        table, columns=["", "first", "avg.", "last", *(["difference"] if tested else [])], rows=rows
    )


def _section(panel: Panel) -> str:
    return "comparison" if "method" in panel.varied() else "curves"


def sessions_table(panel: Panel, told: Comparisons) -> Table:
    """Return means by session with PD and RPD, in the form of the paper's Table 2."""
    sessions = sorted(panel.sessions["session"].unique())
    columns = {str(session): estimates(panel.by_seed("score", session)) for session in sessions}
    columns |= {"PD": estimates(panel.by_seed("pd")), "RPD": estimates(panel.by_seed("rpd"))}
    return Table(
        name=f"sessions-{panel.slug}",
        section=_section(panel),
        title=f"Accuracy by session: {panel.title}",
        caption=(
            "Values are means over the seeds, in percent. The CSV file has the intervals. PD is the drop "
            "from session 0 to the last session, in points. RPD is PD as a share of session 0. A low start "
            "can make a drop small."
        ),
        columns=["configuration", "seeds", *columns],
        rows=[
            [
                Cell(label, label),
                seed_count(panel, label),
                *(_mean_cell(found[label].mean) for found in columns.values()),
            ]
            for label in by_rank(panel)
        ],
        numbers=numbers_of(panel, columns, {}),
        notes=notes_of(panel, told),
        leaks=panel.leaks,
        badge=panel.badge,
    )


def _mean_cell(mean: float) -> Cell:
    return Cell("", None) if np.isnan(mean) else Cell(f"{100 * mean:.1f}", float(mean))


def metrics_table(panel: Panel, told: Comparisons) -> Table:
    """Return every metric at the last session."""
    tables = metric_tables(panel)
    notes = [order_words(panel, tables)] if len(panel.labels) > len(panel.oracles) + 1 else []
    columns = {name: estimates(table) for name, table in tables.items()}
    rows = [
        [Cell(label, label), seed_count(panel, label)]
        + [estimate_cell(found[label]) for found in columns.values()]
        for label in by_rank(panel)
    ]
    return Table(
        name=f"metrics-{panel.slug}",
        section=_section(panel),
        title=f"All metrics: {panel.title}",
        caption=(
            f"{INTERVAL} Metrics are measured at the last session; {listed(over_sessions(tables))} cover all "
            "sessions. Accuracy gives each query the same weight, macro metrics each class seen so far. Base "
            "classes are those known at session 0, and novel classes all later ones. Harmonic is the "
            "harmonic mean of both accuracies. Forgetting is the best earlier accuracy of each task minus "
            "its final one, averaged over tasks (lower is better, and it can be negative)."
            f"{ABOUT_BWT if 'BWT' in tables else ''}"
            f"{ABOUT_CALIBRATION if CALIBRATION in tables else ''}"
            f"{ABOUT_TEMPERED if TEMPERED in tables else ''}"
        ),
        columns=["configuration", "seeds", *tables],
        rows=rows,
        numbers=numbers_of(panel, columns, {}),
        notes=[*notes, *notes_of(panel, told)],
        leaks=panel.leaks,
        badge=panel.badge,
    )


def metric_tables(panel: Panel) -> dict[str, pd.DataFrame]:
    """Return a table (seeds, configurations) for each metric, by its title."""
    last = int(panel.sessions["session"].max())
    tables = {name: panel.by_seed(column, last) for name, column in AT_THE_LAST_SESSION.items()}
    for name, column in {"average": "average", **OVER_ALL_SESSIONS}.items():
        if panel.runs[column].notna().any():
            tables[name] = panel.by_seed(column)
    for name, column in TOLD_AT_THE_LAST_SESSION.items():
        if panel.sessions[column].notna().any():
            tables[name] = panel.by_seed(column, last)
    return tables


def over_sessions(tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return the metrics in `tables` that cover all sessions."""
    return [name for name in ("average", *OVER_ALL_SESSIONS) if name in tables]


def other_metrics_table(panel: Panel, others: Sequence[MetricDeclaration], told: Comparisons) -> Table | None:
    """Return the metrics that are not built in, or None if these runs have none."""
    there = {
        title: (column, each)
        for each in others
        if each.shown
        for title, column in last_and_average(each).items()
        if panel.runs[column].notna().any()
    }
    if not there:
        return None
    columns = {title: estimates(panel.by_seed(column)) for title, (column, _) in there.items()}
    best = {title: _best_mean(panel, column, each) for title, (column, each) in there.items()}
    low = list(dict.fromkeys(each.title for _, each in there.values() if not each.higher_is_better))
    about = [
        "Values are means ± 95 % intervals over the seeds (Student's t), in the units of each metric.",
        *([f"Lower is better: {', '.join(low)}."] if low else []),
        *(["Bold marks the best mean without oracles; it is not tested."] if any(best.values()) else []),
    ]
    return Table(
        name=f"other-metrics-{panel.slug}",
        section=_section(panel),
        title=f"Other metrics: {panel.title}",
        caption=" ".join(about),
        columns=["configuration", "seeds", *columns],
        rows=[
            [Cell(label, label), seed_count(panel, label)]
            + [_plain_cell(found[label], best=best[title] == label) for title, found in columns.items()]
            for label in by_rank(panel)
        ],
        numbers=numbers_of(panel, columns, {}),
        notes=notes_of(panel, told),
        leaks=panel.leaks,
        badge=panel.badge,
    )


def _best_mean(panel: Panel, column: str, metric: MetricDeclaration) -> str | None:
    """Return the configuration with the best mean, or None without a rival or with too few seeds to test."""
    means = adjusted_means(panel.by_seed(column)[panel.rivals]).dropna()
    if len(means) < 2 or panel.badge:
        return None
    return str(means.idxmax() if metric.higher_is_better else means.idxmin())


def _plain_cell(found: Estimate, *, best: bool) -> Cell:
    """Return "0.1234 ± 0.0021", in the units of the metric."""
    mean, half = plain_texts(found)
    if mean is None:
        return Cell("", None)
    return Cell(mean if half is None else f"{mean} ± {half}", found.mean, best=best)


def plain_texts(found: Estimate) -> tuple[str | None, str | None]:
    """Return the mean and half of its interval in the units of a metric; None where there is none."""
    mean = f"{found.mean:.4g}" if found.seeds else None
    return mean, None if np.isnan(found.half) else f"{found.half:.2g}"


def metric_ranks(panel: Panel, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the ranks (configurations without oracles, metrics); 1 is the best mean."""
    rivals = panel.rivals
    means = pd.DataFrame({name: adjusted_means(table[rivals]) for name, table in tables.items()})
    signs = pd.Series({name: 1 if name in LOW_IS_GOOD else -1 for name in tables})
    return (means * signs).rank(method="min").reindex(rivals)


def order_words(panel: Panel, tables: dict[str, pd.DataFrame]) -> str:
    """Return whether the order of configurations depends on the metric."""
    ranks = metric_ranks(panel, tables)
    first = "macro accuracy"
    taus = {name: rank_correlation(ranks[first], ranks[name]) for name in tables if name != first}
    told = ", ".join(f"{name} {tau:.2f}" for name, tau in taus.items() if not np.isnan(tau))
    if not told:
        return "All means are equal, so there is no order to compare."
    leader = str(ranks[first].idxmin())
    firsts: dict[str, list[str]] = {}
    for name in taus:
        if ranks.loc[leader, name] > 1:
            firsts.setdefault(str(ranks[name].idxmin()), []).append(name)
    other = [f"{label} by {listed(names)}" for label, names in firsts.items()]
    agree = f"Other leaders: {'; '.join(other)}." if other else "All metrics have the same leader."
    start = f"By {first}, {leader} leads."
    return f"{start} Kendall's tau between this order and the order by each other metric: {told}. {agree}"


def _rank_cell(rank: float) -> Cell:
    return Cell("", None) if np.isnan(rank) else Cell(f"{rank:.0f}", rank)


def _gap_cell(gap: float) -> Cell:
    return Cell("", None) if np.isnan(gap) else Cell(f"{round(100 * gap, 1) + 0.0:.1f}", gap)
