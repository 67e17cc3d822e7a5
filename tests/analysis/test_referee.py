"""What a statistician found in reports, each with how to see it: none of it may come back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis import figures
from analysis.__main__ import main
from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.page.facts import facts, notices
from analysis.tables.cost import cost_table
from analysis.tables.designs import settings_tables
from analysis.tables.panels import make_tables
from analysis.tables.papers import published_tables
from analysis.tables.table import Table, to_markdown
from hagmeta.config.run_config import RunConfig, resolve
from study.store.store import Store
from tests.analysis.conftest import Write, reconfigured, sentences, with_novel

CURVE = (0.8, 0.7, 0.6)


def curves(last: float, seeds: Sequence[int] = range(10), spread: float = 0.002) -> dict[int, list[float]]:
    random = np.random.default_rng(int(1e6 * last))
    return {seed: [0.8, 0.7, last + seed / 100 + spread * random.normal()] for seed in seeds}


def tables(results: Results) -> dict[str, Table]:
    return {table.name: table for table in make_tables(Analysis(results))}


def changed(folder: Path, change: dict[str, Any], without: Sequence[str] = ()) -> Path:
    """With other contents in every record."""
    for path in folder.glob("runs/*/*.json"):
        record = json.loads(path.read_text()) | change
        path.write_text(json.dumps({key: value for key, value in record.items() if key not in without}))
    return folder


def test_five_seeds_are_too_few_and_not_evidence_of_no_difference(write: Write) -> None:  # 1
    write(curves(0.107, range(5)), method="frozen")
    badge, sentence = sentences(read([write(curves(0.563, range(5)))]))
    assert badge == "5 seeds: too few to test, at least 6 needed."
    assert sentence.endswith("It is not tested against Frozen (too few seeds).")


def test_one_difference_has_one_interval_everywhere(write: Write) -> None:  # 2
    write(curves(0.5, spread=0.02), method="gpn")
    results = read([write(curves(0.55))])
    (panel,) = results.panels
    found = Analysis(results).comparisons.against(panel, panel.reference)["GPN"]
    row = tables(results)["summary-debian-strict-3-way-5-shot"].rows[1]
    limits = [float(part) for part in row[-2].text.split("[")[1].rstrip("]").split(",")]
    assert limits == [round(100 * found.low, 1), round(100 * found.high, 1)]
    from analysis.figures.curves import draw

    (drawing,) = draw(Analysis(results))
    band = drawing.figure.axes[1].collections[0].get_paths()[0].vertices
    assert max(band[band[:, 0] == 2, 1]) == pytest.approx(100 * found.high)


def test_names_that_differ_in_a_sign_share_no_file(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # 4
    monkeypatch.setattr(figures, "FIGURES", {"curves": figures.curves.draw})
    for number, dataset in enumerate(("my_graph", "my-graph")):
        reconfigured(write({0: (0.8, 0.7, 0.5 + 0.1 * number)}, study=dataset), dataset=dataset)
    assert main([str(tmp_path), "--out", str(tmp_path / "report")]) == 0
    texts = {path.read_text() for path in (tmp_path / "report" / "tables").glob("sessions-*.md")}
    assert len(texts) == len(list((tmp_path / "report" / "figures").glob("curves-*.svg"))) == 2


def test_a_setting_that_some_records_lack_parts_panels_by_name(write: Write) -> None:  # 4
    reconfigured(write({0: CURVE}), without="drop_small")
    titles = [panel.title for panel in read([write({1: CURVE}, drop_small=True)]).panels]
    assert len(set(titles)) == len(titles) == 2


def test_headline_and_table_say_the_same_of_the_same_pair(write: Write) -> None:  # 6
    write(curves(0.5), method="joint")
    write(curves(0.58), method="gpn")
    results = read([write(curves(0.55))])
    (panel,) = results.panels
    told = Analysis(results).comparisons
    one, other = told.pair(panel, "GPN", "HAG-Meta"), told.pair(panel, "HAG-Meta", "GPN")
    assert one and other and one.corrected == other.corrected and one.mean == -other.mean
    assert (one.verdict, other.verdict) == ("significantly better", "significantly worse")


def test_rows_of_the_protocol_table_are_one_family(write: Write) -> None:  # 7
    random = np.random.default_rng(5)
    for hidden in (8, 16, 32, 64, 128):
        for protocol in ("strict", "released"):
            noise = {seed: [0.8, 0.7, 0.5 + 0.02 * random.normal()] for seed in range(10)}
            folder = write(noise, protocol=protocol, hidden=hidden)
    found = Analysis(read([folder])).comparisons.protocols
    assert len(found.comparisons) == 10 and not any(each.significant for each in found.comparisons.values())
    assert any(each.p < each.corrected for each in found.comparisons.values())


def test_noise_is_no_sensitivity(write: Write) -> None:  # 8
    write(curves(0.5, spread=0.02))
    write(curves(0.5001, spread=0.02), learning_rate=0.01)
    (sentence,) = sentences(read([write(curves(0.5002, spread=0.02), hidden=64)]))
    assert sentence.endswith("All 2 values are inconclusive.")


def test_an_upper_bound_is_not_claimed_beside_a_rival_that_may_be_above_it(write: Write) -> None:  # 9
    write(curves(0.55, spread=0.03), method="joint")
    folder = write(curves(0.551, spread=0.03))
    notes = tables(read([folder]))["summary-debian-strict-3-way-5-shot"].notes
    assert any("It is not significantly better than HAG-Meta." in note for note in notes)
    assert not any("an upper bound" in note for note in notes)


def test_beside_the_paper_the_same_session_is_compared(write: Write) -> None:  # 10
    (table,) = published_tables(read([write({0: CURVE}, dataset="amazon-clothing")]))
    columns = dict(zip(table.columns, table.rows[0], strict=True))
    assert columns["last paper"].value == pytest.approx(70.05, abs=10) and columns["PD paper"].text == ""
    from analysis.tables.papers import read_published

    printed = read_published()
    same = printed[(printed["dataset"] == "amazon-clothing") & (printed["method"] == "HAG-Meta")]
    assert columns["last paper"].value in set(same.loc[same["session"] == "2", "percent"])


def test_two_studies_one_without_a_commit(write: Write, tmp_path: Path) -> None:  # 11
    write({0: CURVE}, study="one")
    environment = {"device": "CPU", "seeds_in_pack": 1, "torch": "2.13.0", "commit": None}
    write({1: CURVE}, study="two", record={"environment": environment})
    (fact,) = [fact for fact in facts(Analysis(read([tmp_path]))) if fact.name == "commit"]
    assert fact.value == "000000000000, unknown"


@pytest.mark.parametrize(
    "change",
    [{"accuracy": [], "matrix": []}, {"accuracy": 3}, {"accuracy": [None, 0.5, 0.5]}, {"seconds": 3}],
)
def test_what_cannot_be_read_is_damage(write: Write, change: dict[str, Any]) -> None:  # 12
    folder = write({0: CURVE})
    write({0: CURVE}, study="broken", nla=False)
    changed(folder.parent / "broken", change)
    assert len(read([folder, folder.parent / "broken"]).damaged) == 1


def test_a_launch_without_a_key_is_named(write: Write) -> None:  # 12
    folder = write({0: CURVE})
    (folder / "launches").mkdir()
    (folder / "launches" / "1.json").write_text(json.dumps({"space": "x"}))
    assert read([folder]).damaged[0].endswith("has no description, command, time, configs, seeds")


def test_aliased_effects_are_told_apart_and_tested_once(write: Write) -> None:  # 14
    for gpil in (True, False):
        for nla in (True, False):
            first = 0.6 + 0.2 * gpil + 0.01 * (gpil and nla)  # without GPIL NLA does nothing at session 0
            last = 0.5 + 0.02 * gpil + 0.03 * nla + 0.05 * gpil * nla
            runs = {seed: [first + seed / 100 * gpil * nla, 0.5, last + seed / 1000] for seed in range(8)}
            folder = write(runs, gpil=gpil, nla=nla)
    results = read([folder])
    (factorial,) = [each for panel in results.panels for each in Analysis(results).factorials(panel)]
    assert factorial.aliases("first") == {"GPIL x NLA": "NLA"} and factorial.aliases("last") == {}
    assert sum(each.tested for each in Analysis(results).comparisons.effects.values()) == 2 + 3
    table = tables(results)["effects-debian-strict-3-way-5-shot"]
    assert table.rows[-1][1].text == "same as NLA"
    assert table.notes[0].startswith("At session 0, 1 of 3 effects equal another effect for every seed.")


def test_effects_are_there_beside_other_methods(write: Write) -> None:  # 15
    for nla in (True, False):
        write(curves(0.5 + 0.1 * nla), nla=nla)
    folder = write(curves(0.4), method="gpn")
    results = read([folder])
    assert "effects-debian-strict-3-way-5-shot" in tables(results)
    assert any("The effect of NLA is +10.0 points [" in each for each in sentences(results))


def test_where_leaves_out_what_is_not_asked_for_and_names_what_is_missing(write: Write) -> None:  # 20
    folder, store = write({0: CURVE}), Store(write({0: CURVE}, method="cec"))
    lost = {method: resolve(RunConfig.of(method=method, sessions=2)) for method in ("hag-meta", "cec")}
    for config in lost.values():
        store.write_failure((config.hash(), 9), config.canonical(), f"broke {config.method}")
    plan = {config.hash(): config.canonical() for config in lost.values()}
    launch = {"space": "x", "description": "", "command": "", "time": "2026-01-01"}
    store.write_launch(launch | {"configs": plan, "seeds": [0, 9]})
    results = read([folder]).where({"method": ["cec"]})
    assert [each.words.split()[-1] for each in results.failed] == ["cec"]
    (missing,) = results.missing
    assert missing.words.startswith("debian, cec, strict (configuration ") and missing.words.endswith(
        "seeds 9"
    )


def test_paths_are_shortened_to_names(write: Write) -> None:  # 22
    results = read([reconfigured(write({0: CURVE}), dataset="mat:/data/of/somebody/Clothing-20")])
    (panel,) = results.panels
    assert panel.title == "Clothing-20, strict, 3-way 5-shot"
    texts = [each.title for each in (*make_tables(Analysis(results)), *figures.draw_all(Analysis(results)))]
    assert not [text for text in texts if "/" in text]


@pytest.mark.usefixtures("no_figures")
def test_the_metric_that_is_asked_for_decides(write: Write) -> None:  # 3
    write(curves(0.6), record=with_novel([0.4] * 3, 0.15))
    folder = write(curves(0.5), method="icarl", record=with_novel([0.4] * 3, 0.4))
    results = read([folder], "harmonic")
    assert results.runs.groupby("label")["last"].mean().to_dict() == pytest.approx(
        {"HAG-Meta": 0.12 / 0.55, "iCaRL": 0.4}
    )
    assert main([str(folder), "--metric", "harmonic", "--margin", "2"]) == 0
    page = (folder / "report" / "index.html").read_text()
    assert "this page uses harmonic wherever it says" in page and "within 2 points" in page


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--metric", "harmnic"], "Did you mean 'harmonic'?"),
        (["--margin", "0"], "--margin 0: expected a number of points between 0 and 100"),
    ],
)
def test_bad_metrics_and_margins_are_one_line(
    write: Write, capsys: pytest.CaptureFixture[str], options: list[str], named: str
) -> None:
    assert main([str(write({0: CURVE})), *options]) == 2
    error = capsys.readouterr().err
    assert named in error and error.count("\n") == 1


def effects_of(write: Write, seeds: dict[bool, range]) -> Path:
    for nla in (True, False):
        folder = write(curves(0.5 + 0.05 * nla, seeds[nla]), nla=nla)
    return folder


@pytest.mark.parametrize("setting", [{"sessions": 4}, {"queries_per_class": 20}])
def test_runs_that_cannot_be_compared_share_no_row(write: Write, setting: dict[str, int]) -> None:
    for k_shot in (1, 5):
        write({seed: [0.8, 0.7, 0.6] for seed in range(10)}, k_shot=k_shot)
        longer = {seed: [0.8, 0.7, 0.6, 0.5, 0.4][: setting.get("sessions", 2) + 1] for seed in range(10, 20)}
        folder = write(longer, k_shot=k_shot, **setting)
    results = read([folder])
    found = list(settings_tables(Analysis(results)))
    assert len(found) == 2 and {row[3].text for table in found for row in table.rows} == {"10"}
    told = [row[3].text for row in cost_table(results).rows]
    assert len(told) == len(set(told)) == 4


def test_older_records_have_no_number_of_trained_parameters(write: Write) -> None:
    older = cost_table(read([write({0: CURVE})]))
    assert "trained parameters" not in older.columns and "trained_parameters" not in older.numbers
    both = cost_table(read([write({0: CURVE}, nla=False, record={"trained_parameters": 1074})]))
    assert sorted(row[-1].text for row in both.rows) == ["", "1,074"]
    assert both.columns[-1] == "trained parameters"


def test_energy_is_a_number_only_for_trials_with_a_gpu_of_their_own(write: Write) -> None:
    for nla, share, joules in ((True, 1.0, 1500.4), (False, 0.125, 900.0)):
        environment = {"device": "H200", "seeds_in_pack": 2, "gpu_joules": joules, "gpu_share": share}
        folder = write({0: CURVE}, nla=nla, record={"environment": environment})
    table = cost_table(read([folder]))
    assert table.columns[-1] == "joules" and "of the whole GPU" in table.caption
    assert sorted(row[-1].text for row in table.rows) == ["1,500", "shared (0.125 GPU)"]
    assert table.numbers["gpu_joules"].dropna().tolist() == [1500.4]


def test_a_factorial_without_a_common_seed_has_no_effects(write: Write) -> None:
    results = read([effects_of(write, {True: range(6), False: range(6, 12)})])
    (panel,) = results.panels
    assert not Analysis(results).factorials(panel)
    texts = [cell.text for table in make_tables(Analysis(results)) for row in table.rows for cell in row]
    assert "no common seed" in texts and not any("nan" in text for text in [*texts, *sentences(results)])


def test_equivalent_somewhere_is_not_undecided_on_all(write: Write) -> None:
    for dataset, spread in (("debian", 0.0002), ("wordnet", 0.03)):
        write(curves(0.5, spread=spread), dataset=dataset)
        folder = write(curves(0.5002, spread=spread), dataset=dataset, method="gpn")
    sentence = sentences(read([folder]))[0]
    assert sentence.endswith("GPN is conclusive on some datasets only.")


def test_below_six_seeds_nothing_is_bold_or_claimed(write: Write) -> None:
    for number, method in enumerate(("hag-meta", "gpn", "icarl")):
        folder = write(curves(0.5 + 0.2 * number, range(3)), method=method)
    for table in make_tables(Analysis(read([folder]))):
        assert not any(cell.best or cell.mark == "*" for row in table.rows for cell in row)
        if table.section == "comparison":
            assert table.badge == "3 seeds: too few to test, at least 6 needed"
            assert table.badge in to_markdown(table) and "Bold" not in table.caption
    for sentence in sentences(read([effects_of(write, {True: range(3), False: range(3)})])):
        assert " better than " not in sentence and "(equivalent)" not in sentence
        if "effect of" in sentence:
            assert sentence.endswith("] at session 0 (too few seeds).")


def test_without_enough_seeds_no_p_is_printed(write: Write) -> None:
    (table,) = (
        table
        for table in make_tables(Analysis(read([effects_of(write, {True: range(4), False: range(4)})])))
        if table.name.startswith("effects")
    )
    assert not any("p = " in cell.text or "p < " in cell.text for row in table.rows for cell in row)


@pytest.mark.usefixtures("no_figures")
def test_all_are_compared_with_the_baseline_that_is_asked_for(write: Write, tmp_path: Path) -> None:
    for number, method in enumerate(("hag-meta", "gpn", "icarl")):
        folder = write(curves(0.5 + 0.05 * number), method=method)
    results = read([folder]).against("gpn")
    (panel,) = results.panels
    assert panel.reference == "GPN"
    table = next(table for table in make_tables(Analysis(results)) if table.name.startswith("summary"))
    assert [row[0].text for row in table.rows] == ["iCaRL", "GPN", "HAG-Meta"]  # the highest first
    place = table.columns.index("rank")
    assert [row[place].text for row in table.rows] == ["1", "2", "3"]
    assert [row[-1].text for row in table.rows] == [
        "significantly better",
        "",
        "significantly worse",
    ] and table.reference == 1
    assert main([str(folder), "--baseline", "iCaRL", "--out", str(tmp_path / "report")]) == 0
    assert main([str(folder), "--baseline", "nobody", "--out", str(tmp_path / "report")]) == 2


def test_one_name_for_two_graphs_is_two_datasets(write: Write) -> None:
    write({seed: CURVE for seed in range(6)}, study="one", record={"data": "a" * 64})
    folder = write({seed: CURVE for seed in range(6, 12)}, study="two", record={"data": "b" * 64})
    results = read([folder.parent / "one", folder])
    assert sorted(set(results.runs["dataset"])) == ["debian [aaaaaa]", "debian [bbbbbb]"]
    assert len(results.panels) == 2 and all(len(panel.runs) == 6 for panel in results.panels)
    (notice,) = (each for each in notices(Analysis(results)) if "Different graphs" in each.title)
    assert "debian is the name of 2 different graphs" in notice.lines[0]


def test_a_switch_is_chosen_by_the_words_of_the_page(write: Write) -> None:
    results = read([effects_of(write, {True: range(3), False: range(3)})])
    for yes, no in (("yes", "no"), ("true", "False")):
        assert set(results.where({"nla": [yes]}).runs["nla"]) == {True}
        assert set(results.where({"nla": [no]}).runs["nla"]) == {False}
