"""The tables of a report: which there are depends on what varies in the results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.attention import attention_table
from analysis.bounds import above_oracles, bound_words
from analysis.designs import Factorial, one_at_a_time, place, protocol_pairs, shapes, whole_factorials
from analysis.frame import Panel, Results
from analysis.inference import Difference as Told
from analysis.labels import readable, slug, transductive_words
from analysis.searches import search_tables
from analysis.statistics import (
    FEWEST_SEEDS,
    Difference,
    Estimate,
    against,
    estimate,
    rank_correlation,
)
from analysis.table import Cell, Table
from hagmeta.common.differences import sort_key

INTERVAL = "Mean ± 95 % interval over the seeds (Student's t), in percent."
PAIRED = (
    "An asterisk marks a difference from the reference row: paired by seed, Wilcoxon signed-rank, "
    "Holm-corrected over the rows, p < 0.05. Brackets hold the bootstrap interval of the paired difference."
)
TOO_FEW = f"With fewer than {FEWEST_SEEDS} paired seeds no significance is claimed."
AT_THE_LAST_SESSION = {
    "accuracy": "accuracy",
    "macro accuracy": "macro_accuracy",
    "macro-F1": "macro_f1",
    "base": "base_accuracy",
    "novel": "novel_accuracy",
    "harmonic": "harmonic",
}
CALIBRATION = "calibration error"
ABOUT_CALIBRATION = (
    " Calibration error is how far the confidence of answers is from their accuracy, on average over ten "
    "bins of confidence: lower is better."
)
LEAKS = "The released protocol trains on the queries that it is scored on."


def make_tables(results: Results) -> Iterator[Table]:
    """Every table that the results have something for."""
    for panel in results.panels():
        yield sessions_table(panel)
        if table := metrics_table(panel):
            yield table
        for factorial in whole_factorials(panel):
            yield ablation_table(factorial)
            yield effects_table(factorial)
        if len(one_at_a_time(panel)) > 1:
            yield sensitivity_table(panel)
        if table := attention_table(panel):
            yield table
    yield from search_tables(results.searches)
    yield from settings_tables(results)
    yield from protocol_tables(results)
    yield cost_table(results)


def sessions_table(panel: Panel) -> Table:
    """Accuracy by session with PD and RPD: the form of the paper's Table 2."""
    sessions = sorted(panel.sessions["session"].unique())
    means = {session: panel.by_seed("score", session) for session in sessions}
    columns = {str(session): (means[session], True) for session in sessions}
    columns |= {"PD": (panel.by_seed("pd"), False), "RPD": (panel.by_seed("rpd"), False)}
    tests = against(panel.by_seed("last"), panel.reference)
    body = _estimates(panel, columns)
    last = str(sessions[-1])
    rows = []
    for label in panel.labels:
        cells = body[label]
        if label in tests and tests[label].significant:
            position = list(columns).index(last)
            cells[position] = _marked(cells[position])
        difference = [difference_cell(tests.get(label))] if tests else []
        rows.append([Cell(label, label), _seed_count(panel, label), *cells, *difference])
    heading = ["last less reference"] if tests else []
    section = "comparison" if "method" in panel.varied() else "curves"
    return Table(
        name=f"sessions-{panel.slug}",
        section=section,
        title=f"Accuracy by session: {panel.title}",
        caption=f"{INTERVAL} PD is the drop from session 0 to the last, RPD its share of session 0.",
        columns=["configuration", "seeds", *columns, *heading],
        rows=rows,
        numbers=_numbers(panel, {name: table for name, (table, _) in columns.items()}, tests),
        notes=_notes(panel, bool(tests)),
        reference=0 if tests else None,
        leaks=panel.leaks,
    )


def metrics_table(panel: Panel) -> Table | None:
    """What the last session looks like by each metric; None where no record has them all."""
    known = panel.sessions.loc[panel.sessions["macro_accuracy"].notna(), "run"]
    if known.empty:
        return None
    runs, sessions = (rows[rows["run"].isin(known)] for rows in (panel.runs, panel.sessions))
    left_out = len(panel.runs) - len(runs)
    panel = replace(panel, runs=runs, sessions=sessions)
    last = int(sessions["session"].max())
    tables = {name: panel.by_seed(column, last) for name, column in AT_THE_LAST_SESSION.items()}
    tables |= {
        "average": panel.by_seed("average"),
        "BWT": panel.by_seed("backward_transfer"),
    }
    if sessions["calibration_error"].notna().any():
        tables[CALIBRATION] = panel.by_seed("calibration_error", last)
    body = _estimates(panel, {name: (table, name != CALIBRATION) for name, table in tables.items()})
    notes = [_agreement(panel, tables["accuracy"], tables["macro accuracy"])] if len(panel.labels) > 1 else []
    if left_out:
        notes.append(f"{left_out} runs were recorded before there were macro metrics and are left out.")
    return Table(
        name=f"metrics-{panel.slug}",
        section="comparison" if "method" in panel.varied() else "curves",
        title=f"Metrics side by side: {panel.title}",
        caption=(
            f"{INTERVAL} At the last session, but for the average accuracy over all sessions and BWT. "
            "Accuracy counts every query alike, macro metrics every class met. Base are the classes known at "
            "session 0, novel all later ones; harmonic is their harmonic mean. BWT, backward transfer, is "
            "the mean over all tasks but the last of their accuracy at the end less that when they came."
            f"{ABOUT_CALIBRATION if CALIBRATION in tables else ''}"
        ),
        columns=["configuration", "seeds", *tables],
        rows=[[Cell(label, label), _seed_count(panel, label), *body[label]] for label in panel.labels],
        numbers=_numbers(panel, tables, {}),
        notes=[*notes, *_notes(panel, False)],
        leaks=panel.leaks,
    )


def _agreement(panel: Panel, accuracy: pd.DataFrame, macro: pd.DataFrame) -> str:
    """Whether it matters, for who is better, how classes are weighed."""
    rivals = [label for label in panel.labels if label not in panel.oracles]
    tau = rank_correlation(accuracy[rivals].mean(), macro[rivals].mean())
    if np.isnan(tau):
        return "There is no order by accuracy or by macro accuracy to compare."
    agree = "agree" if np.isclose(tau, 1) else "differ"
    return (
        f"The ranks of {len(rivals)} configurations by accuracy and by macro accuracy {agree}: "
        f"Kendall's tau is {tau:.2f}."
    )


def ablation_table(factorial: Factorial) -> Table:
    """The form of the paper's Table 3."""
    panel = factorial.panel
    columns = {
        "first session": (panel.by_seed("first"), True),
        "last session": (panel.by_seed("last"), True),
        "average": (panel.by_seed("average"), True),
        "PD": (panel.by_seed("pd"), False),
        "RPD": (panel.by_seed("rpd"), False),
    }
    body = _estimates(panel, columns)
    tests = against(panel.by_seed("last"), panel.reference)
    switches = panel.runs.drop_duplicates("label").set_index("label")[factorial.factors]
    order = sorted(panel.labels, key=lambda label: [-place(level) for level in switches.loc[label]])
    rows = []
    for label in order:
        cells = body[label]
        if label in tests and tests[label].significant:
            cells[1] = _marked(cells[1])
        marks = [_level_cell(level) for level in switches.loc[label]]
        rows.append([*marks, _seed_count(panel, label), *cells])
    names = factorial.names
    return Table(
        name=f"ablation-{factorial.slug}",
        section="ablation",
        title=f"With and without {_listed(names)}: {factorial.title}",
        caption=f"{INTERVAL} The reference row has everything on.",
        columns=[*names, "seeds", *columns],
        rows=rows,
        numbers=_numbers(panel, {name: table for name, (table, _) in columns.items()}, tests),
        notes=_notes(panel, True),
        reference=order.index(panel.reference),
        leaks=panel.leaks,
    )


def effects_table(factorial: Factorial) -> Table:
    """Main effects and interactions of the switches, at the first and the last session."""
    panel = factorial.panel
    moments = {"first session": factorial.effects("first"), "last session": factorial.effects("last")}
    rows = [
        [Cell(name, name), *(difference_cell(moments[moment][name], p=True) for moment in moments)]
        for name in moments["last session"]
    ]
    numbers = pd.DataFrame(
        [
            {"effect": name, "session": moment, **vars(difference)}
            for moment, found in moments.items()
            for name, difference in found.items()
        ]
    )
    return Table(
        name=f"effects-{factorial.slug}",
        section="ablation",
        title=f"Effects and interactions: {factorial.title}",
        caption=(
            "Points of accuracy. A main effect is the mean with the part on less that with it off, over all "
            "states of the others, paired by seed; an interaction is half the difference that one part makes "
            "to another's effect. Brackets: bootstrap interval; p: Wilcoxon signed-rank, Holm-corrected over "
            "the effects of a session; an asterisk where p < 0.05."
            f"{factorial.about_training}"
        ),
        columns=["effect", *moments],
        rows=rows,
        numbers=numbers,
        notes=_notes(panel, False),
        leaks=panel.leaks,
    )


def sensitivity_table(panel: Panel) -> Table:
    """One hyperparameter at a time around the reference."""
    tests = against(panel.by_seed("last"), panel.reference)
    values = panel.by_seed("last")
    configs = panel.runs.drop_duplicates("label").set_index("label")
    rows, numbers = [], []
    for key, labels in one_at_a_time(panel).items():
        centre = configs.loc[panel.reference, key]
        for label in sorted([*labels, panel.reference], key=lambda label: sort_key(configs.loc[label, key])):
            value, found = configs.loc[label, key], estimate(values[label])
            test = tests.get(label)
            shown = estimate_cell(found)
            if test is not None and test.significant:
                shown = _marked(shown)
            name = readable(value) + (" (reference)" if value == centre else "")
            rows.append(
                [Cell(key, key), Cell(name, sort_key(value)[1] or str(value)), shown, difference_cell(test)]
            )
            numbers.append({"setting": key, "value": readable(value), **vars(found)})
    return Table(
        name=f"sensitivity-{panel.slug}",
        section="hyperparameters",
        title=f"One setting at a time: {panel.title}",
        caption=f"Accuracy at the last session. {INTERVAL}",
        columns=["setting", "value", "last session", "less reference"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=_notes(panel, True),
        leaks=panel.leaks,
    )


def settings_tables(results: Results) -> Iterator[Table]:
    """N-way K-shot: a row a setting, for every dataset and protocol in which they vary."""
    for (dataset, protocol), runs in results.runs.groupby(["dataset", "protocol"], sort=False):
        if len(shapes(runs)) < 2:
            continue
        rows, numbers = [], []
        for (label, n_way, k_shot), group in runs.groupby(["label", "n_way", "k_shot"], sort=False):
            columns = ("first", "last", "average", "pd")
            found = [estimate(group[column]) for column in columns]
            head = [Cell(str(label), str(label)), *(Cell(str(n), float(n)) for n in (n_way, k_shot))]
            rows.append([*head, Cell(str(len(group)), len(group)), *(estimate_cell(each) for each in found)])
            numbers += [
                {"configuration": label, "n_way": n_way, "k_shot": k_shot, "measure": name, **vars(each)}
                for name, each in zip(columns, found, strict=True)
            ]
        yield Table(
            name=slug("settings", dataset, protocol),
            section="settings",
            title=f"N-way K-shot: {dataset}, {protocol}",
            caption=f"{INTERVAL} Settings with other N have other numbers of sessions: compare within one N.",
            columns=["configuration", "N", "K", "seeds", "first session", "last session", "average", "PD"],
            rows=sorted(rows, key=lambda row: [str(row[0].value), row[1].value, row[2].value]),
            numbers=pd.DataFrame(numbers),
            notes=[*([LEAKS] if runs["leaks"].any() else []), *transductive_words(runs)],
            leaks=bool(runs["leaks"].any()),
        )


def protocol_tables(results: Results) -> Iterator[Table]:
    """The same configuration under both protocols: what the leaks are worth."""
    pairs = protocol_pairs(results)
    if not pairs:
        return
    rows, numbers = [], []
    for title, label, strict, released in pairs:
        for moment in ("first", "last"):
            both = [estimate(table[moment]) for table in (strict, released)]
            paired = pd.DataFrame({"strict": strict[moment], "released": released[moment]})
            test = against(paired, "strict")["released"]
            place = f"{title}, {moment} session"
            rows.append(
                [
                    Cell(label, label),
                    Cell(place, place),
                    *(estimate_cell(each) for each in both),
                    difference_cell(test),
                ]
            )
            numbers.append({"configuration": label, "where": place, **vars(test)})
    yield Table(
        name="protocols",
        section="protocol",
        title="Strict beside released",
        caption=f"{INTERVAL} {LEAKS} The difference is paired by seed.",
        columns=["configuration", "where", "strict", "released", "released less strict"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=True,
    )


def cost_table(results: Results) -> Table:
    """Seconds and memory a run."""
    phases = [name for name in results.runs if name.startswith("seconds_")]
    rows, numbers = [], []
    for (label, dataset, protocol, device), runs in results.runs.groupby(
        ["label", "dataset", "protocol", "device"], sort=False, dropna=False
    ):
        seconds = [runs[name].mean() for name in (*phases, "seconds")]
        memory = runs["peak_gpu_bytes"].where(runs["peak_gpu_bytes"] > 0, runs["peak_memory_bytes"]).max()
        words = [str(label), str(dataset), str(protocol), str(device)]
        packs = "/".join(str(size) for size in sorted(runs["seeds_in_pack"].dropna().astype(int).unique()))
        rows.append(
            [
                *(Cell(word, word, leaks=word == protocol and bool(runs["leaks"].any())) for word in words),
                Cell(packs, packs),
                *(Cell("" if np.isnan(value) else f"{value:.2f}", value) for value in seconds),
                Cell(f"{memory / 2**20:,.0f}", float(memory)),
            ]
        )
        keys = ("configuration", "dataset", "protocol", "device", "seeds_in_pack", *phases, "seconds")
        numbers.append(
            dict(zip(keys, [*words, packs, *seconds], strict=True)) | {"peak_memory_bytes": memory}
        )
    names = [name.removeprefix("seconds_") for name in phases]
    return Table(
        name="cost",
        section="cost",
        title="What a run costs",
        caption=(
            "Mean seconds a run by phase; a seed is charged its share of the pack that it ran in. Shared "
            "pre-training is charged to the run that computed it. Memory is the largest peak of a process in "
            "MiB, on the GPU where one was used, and of the whole pack."
        ),
        columns=["configuration", "dataset", "protocol", "device", "pack", *names, "seconds", "memory"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=bool(results.runs["leaks"].any()),
    )


def difference_cell(difference: Difference | Told | None, *, p: bool = False) -> Cell:
    """«+1.2 [0.8, 1.6]» in points."""
    if difference is None:
        return Cell("reference", 0.0)
    if np.isnan(difference.mean):
        return Cell("no common seed", None)
    text = f"{100 * difference.mean:+.1f}"
    if not np.isnan(difference.low):
        text += f" [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    if p and not np.isnan(difference.corrected):
        text += f", p = {difference.corrected:.3f}" if difference.corrected >= 0.001 else ", p < 0.001"
    return Cell(text, difference.mean, mark="*" if difference.significant else "")


def _estimates(panel: Panel, columns: dict[str, tuple[pd.DataFrame, bool]]) -> dict[str, list[Cell]]:
    """Cells by label; the best of each column stands out, by what is shown of it."""
    rivals = [label for label in panel.labels if label not in panel.oracles]
    cells: dict[str, list[Cell]] = {label: [] for label in panel.labels}
    for table, high_is_good in columns.values():
        means = {label: round(100 * table[label].mean(), 1) for label in rivals}
        best = (max if high_is_good else min)(means.values(), default=np.nan)
        for label in panel.labels:
            stands_out = len(rivals) > 1 and means.get(label) == best
            cells[label].append(estimate_cell(estimate(table[label]), best=stands_out))
    return cells


def estimate_cell(found: Estimate, *, best: bool = False) -> Cell:
    """«57.2 ± 1.0» in percent."""
    if found.seeds == 0:
        return Cell("", None)
    text = f"{100 * found.mean:.1f}"
    if not np.isnan(found.half):
        text += f" ± {100 * found.half:.1f}"
    return Cell(text, found.mean, best=best)


def _marked(cell: Cell) -> Cell:
    return Cell(cell.text, cell.value, cell.best, "*")


def _level_cell(level: bool | str) -> Cell:
    return Cell(level, level) if isinstance(level, str) else Cell("yes" if level else "", float(level))


def _seed_count(panel: Panel, label: str) -> Cell:
    count = int((panel.runs["label"] == label).sum())
    return Cell(str(count), count, mark="†" if label in panel.mixed else "")


def _numbers(panel: Panel, columns: dict[str, pd.DataFrame], tests: dict[str, Difference]) -> pd.DataFrame:
    hashes = panel.runs.drop_duplicates("label").set_index("label")["config_hash"]
    rows = []
    for label in panel.labels:
        for name, table in columns.items():
            found = estimate(table[label])
            rows.append({"configuration": label, "config_hash": hashes[label], "column": name, **vars(found)})
        if label in tests:
            shown = {key: value for key, value in vars(tests[label]).items()}
            rows.append(
                {
                    "configuration": label,
                    "config_hash": hashes[label],
                    "column": "last less reference",
                    **shown,
                }
            )
    return pd.DataFrame(rows)


def _notes(panel: Panel, tested: bool) -> list[str]:
    counts = panel.runs["label"].value_counts()
    notes = []
    if tested:
        notes.append(PAIRED if counts.min() >= FEWEST_SEEDS else TOO_FEW)
    if counts.nunique() > 1:
        notes.append("Not all rows have the same number of seeds; differences use the seeds that both have.")
    if panel.mixed:
        notes.append("† Runs of more than one commit, version of torch or device are averaged in this row.")
    notes += [bound_words(oracle, above) for oracle, above in above_oracles(panel).items()]
    if panel.leaks:
        notes.append(LEAKS)
    return notes + transductive_words(panel.runs)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
