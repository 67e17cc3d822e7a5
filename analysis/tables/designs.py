"""Make the tables of designs: factorials, one setting at a time, N and K, protocols, and rankings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis, Comparisons
from analysis.data.labels import readable, slug, transductive_words
from analysis.data.results import Panel
from analysis.designs.factorials import MOMENTS, Factorial
from analysis.designs.rankings import Ranking
from analysis.statistics.estimates import (
    estimate,
    estimates,
)
from analysis.statistics.inference import POWER
from analysis.tables.cells import (
    DIFFERENCES,
    INTERVAL,
    LEAKS,
    difference_cell,
    estimate_cell,
    notes_of,
    numbers_of,
    seed_count,
    verdict_cell,
    wide,
)
from analysis.tables.table import Cell, Table
from analysis.words import a_look, listed
from hagmeta.common.records.differences import sort_key


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
    levels = panel.runs.drop_duplicates("label").set_index("label")[factorial.factors].astype(object)
    order = sorted(panel.labels, key=lambda label: [-each for each in factorial.places(levels.loc[label])])
    rows = [
        [*(_level_cell(level) for level in levels.loc[label]), seed_count(panel, label)]
        + [estimate_cell(found[label]) for found in columns.values()]
        for label in order
    ]
    return Table(
        name=f"ablation-{factorial.slug}",
        section="ablation",
        title=f"Every combination of {listed(factorial.names)}: {factorial.title}",
        caption=(f"{INTERVAL} PD is in points. The rows are not tested; the next table tests the effects."),
        columns=[*factorial.names, "seeds", *columns],
        rows=rows,
        numbers=numbers_of(panel, columns, {}),
        notes=notes_of(panel, told),
        reference=order.index(panel.reference),
        leaks=panel.leaks,
        badge=panel.badge,
        extra=("seeds", "first session", "PD", "RPD"),
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
    first = "session 0", "verdict at session 0"
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
            "Effects are in points of accuracy, over all values of the other settings. The effect of a part "
            "is the mean with it on minus the mean with it off. An interaction is half the change that one "
            f"setting makes to the effect of another. {told.effects[factorial.title, 'last'].words}{detects}"
            f"{factorial.about}"
        ),
        columns=["effect", *first, "last session", "verdict"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=[*notes, *notes_of(panel, told)],
        leaks=panel.leaks,
        badge=panel.badge,
        extra=first,
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
            numbers.append(
                {"setting": key, "value": readable(value), "configuration": label, "seeds": found.seeds}
                | wide("last session", found)
                | (test.told if test else {})
            )
    return Table(
        name=f"sensitivity-{panel.slug}",
        section="hyperparameters",
        title=f"One setting at a time, around the reference: {panel.title}",
        caption=f"Accuracy at the last session. {INTERVAL} {DIFFERENCES} {told.reference_words}",
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
            row = {"configuration": label, "n_way": n_way, "k_shot": k_shot, "seeds": seeds}
            for name, each in zip(columns, found, strict=True):
                row |= wide(name, each)
            numbers.append(row)
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


def shots_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield tables of what more labels gain: each configuration with the largest and the smallest K."""
    tests = analysis.comparisons.shots
    for where, runs in analysis.grids:
        rows, numbers = [], []
        for place, label, n_way, few, many, _ in analysis.shots:
            if place != where:
                continue
            test = tests[where, label, n_way]
            head = [Cell(label, label), Cell(str(n_way), n_way), Cell(f"{many} minus {few}", many - few)]
            rows.append([*head, difference_cell(test), verdict_cell(test)])
            row = {"configuration": label, "n_way": n_way, "k_shot": many, "minus_k_shot": few}
            numbers.append(row | test.told)
        if rows:
            yield Table(
                name=slug("shots", where),
                section="settings",
                title=f"What more labels gain: {where}",
                caption=(
                    "Each configuration with the largest K minus itself with the smallest K. "
                    f"{QUERIES if runs['query_shot'].nunique() > 1 else ''}{DIFFERENCES} {tests.words}"
                ),
                columns=["configuration", "N", "K", "difference", "verdict"],
                rows=rows,
                numbers=pd.DataFrame(numbers),
                notes=[*([LEAKS] if runs["leaks"].any() else []), *transductive_words(runs)],
                leaks=bool(runs["leaks"].any()),
                badge=a_look(max(test.seeds for test in tests.of(where).values())),
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


def _level_cell(level: Any) -> Cell:
    if isinstance(level, (bool, np.bool_)):
        return Cell("on" if level else "off", float(level))
    return Cell(readable(level), level)


QUERIES = "K also sets the number of training queries per class (query_shot). "
CHANCE = "Ranks of means are not tested. Methods with close means can swap ranks by chance."


def rank_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield a table per setting: accuracy and rank under each value, and the change from the first value."""
    tests = analysis.comparisons.values
    for ranking in analysis.rankings:
        first, *rest = ranking.values
        ranks = {value: ranking.ranks(value) for value in ranking.values}
        changes = {value: tests.of(ranking.where, ranking.setting, value) for value in rest}
        several = len(ranking.rivals) > 1  # one method has no rank
        rows, numbers = [], []
        for method, table in ranking.scores.items():
            name = ranking.titles[method]
            cells = []
            row: dict[str, Any] = {"method": method}
            for value in ranking.values:
                found, rank = estimate(table[value]), ranks[value].get(method)
                cells.append(estimate_cell(found, best=several and rank == 1))
                cells += [Cell("" if rank is None else str(rank), rank)] * several
                row |= wide(f"{ranking.setting} {value}", found) | {f"rank {value}": rank}
            for value in rest:
                cells += [show(changes[value][method]) for show in (difference_cell, verdict_cell)]
                row |= {f"{value}: {name}": each for name, each in changes[value][method].told.items()}
            numbers.append(row)
            rows.append([Cell(name, name), *cells])
        values = [[f"{ranking.setting} {value}", *["rank"] * several] for value in ranking.values]
        question = f"Does the order of methods depend on {ranking.setting}?"
        yield Table(
            name=slug("ranks", ranking.setting, ranking.where),
            section="comparison",
            title=f"{question if several else f'Does {ranking.setting} matter?'} {ranking.where}",
            caption=(
                f"Accuracy at the last session{' and its rank' * several}; all other settings have their "
                f"defaults. {INTERVAL} {DIFFERENCES} {tests.words} "
                "The table leaves out methods without this setting."
            ),
            columns=[
                "method",
                *(column for columns in values for column in columns),
                *(column for value in rest for column in (f"{value} minus {first}", "verdict")),
            ],
            rows=rows,
            numbers=pd.DataFrame(numbers),
            notes=[*[*(rank_words(ranking, value) for value in rest), CHANCE] * several, *ranking.notes],
            leaks=ranking.leaks,
        )


def rank_words(ranking: Ranking, value: str) -> str:
    """Return "With rehearsal none instead of all, 3 of 9 methods change their rank ..."."""
    first = ranking.values[0]
    before, after = ranking.ranks(first), ranking.ranks(value)
    both = [method for method in ranking.rivals if method in before and method in after]
    moved = [method for method in both if before[method] != after[method]]
    words = f"With {ranking.setting} {value} instead of {first}"
    agreement = ranking.agreement(value)
    tau = "no order to compare" if math.isnan(agreement) else f"Kendall's tau {agreement:.2f}"
    if not moved:
        return f"{words}, the ranks of {len(both)} methods stay the same."
    named = ", ".join(
        f"{ranking.titles[m]} {before[m]} → {after[m]}" for m in sorted(moved, key=lambda m: after[m])
    )
    return f"{words}, {len(moved)} of {len(both)} methods change their rank ({tau}). They are {named}."
