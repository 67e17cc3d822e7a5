"""Make the tables of a report. What varies in the results decides which tables there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.ages import ages_table
from analysis.attention import attention_table
from analysis.bounds import oracle_words
from analysis.comparisons import Analysis, Comparisons, best_of
from analysis.cost import cost_table
from analysis.designs.factorials import MOMENTS, Factorial, place
from analysis.frame import PER_RUN, Panel, last_and_average
from analysis.inference import AHEAD, POWER, Difference
from analysis.labels import readable, slug, transductive_words
from analysis.searches import search_tables
from analysis.statistics import (
    Estimate,
    adjusted_means,
    estimate,
    estimates,
    rank_correlation,
    ranks_of,
)
from analysis.table import Cell, Table
from analysis.words import a_look, listed, p_value, points, verdict
from hagmeta.common.records.differences import sort_key
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS, MetricDeclaration

INTERVAL = "Values are means ± 95 % intervals over the seeds (Student's t), in percent."
BOLD = "Bold marks the highest mean at the last session, and every configuration that it is not ahead of."
ABOUT_RANKS = "Ranks and gaps use the means at the last session, adjusted for missing seeds."
AT_THE_LAST_SESSION = {each.title: each.name for each in BUILT_IN if each.shown and each.by_session}
OVER_ALL_SESSIONS = {each.title: each.name for each in BUILT_IN if each.name in PER_RUN}
TOLD_AT_THE_LAST_SESSION = {each.title: each.name for each in DIAGNOSTICS if each.shown}
LOW_IS_GOOD = [each.title for each in (*BUILT_IN, *DIAGNOSTICS) if not each.higher_is_better]
CALIBRATION = "calibration error"
ABOUT_CALIBRATION = (
    " Calibration error is the mean gap between the confidence and the accuracy of predictions, over bins of "
    "confidence (lower is better)."
)
TEMPERED = "calibration error, tempered"
ABOUT_TEMPERED = (
    " The tempered one uses a temperature per run, fitted to validation nodes of the classes known at "
    "session 0."
)
DIFFERENCES = "Differences are in points; an asterisk marks ahead or behind."
LEAKS = "The released protocol leaks: it trains on the queries that it is scored on."


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
    yield from search_tables(results.searches)
    yield from settings_tables(analysis)
    yield from protocol_tables(analysis)
    yield cost_table(results)


def summary_table(panel: Panel, told: Comparisons) -> Table:
    """Return accuracies, ranks and differences from the reference, the highest row first."""
    columns = {moment: estimates(panel.by_seed(moment)) for moment in ("first", "average", "last")}
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
        if ranked:
            cells += [_rank_cell(ranks.get(label, np.nan)), _gap_cell(gaps.get(label, np.nan))]
        tested = [difference_cell(tests.get(label)), verdict_cell(tests.get(label))] if tests else []
        rows.append([Cell(label, label), seed_count(panel, label), *cells, *tested])
    about = [
        INTERVAL,
        *([ABOUT_RANKS] if ranked else []),
        *([f"{DIFFERENCES} {told.pairs.words}"] if tests else []),
        *([BOLD] if top else []),
    ]
    found = Table(
        name=f"summary-{panel.slug}",
        section=_section(panel),
        title=f"First session, average and last session: {panel.title}",
        caption=" ".join(about),
        columns=[
            *("configuration", "seeds", *columns),
            *(["rank", "gap to best"] if ranked else []),
            *(["last minus reference", "verdict"] if tests else []),
        ],
        rows=rows,
        numbers=_numbers(panel, columns, tests, ranks),
        notes=notes_of(panel, told),
        reference=ordered.index(panel.reference) if tests else None,
        leaks=panel.leaks,
        badge=panel.badge,
        extra=("seeds", "first", "average", "gap to best", "last minus reference"),
    )
    return replace(found, paper=_for_paper(found, bool(tests)))


def by_rank(panel: Panel) -> list[str]:
    """Return the configurations by mean at the last session, the highest first, and then the oracles."""
    means = adjusted_means(panel.by_seed("last")[panel.rivals])
    rivals = sorted(panel.rivals, key=lambda label: (bool(np.isnan(means[label])), -means[label]))
    return [*rivals, *(label for label in panel.labels if label in panel.oracles)]


def _for_paper(table: Table, tested: bool) -> Table:
    """Return a narrow version for LaTeX, with intervals in its last two columns only."""
    rows = []
    for name, _, first, average, last, *rest in table.rows:
        means = [replace(cell, text=cell.text.partition(" ")[0]) for cell in (first, average)]
        rows.append([name, *means, last, *(rest[-2:-1] if tested else [])])
    return replace(
        table, columns=["", "first", "avg.", "last", *(["difference"] if tested else [])], rows=rows
    )


def top_of(panel: Panel, told: Comparisons) -> set[str]:
    """Return the highest and all that it is not ahead of, or nothing if a pair was not tested."""
    best = best_of(panel)
    tests = {label: told.pair(panel, best, label) for label in panel.rivals if label != best} if best else {}
    if best is None or not all(test is not None and test.tested for test in tests.values()):
        return set()
    return {best, *(label for label, test in tests.items() if test is not None and test.verdict != AHEAD)}


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
        numbers=_numbers(panel, columns, {}),
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
            f"{INTERVAL} Metrics are measured at the last session; average, forgetting and BWT cover all "
            "sessions. Accuracy gives each query the same weight, macro metrics each class seen so far. Base "
            "classes are those known at session 0, and novel classes all later ones. Harmonic is the "
            "harmonic mean of both accuracies. Forgetting is the best earlier accuracy of each task minus "
            "its final one, averaged over tasks (lower is better, and it can be negative). BWT (backward "
            "transfer) is the final accuracy of each earlier task minus its accuracy when it arrived, "
            "averaged over tasks."
            f"{ABOUT_CALIBRATION if CALIBRATION in tables else ''}"
            f"{ABOUT_TEMPERED if TEMPERED in tables else ''}"
        ),
        columns=["configuration", "seeds", *tables],
        rows=rows,
        numbers=_numbers(panel, columns, {}),
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
        numbers=_numbers(panel, columns, {}),
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


def ablation_table(factorial: Factorial, told: Comparisons) -> Table:
    """Return all combinations of the switches, in the form of the paper's Table 3."""
    panel = factorial.panel
    columns = {
        "first session": estimates(panel.by_seed("first")),
        "last session": estimates(panel.by_seed("last")),
        "average": estimates(panel.by_seed("average")),
        "PD": estimates(panel.by_seed("pd")),
        "RPD": estimates(panel.by_seed("rpd")),
    }
    switches = panel.runs.drop_duplicates("label").set_index("label")[factorial.factors]
    order = sorted(panel.labels, key=lambda label: [-place(level) for level in switches.loc[label]])
    rows = [
        [*(_level_cell(level) for level in switches.loc[label]), seed_count(panel, label)]
        + [estimate_cell(found[label]) for found in columns.values()]
        for label in order
    ]
    return Table(
        name=f"ablation-{factorial.slug}",
        section="ablation",
        title=f"With and without {listed(factorial.names)}: {factorial.title}",
        caption=(
            f"{INTERVAL} PD is in points. The reference row has all parts switched on. The rows are not "
            "tested; the next table tests the effects."
        ),
        columns=[*factorial.names, "seeds", *columns],
        rows=rows,
        numbers=_numbers(panel, columns, {}),
        notes=notes_of(panel, told),
        reference=order.index(panel.reference),
        leaks=panel.leaks,
        badge=panel.badge,
    )


def effects_table(factorial: Factorial, told: Comparisons) -> Table:
    """Return the main effects and interactions of the switches, at session 0 and at the last session."""
    panel = factorial.panel
    moments = {moment: told.effects_of(factorial, moment) for moment in MOMENTS}
    aliases = {moment: factorial.aliases(moment) for moment in MOMENTS}
    rows, numbers = [], []
    for name in moments["last"]:
        cells = []
        for moment, found in moments.items():
            same = aliases[moment].get(name)
            if same is None:
                cells += [difference_cell(found[name], p=True), verdict_cell(found[name], detects=True)]
            else:
                cells += [Cell(f"same as {same}", found[name].mean), Cell("", "")]
            numbers.append({"effect": name, "session": moment, "is": same or "", **found[name].told})
        rows.append([Cell(name, name), *cells])
    detects = ""
    if any(": detects " in cell.text for row in rows for cell in row):
        detects = f' "Detects" is the smallest effect that the test finds with {100 * POWER:.0f} % power.'
    notes = [
        f"At {MOMENTS[moment]}, {len(same)} of {len(moments[moment])} effects equal another effect for every "
        f"seed. They are tested once: {', '.join(f'{one} = {other}' for one, other in same.items())}."
        for moment, same in aliases.items()
        if same
    ]
    return Table(
        name=f"effects-{factorial.slug}",
        section="ablation",
        title=f"Effects and interactions: {factorial.title}",
        caption=(
            "Effects are in points of accuracy. A main effect is the mean with the part on minus the mean "
            "with it off, over all states of the other parts. An interaction is half the change that one "
            f"part makes to the effect of another. {told.effects.words}{detects}{factorial.about_training}"
        ),
        columns=["effect", *(column for when in MOMENTS.values() for column in (when, "verdict"))],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=[*notes, *notes_of(panel, told)],
        leaks=panel.leaks,
        badge=panel.badge,
    )


def sensitivity_table(analysis: Analysis, panel: Panel) -> Table:
    """Return the effect of changing one setting at a time, starting from the reference."""
    told = analysis.comparisons
    values = panel.by_seed("last")
    configs = panel.runs.drop_duplicates("label").set_index("label")
    rows, numbers = [], []
    for key, labels in analysis.one_at_a_time(panel).items():
        centre = configs.loc[panel.reference, key]
        for label in sorted([*labels, panel.reference], key=lambda label: sort_key(configs.loc[label, key])):
            value, found = configs.loc[label, key], estimate(values[label])
            test = told.pair(panel, label, panel.reference)
            name = readable(value) + (" (reference)" if value == centre else "")
            head = [Cell(key, key), Cell(name, sort_key(value)[1] or str(value)), estimate_cell(found)]
            rows.append([*head, difference_cell(test), verdict_cell(test)])
            numbers.append({"setting": key, "value": readable(value), **vars(found)})
    return Table(
        name=f"sensitivity-{panel.slug}",
        section="hyperparameters",
        title=f"One setting at a time, around the reference: {panel.title}",
        caption=f"Accuracy at the last session. {INTERVAL} {DIFFERENCES} {told.pairs.words}",
        columns=["setting", "value", "last session", "minus reference", "verdict"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=notes_of(panel, told),
        leaks=panel.leaks,
        badge=panel.badge,
    )


def settings_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield tables with one row per N-way K-shot setting; the other settings are the same in all rows."""
    for where, runs in analysis.grids:
        rows, numbers = [], []
        for (label, n_way, k_shot), group in runs.groupby(["name", "n_way", "k_shot"], sort=False):
            columns = ("first", "last", "average", "pd")
            found = [estimate(group[column]) for column in columns]
            head = [Cell(str(label), str(label)), *(Cell(str(n), float(n)) for n in (n_way, k_shot))]
            seeds = int(group["seed"].nunique())
            rows.append([*head, Cell(str(seeds), seeds), *(estimate_cell(each) for each in found)])
            numbers += [
                {"configuration": label, "n_way": n_way, "k_shot": k_shot, "measure": name, **vars(each)}
                for name, each in zip(columns, found, strict=True)
            ]
        yield Table(
            name=slug("settings", where),
            section="settings",
            title=f"N-way K-shot: {where}",
            caption=(
                f"{INTERVAL} PD is in points. The number of sessions depends on N, so compare only rows with "
                "the same N."
            ),
            columns=["configuration", "N", "K", "seeds", "first session", "last session", "average", "PD"],
            rows=sorted(rows, key=lambda row: [str(row[0].value), row[1].value, row[2].value]),
            numbers=pd.DataFrame(numbers),
            notes=[*([LEAKS] if runs["leaks"].any() else []), *transductive_words(runs)],
            leaks=bool(runs["leaks"].any()),
        )


def protocol_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield a table of the configurations that ran under both protocols."""
    pairs, tests = analysis.protocol_pairs, analysis.comparisons.protocols
    if not pairs:
        return
    rows, numbers = [], []
    for where, label, strict, released in pairs:
        for moment, when in MOMENTS.items():
            both = [estimate_cell(estimate(table[moment])) for table in (strict, released)]
            test = tests[where, label, moment]
            place = f"{where}, {when}"
            rows.append(
                [Cell(label, label), Cell(place, place), *both, difference_cell(test), verdict_cell(test)]
            )
            numbers.append({"configuration": label, "where": place, **test.told})
    yield Table(
        name="protocols",
        section="protocol",
        title="Strict and released protocol",
        caption=f"{INTERVAL} {DIFFERENCES} {LEAKS} {tests.words}",
        columns=["configuration", "where", "strict", "released", "released minus strict", "verdict"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=True,
        badge=a_look(
            max(tests[where, label, moment].seeds for where, label, *_ in pairs for moment in MOMENTS)
        ),
    )


def difference_cell(difference: Difference | None, *, p: bool = False) -> Cell:
    """Return "+1.2 [+0.8, +1.6]" in points, with an asterisk if the verdict is ahead or behind."""
    if difference is None:
        return Cell("reference", 0.0)
    if np.isnan(difference.mean):
        return Cell("no common seed", None)
    text = points(difference) + (f", {p_value(difference.corrected)}" if p and difference.tested else "")
    return Cell(text, difference.mean, mark="*" if difference.significant else "")


def verdict_cell(difference: Difference | None, *, detects: bool = False) -> Cell:
    """Return the verdict; an open one names the seeds that would decide it."""
    if difference is None:
        return Cell("", "")
    return Cell(verdict(difference, detects=detects), difference.verdict)


def estimate_cell(found: Estimate, *, best: bool = False) -> Cell:
    """Return "57.2 ± 1.0" in percent."""
    if found.seeds == 0:
        return Cell("", None)
    text = f"{round(100 * found.mean, 1) + 0.0:.1f}"  # 0.0 removes the sign of a value rounded to zero
    if not np.isnan(found.half):
        text += f" ± {100 * found.half:.1f}"
    return Cell(text, found.mean, best=best)


def _rank_cell(rank: float) -> Cell:
    return Cell("", None) if np.isnan(rank) else Cell(f"{rank:.0f}", rank)


def _gap_cell(gap: float) -> Cell:
    return Cell("", None) if np.isnan(gap) else Cell(f"{round(100 * gap, 1) + 0.0:.1f}", gap)


def _level_cell(level: bool | str) -> Cell:
    return Cell(level, level) if isinstance(level, str) else Cell("yes" if level else "", float(level))


def seed_count(panel: Panel, label: str) -> Cell:
    """Return the number of seeds, with a dagger if they come from different versions."""
    count = panel.counts[label]
    return Cell(str(count), count, mark="†" if label in panel.mixed else "")


def _numbers(
    panel: Panel,
    columns: dict[str, dict[str, Estimate]],
    tests: dict[str, Difference],
    ranks: pd.Series | None = None,
) -> pd.DataFrame:
    hashes = panel.runs.drop_duplicates("label").set_index("label")["config_hash"]
    rows = []
    for label in by_rank(panel):
        who = {"configuration": label, "config_hash": hashes[label]}
        who |= {} if ranks is None else {"rank": ranks.get(label)}
        rows += [{**who, "column": name, **vars(found[label])} for name, found in columns.items()]
        if label in tests:
            rows.append({**who, "column": "last minus reference", **tests[label].told})
    return pd.DataFrame(rows)


def notes_of(panel: Panel, told: Comparisons) -> list[str]:
    """Return the notes below every table of `panel`."""
    notes = []
    if len(set(panel.counts.values())) > 1:
        notes.append(
            "The rows have different numbers of seeds. Ranks adjust for that, and differences use the seeds "
            "that both rows have."
        )
    if unranked := sorted(
        label for label, rank in ranks_of(panel.by_seed("last")[panel.rivals]).items() if rank != rank
    ):
        notes.append(f"Not ranked, because no seed is shared with the others: {', '.join(unranked)}.")
    if panel.mixed:
        notes.append("† This row averages runs with different commits, torch versions or devices.")
    notes += oracle_words(panel, told).values()
    if panel.leaks:
        notes.append(LEAKS)
    return notes + transductive_words(panel.runs)
