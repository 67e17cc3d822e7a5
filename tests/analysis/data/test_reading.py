"""What a folder holds is read as it is: nothing is averaged, dropped or mixed in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.comparisons import Analysis
from analysis.data.pooled import pooled
from analysis.data.reading import read
from analysis.page.facts import notices
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from study.store.store import Store
from tests.analysis.conftest import Write, reconfigured

CURVE = (0.8, 0.7, 0.6)


def test_one_row_a_run_and_one_a_session(write: Write) -> None:
    results = read([write({0: CURVE, 1: CURVE})])
    assert len(results.runs) == 2 and len(results.sessions) == 6
    row = results.sessions.iloc[2]
    assert (row["seed"], row["session"], row["accuracy"], row["dataset"]) == (0, 2, 0.6, "debian")
    assert results.runs["seconds"].tolist() == [4.0, 4.0]


def test_the_same_run_in_two_folders_counts_once(write: Write, tmp_path: Path) -> None:
    write({0: CURVE}, study="one")
    write({0: CURVE, 1: CURVE}, study="two")
    results = read([tmp_path])
    assert sorted(results.runs["seed"]) == [0, 1] and not results.conflicts


def test_a_run_that_two_folders_tell_differently_is_named(write: Write, tmp_path: Path) -> None:
    write({0: CURVE}, study="one")
    write({0: (0.8, 0.7, 0.5)}, study="two")
    results = read([tmp_path])
    assert results.runs["last"].tolist() == [0.6]
    (line,) = results.conflicts
    assert "two" in line and "left out" in line


@pytest.mark.parametrize("damage", ["", "{", '{"seed": 1}', "[]", "null", "\x00\xff"])
def test_damaged_files_are_left_out_and_named(write: Write, damage: str) -> None:
    folder = write({0: CURVE, 1: CURVE})
    path = next((folder / "runs").glob("*/1.json"))
    path.write_text(damage)
    results = read([folder])
    assert results.runs["seed"].tolist() == [0]
    assert len(results.damaged) == 1 and str(path) in results.damaged[0]


def test_a_record_of_a_newer_format_is_refused(write: Write) -> None:
    folder = write({0: CURVE, 1: CURVE})
    path = next((folder / "runs").glob("*/1.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 2}))
    with pytest.raises(UserError, match="its format 2 is newer than 1, which this version reads; update"):
        read([folder])


def test_scores_are_macro_accuracies_unless_another_metric_is_asked_for(write: Write) -> None:
    macro = {"macro_accuracy": [0.9, 0.3], "macro_base_accuracy": [0.9, 0.4]}
    macro |= {"macro_novel_accuracy": [None, 0.2], "macro_harmonic": [None, 0.8 / 3]}
    folder = write({0: (0.8, 0.6)}, record=macro)
    for metric, scores, novel in ((None, [0.9, 0.3, 0.6], 0.2), ("accuracy", [0.8, 0.6, 0.7], 0.6)):
        results = read([folder], metric)
        run = results.runs.iloc[0]
        assert [run[key] for key in ("first", "last", "average")] == pytest.approx(scores)
        assert list(results.sessions["novel_score"])[1:] == [novel]


def test_failed_and_missing_runs_are_named(write: Write) -> None:
    folder = write({0: CURVE})
    config = resolve(RunConfig.of(sessions=2))
    store = Store(folder)
    store.write_failure((config.hash(), 1), config.canonical(), "Traceback ...\nValueError: it broke\n")
    store.write_launch(
        {
            "space": "x",
            "description": "",
            "command": "python study/launch.py --space x",
            "time": "2026-01-01",
            "configs": {config.hash(): config.canonical()},
            "seeds": [0, 1, 2],
        }
    )
    results = read([folder])
    assert results.failed[0].words.endswith("ValueError: it broke")
    (missing,) = results.missing
    assert missing.words == f"debian, hag-meta, strict (configuration {config.hash()}): seeds 1, 2"


def test_missing_runs_are_named_by_what_varies(write: Write) -> None:
    folder = write({0: CURVE})
    configs = [resolve(RunConfig.of(sessions=2, hidden=hidden, tla=hidden > 32)) for hidden in (32, 64)]
    launch = {"space": "x", "description": "", "command": "x", "time": "2026-01-01", "seeds": [0]}
    store = Store(folder)
    store.write_launch(launch | {"configs": {each.hash(): each.canonical() for each in configs}})
    words = [lost.words for lost in read([folder]).missing]
    assert all("hidden" in each and "TLA o" in each for each in words)
    assert any("hidden 64, TLA on" in each for each in words)


def test_a_failure_that_was_mended_is_none(write: Write) -> None:
    folder = write({0: CURVE})
    config = resolve(RunConfig.of(sessions=2))
    Store(folder).write_failure((config.hash(), 0), config.canonical(), "broke")
    assert not read([folder]).failed


def test_an_empty_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="expected a study, which contains a folder `runs`, or a folder of studies"
    ):
        read([tmp_path])
    (tmp_path / "study" / "runs").mkdir(parents=True)
    with pytest.raises(UserError, match="no finished run found"):
        read([tmp_path])
    with pytest.raises(UserError, match="no such folder"):
        read([tmp_path / "nowhere"])


def test_configurations_are_named_by_what_they_differ_in(write: Write) -> None:
    write({0: CURVE})
    write({0: CURVE}, gpil=False, nla=False, tla=False)
    folder = write({0: CURVE}, nla=False)
    (panel,) = read([folder]).panels
    assert panel.labels == ["GPIL + NLA + TLA", "GPIL + TLA", "none of the three"]


def test_the_centre_is_the_reference_even_where_an_arm_has_the_default(write: Write) -> None:
    arms = [{}, {"hidden": 64}, {"dropout": 0.0}, {"finetune_steps": RunConfig.of().finetune_steps}]
    for arm in arms:
        folder = write({0: [0.5, 0.4]}, **{"finetune_steps": 10, **arm})
    (panel,) = read([folder]).panels
    assert panel.labels[0] == "HAG-Meta"
    assert set(panel.labels[1:]) == {"hidden 64", "dropout 0", "finetune_steps 20"}


def test_records_of_an_older_version_are_never_taken_for_others(write: Write) -> None:
    # A version that did not know a setting yet: another configuration, though nothing else differs.
    older = reconfigured(write({0: CURVE}, study="older"), without="loss")
    (panel,) = read([older, write({0: CURVE})]).panels
    assert len(panel.labels) == 2 and all("[" in label for label in panel.labels)


def test_where_and_by(write: Write) -> None:
    write({0: CURVE}, hidden=16)
    write({0: CURVE}, hidden=64)
    folder = write({0: CURVE}, hidden=64, dropout=0.1)
    results = read([folder])
    assert set(results.where({"hidden": ["64"]}).runs["dropout"]) == {0.1, 0.5}
    (panel,) = pooled(results, ["hidden"]).panels  # dropout 0.1 ran with one of both values only
    assert panel.labels == ["hidden 16", "hidden 64"] and panel.counts == {"hidden 16": 1, "hidden 64": 1}
    with pytest.raises(UserError, match="no run has this value; expected one of 16, 64"):
        results.where({"hidden": ["32"]})
    with pytest.raises(UserError, match="Did you mean 'hidden'"):
        results.where({"hiden": ["32"]})
    with pytest.raises(UserError, match="Did you mean 'dropout'"):
        pooled(results, ["dropuot"])


def test_setting_that_is_null_is_unknown_in_titles(write: Write) -> None:
    other = reconfigured(write({0: CURVE}, study="other"), classes=None)
    titles = [panel.title for panel in read([write({0: CURVE}), other]).panels]
    assert [title.rpartition(", ")[2] for title in titles] == ["classes 12/12/27", "classes unknown"]


def test_seeds_that_a_later_launch_added_are_noted(write: Write) -> None:
    folder = write({seed: CURVE for seed in range(4)})
    config = resolve(RunConfig.of(sessions=2))
    launch = {"space": "x", "description": "", "command": "x", "configs": {config.hash(): config.canonical()}}
    store = Store(folder)
    store.write_launch(launch | {"time": "2026-01-01", "seeds": [0, 1]})
    assert "Seeds were added later" not in [each.title for each in notices(Analysis(read([folder])))]
    store.write_launch(launch | {"time": "2026-01-02", "seeds": [0, 1, 2, 3]})
    (notice,) = [each for each in notices(Analysis(read([folder]))) if each.title == "Seeds were added later"]
    assert notice.lines[0].startswith("A later launch added 2 seeds (2, 3)")
