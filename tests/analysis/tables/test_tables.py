"""A golden mini-study: what the tables say, against values worked out by hand or by SciPy."""

from __future__ import annotations

import csv
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from analysis.comparisons import Analysis
from analysis.data.labels import transductive_words
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.figures import curves
from analysis.figures.curves import draw_published
from analysis.tables.panels import make_tables
from analysis.tables.papers import published_tables
from analysis.tables.table import Table, escape_latex, save, to_latex, to_markdown
from tests.analysis.conftest import Write, sentences

FULL = {seed: (0.80, 0.70, last) for seed, last in enumerate([0.60, 0.62, 0.58, 0.61, 0.59, 0.63])}
WITHOUT = {seed: (0.60, 0.58, last) for seed, last in enumerate([0.55, 0.56, 0.54, 0.57, 0.53, 0.58])}


@pytest.fixture(scope="module")
def study(write_once: Write) -> Path:
    """Everything on beside GPIL off: six seeds, two sessions."""
    write_once(FULL)
    return write_once(WITHOUT, gpil=False)


@pytest.fixture(scope="module")
def made(study: Path) -> dict[str, Table]:
    return tables(read([study]))


def tables(results: Results) -> dict[str, Table]:
    return {table.name: table for table in make_tables(Analysis(results))}


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_accuracy_by_session_to_the_digit(made: dict[str, Table]) -> None:
    table = made["sessions-debian-strict-3-way-5-shot"]
    assert table.columns == ["configuration", "seeds", "0", "1", "2", "PD", "RPD"]
    assert texts(table) == [
        ["GPIL on", "6", "80.0", "70.0", "60.5", "19.5", "24.4"],
        ["GPIL off", "6", "60.0", "58.0", "55.5", "4.5", "7.5"],
    ]
    assert not any(cell.best for row in table.rows for cell in row)  # a low drop is that of a low start


def test_first_average_last_and_difference_to_the_digit(write: Write) -> None:
    write(FULL)
    table = tables(read([write(WITHOUT, method="gpn")]))["summary-debian-strict-3-way-5-shot"]
    assert table.columns[2:] == [
        "first",
        "average",
        "last",
        "base",
        "novel",
        "rank",
        "gap to best",
        "last minus reference",
        "verdict",
    ]
    # By hand: the mean of 60, 62, 58, 61, 59, 63 is 60.5, their deviation sqrt(3.5), and
    # t(0.975, 5) = 2.5706 makes 2.5706 * 1.8708 / sqrt(6) = 1.96.
    assert texts(table)[0] == [
        "HAG-Meta",
        "6",
        "80.0 ± 0.0",
        "70.2 ± 0.7",
        "60.5 ± 2.0",
        "60.5",
        "60.5",
        "1",
        "0.0",
        "reference",
        "",
    ]
    # Differences by seed are -5, -6, -4, -4, -6, -5: all of one sign, so p = 2/64 < 0.05; their
    # deviation is sqrt(0.8), and 2.5706 * 0.8944 / sqrt(6) = 0.94.
    assert texts(table)[1][4:] == [
        "55.5 ± 2.0",
        "55.5",
        "55.5",
        "2",
        "-5.0",
        "-5.0 [-5.9, -4.1]",
        "significantly worse",
    ]
    assert table.rows[1][-2].mark == "*"
    assert [row[4].best for row in table.rows] == [True, False]
    assert table.reference == 0


def test_the_highest_is_bold_with_all_that_it_is_not_ahead_of(write: Write) -> None:
    write(shifted(0.0))
    near = {seed: (*curve[:-1], curve[-1] + 0.02 * (-1) ** seed) for seed, curve in shifted(-0.005).items()}
    write(near, method="icarl")
    table = tables(read([write(shifted(-0.05), method="gpn")]))["summary-debian-strict-3-way-5-shot"]
    assert {row[0].text: row[4].best for row in table.rows} == {"HAG-Meta": True, "GPN": False, "iCaRL": True}


def test_the_numbers_behind_are_written_in_full(made: dict[str, Table], tmp_path: Path) -> None:
    table = made["sessions-debian-strict-3-way-5-shot"]
    (path,) = [path for path in save(table, tmp_path / "tables") if path.suffix == ".csv"]
    rows = list(csv.DictReader(path.open()))
    (last,) = [row for row in rows if row["configuration"] == "GPIL off"]
    assert (last["method"], last["seeds"]) == ("hag-meta", "6") and len(rows) == len(table.rows)
    values = [curve[-1] for curve in WITHOUT.values()]
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert float(last["2"]) == pytest.approx(np.mean(values), rel=1e-12)
    assert float(last["2 low"]) == pytest.approx(expected.low, rel=1e-9)
    effects = made["effects-debian-strict-3-way-5-shot"].numbers
    assert effects["p"].tolist() == pytest.approx([2 / 64, 2 / 64])


def test_the_effect_of_a_switch(made: dict[str, Table]) -> None:
    table = made["effects-debian-strict-3-way-5-shot"]
    assert texts(table) == [
        [
            "GPIL",
            "+20.0 [+20.0, +20.0], p = 0.031",
            "significantly better",
            "+5.0 [+4.1, +5.9], p = 0.031",
            "significantly better",
        ]
    ]


def trained(write: Write, first: float, last: float, **settings: Any) -> Path:
    """Six seeds of made accuracies, alike but for a part of each seed's own."""
    curves = {seed: (first + seed / 100, 0.5, last - seed / 100) for seed in range(6)}
    return write(curves, **settings)


def with_controls(write: Write, **settings: Any) -> Path:
    """GPIL, supervised training and none, with and without NLA, which adds two points at the last session."""
    for nla in (True, False):
        trained(write, 0.83, 0.58 + 0.02 * nla, nla=nla, **settings)
        trained(write, 0.81, 0.57 + 0.02 * nla, nla=nla, gpil=False, instead_of_gpil="supervised", **settings)
        folder = trained(write, 0.61, 0.57 + 0.02 * nla, nla=nla, gpil=False, **settings)
    return folder


def test_gpil_s_worth_is_told_from_the_labels_worth(write: Write) -> None:
    folder = with_controls(write)
    results = read([folder])
    found = tables(results)
    effects = found["effects-debian-strict-3-way-5-shot"]
    assert texts(effects)[1][:2] == [
        "supervised training minus no training",
        "+20.0 [+20.0, +20.0], p = 0.031",
    ]
    means = effects.numbers.pivot(index="effect", columns="session", values="difference")
    expected = {
        "GPIL minus supervised training": (0.02, 0.01),
        "supervised training minus no training": (0.20, 0.0),
        "GPIL minus no training": (0.22, 0.01),
        "NLA": (0.0, 0.02),
        "(GPIL minus supervised training) x NLA": (0.0, 0.0),
    }
    assert [row[0] for row in texts(effects)] == list(expected)
    for name, values in expected.items():
        assert tuple(means.loc[name]) == pytest.approx(values, abs=1e-9), name
    table = found["ablation-debian-strict-3-way-5-shot"]
    assert table.columns[:3] == ["training", "NLA", "seeds"]
    levels = ["nothing", "nothing", "supervised", "supervised", "GPIL", "GPIL"]
    assert [row[0] for row in texts(table)] == levels and table.reference == 5
    assert set(results.runs["label"]) == {
        *("GPIL + NLA + TLA", "GPIL + TLA", "supervised + NLA + TLA", "supervised + TLA"),
        *("NLA + TLA", "TLA"),
    }


def test_findings_tell_gpil_s_worth_from_the_labels_worth(write: Write) -> None:
    more = (6, 7)  # eight seeds: 2/256 is below 0.05 for all five effects together
    for nla in (True, False):
        write(dict.fromkeys(more, (0.83, 0.5, 0.58)), nla=nla)
        write(dict.fromkeys(more, (0.81, 0.5, 0.58)), nla=nla, gpil=False, instead_of_gpil="supervised")
        write(dict.fromkeys(more, (0.61, 0.5, 0.58)), nla=nla, gpil=False)
    verdicts, *told = sentences(read([with_controls(write)]))
    assert verdicts == (
        "Effects at the last session: GPIL minus supervised training, GPIL minus no training and NLA are "
        "significantly better. Supervised training minus no training is equivalent to no effect."
    )
    pairs = (
        "GPIL minus supervised training",
        "Supervised training minus no training",
        "GPIL minus no training",
    )
    assert [text.split(" is ")[0] for text in told] == [*pairs, "The effect of NLA"]
    first = [text.split(", and ")[1] for text in told[:3]]
    assert first == [
        f"+{n}.0 points [+{n}.0, +{n}.0] at session 0 (significantly better)." for n in (2, 20, 22)
    ]
    assert "at the last session (equivalent)" in told[1]


def test_each_pre_training_has_an_ablation_of_its_own(write: Write) -> None:
    with_controls(write)
    folder = with_controls(write, pretrain_on="known")
    results = read([folder])
    names = [name for name in tables(results) if name.startswith(("ablation", "effects"))]
    place = "debian-strict-3-way-5-shot-pretrain-on"
    assert sorted(names) == sorted(
        f"{kind}-{place}-{on}" for kind in ("ablation", "effects") for on in ("base", "known")
    )
    told = sentences(results)
    assert [text.split(":")[0] for text in told[:4]] == [
        f"On debian, strict, 3-way 5-shot; pretrain_on {on}" for on in ("base",) * 4
    ]


def test_the_oracle_is_never_best(write: Write) -> None:
    write(FULL)
    write(WITHOUT, method="proto-gcn")
    better = {seed: tuple(value + 0.1 for value in curve) for seed, curve in FULL.items()}
    folder = write(better, method="joint")
    table = tables(read([folder]))["summary-debian-strict-3-way-5-shot"]
    assert {row[0].text: row[4].best for row in table.rows} == {
        "HAG-Meta": True,
        "Proto-GCN": False,
        "Joint (oracle)": False,
    }
    assert any("upper bound" in note for note in table.notes)


def test_smoothed_answers_are_marked_as_transductive(write: Write) -> None:
    write(FULL, smoothing=0.5, hidden=64)
    write(WITHOUT, method="proto-gcn")
    folder = write(WITHOUT, method="gpn", smoothing=0.25)
    results = read([folder])
    table = next(t for t in tables(results).values() if t.name.startswith("sessions"))
    assert {row[0].text for row in table.rows} == {"HAG-Meta (smoothed)", "Proto-GCN", "GPN (smoothed)"}
    assert any("have transductive predictions" in note for note in table.notes)
    (drawing,) = curves.draw(Analysis(results))
    assert "have transductive predictions" in drawing.caption


def test_where_each_method_is_there_once_on_a_dataset_it_has_one_name_on_all(write: Write) -> None:
    # As where each is tuned for each dataset: other settings do not make it another method.
    write(FULL, smoothing=0.5, hidden=64)
    write(FULL, dataset="amazon-clothing", hidden=128)
    write(WITHOUT, method="proto-gcn", dropout=0.1)
    folder = write(WITHOUT, method="proto-gcn", dataset="amazon-clothing", smoothing=0.25)
    results = read([folder])
    assert set(results.runs["label"]) == {"HAG-Meta", "Proto-GCN"}
    (words,) = transductive_words(results.runs)
    assert words.endswith("Here smoothed: HAG-Meta on debian; Proto-GCN on amazon-clothing.")
    write(WITHOUT, method="proto-gcn", dropout=0.2)
    assert "Proto-GCN" not in set(read([folder]).runs["label"])


def shifted(by: float) -> dict[int, tuple[float, ...]]:
    """Ten seeds whose last session is so much higher."""
    return {seed: (0.8, 0.7, 0.55 + 0.01 * seed + by + 0.001 * (seed % 3)) for seed in range(10)}


def test_an_oracle_that_is_exceeded_is_no_upper_bound_there(write: Write) -> None:
    write(shifted(0.0), method="joint")
    write(shifted(0.05), method="hag-meta")  # surely above
    write(shifted(-0.05), method="gpn")  # below
    near = {seed: (0.8, 0.7, curve[-1] + 0.02 * (-1) ** seed) for seed, curve in shifted(0.001).items()}
    folder = write(near, method="frozen")  # above on average, and not surely
    write(shifted(0.0), method="joint", dataset="cora-full")
    write(shifted(-0.05), method="hag-meta", dataset="cora-full")
    results = read([folder])
    found = tables(results)
    notes = {name: found[f"sessions-{name}-strict-3-way-5-shot"].notes for name in ("debian", "cora-full")}
    assert notes["debian"][-1] == (
        "Joint (oracle) sees labels that the others never see. It is not an upper bound here. "
        "Significantly better: "
        "HAG-Meta (+5.0 points [+5.0, +5.0])."
    )
    assert notes["cora-full"][-1].endswith("never see. It is an upper bound and is not ranked.")
    said = [text for text in sentences(results) if "not an upper bound" in text]
    assert len(said) == 1 and said[0].startswith("On debian, strict, 3-way 5-shot: Joint (oracle)")


def test_three_seeds_do_not_refute_a_bound(write: Write) -> None:
    few = {seed: shifted(0.0)[seed] for seed in range(3)}
    write(few, method="joint")
    folder = write({seed: shifted(0.05)[seed] for seed in few}, method="hag-meta")
    assert not [text for text in sentences(read([folder])) if "upper bound" in text]


def macro(write: Write, curves: dict[int, tuple[float, ...]], values: list[float], **settings: Any) -> Path:
    """Runs whose macro accuracy at the last session has these values, by seed."""
    for seed, value in enumerate(values):
        series = [0.5, 0.5, value]
        record = dict.fromkeys(("macro_accuracy", "macro_base_accuracy", "macro_f1"), series)
        record |= {key: [None, *series[1:]] for key in ("macro_novel_accuracy", "macro_harmonic")}
        last = curves[seed][-1]  # of all tasks, which begin with the accuracies of their sessions
        transfer = sum(last - first for first in curves[seed][:-1]) / 2
        folder = write({seed: curves[seed]}, record=record | {"backward_transfer": transfer}, **settings)
    return folder


def test_metrics_side_by_side(write: Write) -> None:
    macro(write, FULL, [0.40, 0.42, 0.38])
    folder = macro(write, WITHOUT, [0.50, 0.52, 0.48], gpil=False)
    table = tables(read([folder]))["metrics-debian-strict-3-way-5-shot"]
    assert table.columns[:5] == ["configuration", "seeds", "accuracy", "macro accuracy", "macro-F1"]
    assert table.columns[5:] == ["base", "novel", "harmonic", "average", "forgetting", "BWT"]
    # t(0.975, 2) = 4.3027; the values deviate by 2: 4.3027 * 2 / sqrt(3) = 4.97.
    assert texts(table)[1] == [  # after the one that ends higher
        *("GPIL on", "3", "60.0 ± 5.0", "40.0 ± 5.0", "40.0 ± 5.0"),
        *("60.0 ± 5.0", "60.0 ± 5.0", "60.0 ± 5.0", "46.7 ± 1.7", "15.0 ± 5.0", "-15.0 ± 5.0"),
    ]
    assert table.notes[0] == (
        "By macro accuracy, GPIL off leads. Kendall's tau between this order and the order by each other "
        "metric: accuracy -1.00, macro-F1 1.00, base -1.00, novel -1.00, harmonic -1.00, average 1.00, "
        "forgetting 1.00, BWT 1.00. Other leaders: GPIL on by accuracy, base, novel and harmonic."
    )


def test_settings_that_cannot_be_compared_stand_apart(write: Write) -> None:
    write(FULL)
    folder = write(WITHOUT, k_shot=3)
    found = tables(read([folder]))
    assert {"sessions-debian-strict-3-way-3-shot", "sessions-debian-strict-3-way-5-shot"} <= set(found)
    settings = found["settings-debian-strict"]
    assert [row[:4] for row in texts(settings)] == [["HAG-Meta", "3", "3", "6"], ["HAG-Meta", "3", "5", "6"]]


def test_both_protocols_are_paired_and_the_leak_is_named(write: Write) -> None:
    write(WITHOUT)
    folder = write(FULL, protocol="released")
    table = tables(read([folder]))["protocols"]
    assert texts(table)[1][2:] == ["55.5 ± 2.0", "60.5 ± 2.0", "+5.0 [+4.1, +5.9]", "significantly better"]
    assert "trains on the queries" in table.caption


def test_switches_are_told_of_one_at_a_time_where_they_make_no_factorial(write: Write) -> None:
    write(FULL)
    write(WITHOUT, nla=False)
    write(WITHOUT, tla=False)
    write(WITHOUT, tla_weights="uniform")
    folder = write({seed: (0.8, 0.7, 0.9) for seed in FULL}, nla_weights="oracle")
    results = read([folder])
    found = tables(results)["sensitivity-debian-strict-3-way-5-shot"]
    values = [row[:2] for row in texts(found)]
    assert values == [
        *(["nla_weights", "oracle"], ["nla_weights", "softmax (reference)"]),
        *(["tla_weights", "learnt (reference)"], ["tla_weights", "uniform"]),
        *(["nla", "false"], ["nla", "true (reference)"]),
        *(["tla", "false"], ["tla", "true (reference)"]),
    ]
    assert [row[0] for row in texts(tables(results)["sessions-debian-strict-3-way-5-shot"])] == [
        *("HAG-Meta", "NLA off", "TLA off", "tla_weights uniform", "nla_weights oracle")
    ]
    # The oracle has the largest change but does not count, because nobody can choose it.
    (sentence,) = sentences(results)
    assert sentence.endswith("The largest change is -5.0 points [-5.9, -4.1], with tla_weights uniform.")


def test_attention_weights_stand_beside_equal_ones(write: Write) -> None:
    weights = {"nla_entropy": [None, 0.9, 0.8], "tla_base_share": [0.3, 0.1, 0.2]}
    write(FULL, record={**weights, "tla_equal_share": [0.25, 0.2, 0.1667]})
    folder = write(WITHOUT, nla=False, tla=False)  # as in records that have none
    results = read([folder])
    table = tables(results)["attention-debian-strict-3-way-5-shot"]
    assert texts(table) == [
        ["NLA's entropy", "equal weights", "", "1.000", "1.000"],
        ["NLA's entropy", "GPIL + NLA + TLA", "", "0.900", "0.800"],
        ["TLA's weight on the base task", "equal weights", "0.250", "0.200", "0.167"],
        ["TLA's weight on the base task", "GPIL + NLA + TLA", "0.300", "0.100", "0.200"],
    ]
    assert results.sessions["nla_entropy"].notna().sum() == 2 * len(FULL)


def test_the_papers_numbers_stand_beside_ours(write: Write) -> None:
    folder = write(FULL, dataset="amazon-clothing", protocol="released")
    (table,) = published_tables(read([folder]))
    shown = texts(table)
    # Table 2 prints HAG-Meta on Amazon-Clothing, Table 3 the same method with all its parts.
    assert [row[1] for row in shown] == ["table2", "table3"]
    paper, ours, less = (float(cell.value) for cell in table.rows[0][2:5])
    assert ours == pytest.approx(80.0) and less == pytest.approx(ours - paper)
    assert "released" in table.caption


def test_supervised_training_is_no_row_of_the_papers(write: Write) -> None:
    settings = {"dataset": "amazon-clothing", "gpil": False}
    write(FULL, **settings, instead_of_gpil="supervised")
    (table,) = published_tables(read([write(WITHOUT, **settings)]))
    assert [row[0] for row in texts(table)] == ["NLA + TLA"]


def test_the_papers_curves_are_drawn_beside_ours_and_not_with_them(write: Write) -> None:
    results = read([write(FULL, dataset="amazon-clothing")])
    (drawing,) = draw_published(Analysis(results))
    ours, paper = drawing.figure.axes[0].lines
    assert list(ours.get_ydata())[:2] == pytest.approx([80.0, 70.0])
    assert list(paper.get_ydata())[:2] == [84.15, 75.32] and len(paper.get_ydata()) == 10
    assert "strict" in drawing.caption
    assert not list(draw_published(Analysis(read([write(FULL, study="other")]))))


def test_latex_has_minus_signs_before_numbers_only(made: dict[str, Table]) -> None:
    table = made["effects-debian-strict-3-way-5-shot"]
    rows = [[replace(cell, text="-1.2 [-2.0, -0.4] of 3-way") for cell in row] for row in table.rows]
    assert "$-$1.2 [$-$2.0, $-$0.4] of 3-way" in to_latex(replace(table, rows=rows))


def test_markdown_and_latex_keep_every_cell(made: dict[str, Table]) -> None:
    table = made["sessions-debian-strict-3-way-5-shot"]
    table = replace(table, rows=[[replace(cell, best=True) for cell in row] for row in table.rows])
    lines = to_markdown(table).splitlines()
    assert lines[4].startswith("| **GPIL on** | **6** | **80.0** |")
    latex = to_latex(table)
    assert latex.count(r"\\") == 3 and r"\textbf{80.0} & \textbf{70.0}" in latex
    assert escape_latex("a_b & 5 % {x} \\ ~ ^ #1 $") == (
        r"a\_b \& 5 \% \{x\} \textbackslash{} \textasciitilde{} \textasciicircum{} \#1 \$"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles_and_fits_the_columns_of_a_page(made: dict[str, Table], tmp_path: Path) -> None:
    bodies = "\n".join(to_latex(table) for table in made.values())
    packages = r"\usepackage{booktabs}\usepackage{graphicx}\extrafloats{100}"
    document = rf"\documentclass[twocolumn]{{article}}{packages}\begin{{document}}{bodies}\end{{document}}"
    (tmp_path / "all.tex").write_text(document)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-1000:]
    assert "too wide" not in done.stdout


def test_rows_of_mixed_versions_are_marked(write: Write) -> None:
    write({0: FULL[0], 1: FULL[1]})
    environment = {"device": "CPU", "torch": "2.11.0", "commit": "1" * 40, "seeds_in_pack": 1}
    folder = write(
        {2: FULL[2]}, record={"environment": environment | {"peak_gpu_bytes": 0, "peak_memory_bytes": 1}}
    )
    results = read([folder])
    (panel,) = results.panels
    assert panel.mixed == {panel.reference}
    table = tables(results)["sessions-debian-strict-3-way-5-shot"]
    assert table.rows[0][1].mark == "†" and any(note.startswith("†") for note in table.notes)
