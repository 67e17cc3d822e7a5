"""`import hagmeta`: what a user of Python sees."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data

import hagmeta
from analysis.data.reading import read
from hagmeta.api import calls as api
from hagmeta.api import result
from hagmeta.common.records.records import StudyFolder, opened, read_record
from hagmeta.learner import learner
from hagmeta.scenarios.predictions import read_predictions

GRAPH = "synthetic:nodes=300,edges=1200,features=40,classes=10"
TASK: dict[str, Any] = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3}
PLAIN: dict[str, Any] = {**TASK, "features": "propagated"}  # nothing to pre-train
QUICK_FROZEN: dict[str, Any] = {**TASK, "pretrain_epochs": 2}
QUICK: dict[str, Any] = {**TASK, "pretrain_epochs": 2, "episodes": 2, "finetune_steps": 1}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def pyg_data() -> Data:
    graph = hagmeta.load_dataset(GRAPH)
    edges = torch.from_numpy(np.concatenate([graph.edges, graph.edges[:, ::-1]]).T.copy())
    x = torch.from_numpy(np.asarray(graph.features.todense()))
    return Data(x=x, edge_index=edges, y=torch.from_numpy(graph.labels))


@pytest.fixture(scope="module")
def ncm() -> hagmeta.Result:
    return hagmeta.run("sgc-ncm", GRAPH, seeds=6, cache=False, **PLAIN)


@pytest.fixture(scope="module")
def ridge() -> hagmeta.Result:
    return hagmeta.run("sgc-ridge", GRAPH, seeds=6, cache=False, **PLAIN)


def refused(*arguments: Any, **keywords: Any) -> str:
    """Return the message of a call of `run` that is refused: one line."""
    with pytest.raises(hagmeta.UserError) as error:
        hagmeta.run(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("module", [api, result, learner], ids=["api", "result", "learner"])
def test_examples_of_docstrings_hold(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 4 and found.failed == 0


def test_import_takes_neither_torch_nor_pandas() -> None:
    heavy = {"torch", "pandas", "matplotlib", "ray"}
    code = f"import sys, hagmeta; dir(hagmeta); print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_all_names_are_there_and_listed() -> None:
    assert set(hagmeta.__all__) <= set(dir(hagmeta))
    for name in hagmeta.__all__:
        assert getattr(hagmeta, name) is not None, name
    assert hagmeta.load is hagmeta.load_dataset
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = hagmeta.runn


def test_the_sentence_from_a_pyg_graph_to_a_comparison(pyg_data: Data, tmp_path: Path) -> None:
    data = hagmeta.Dataset.from_pyg(pyg_data, name="mine")
    task = {"classes": (4, 2, 4), "n_way": 2, "k_shot": 3, "pretrain_epochs": 2, "finetune_steps": 1}
    found = hagmeta.run("posterior-means", data, seeds=2, **task)
    other = hagmeta.run("hag-meta", data, seeds=2, **QUICK)
    assert found.config.dataset == data.identity == f"mine@{data.fingerprint[:12]}"
    assert all(record["config"]["dataset"] == data.identity for record in found.records)
    assert "2-way 3-shot" in repr(found) and "on mine," in repr(found)
    assert found._repr_html_().count("<tr>") == 1 + 3 + 2  # the head, three sessions, PD and the average
    assert list(found.frame()["session"]) == [0, 1, 2] * 2
    ax = found.plot()
    assert other.plot(ax) is ax and len(ax.lines) == 2 and len(ax.collections) == 2
    folder = found.save(tmp_path / "results" / "mine")
    assert len(read([folder]).runs) == 2
    comparison = hagmeta.compare(found, other)
    assert [pair.last.verdict for pair in comparison.pairs] == ["too few seeds"]
    assert "2 seeds: too few to test, at least 6 needed" in " ".join(repr(comparison).split())
    plt.close("all")


def test_classes_are_proposed_and_printed(pyg_data: Data, capsys: pytest.CaptureFixture[str]) -> None:
    found = hagmeta.run("sgc-ncm", pyg_data, n_way=2, k_shot=3, features="propagated", seeds=1)
    assert found.config.classes is not None and sum(found.config.classes) <= 10
    base, train, test = found.config.classes
    assert f"classes {base} {train} {test} (base, novel-train, novel-test" in capsys.readouterr().err


def test_settings_that_do_not_apply_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    hagmeta.run("sgc-ncm", GRAPH, seeds=1, nla=False, **PLAIN)
    assert "note: `nla` does not apply to sgc-ncm" in capsys.readouterr().err


def test_a_method_class_stands_for_its_name(ncm: hagmeta.Result) -> None:
    from hagmeta.methods import METHODS

    found = hagmeta.run(METHODS["sgc-ncm"], GRAPH, seeds=[5], cache=False, **PLAIN)
    assert found.records[0]["config_hash"] == ncm.records[0]["config_hash"]
    assert found.records[0]["macro_accuracy"] == ncm.records[5]["macro_accuracy"]


class FirstSession(hagmeta.Metric):
    """A metric of somebody else's."""

    name, title, by_session = "first_session", "first session", False

    def compute(self, predictions: Any) -> float:
        return float(predictions.correct()[0].mean())


def test_a_metric_of_one_s_own_is_in_the_records() -> None:
    result = hagmeta.run("sgc-ncm", GRAPH, seeds=1, cache=False, metrics=[FirstSession], **PLAIN)
    (record,) = result.records
    assert opened(record)["first_session"] == record["accuracy"][0]
    assert record["metrics"]["first_session"]["source"].startswith("FirstSession@")


def test_a_run_config_runs_on_every_device() -> None:
    config = hagmeta.RunConfig.of(method="sgc-ncm", **PLAIN)
    graph = hagmeta.load(GRAPH)
    for device in ("cpu", "auto", None, torch.device("cpu")):
        (record,) = hagmeta.run(config, graph, seeds=[0], device=device, cache=False).records
        assert record["config"]["dataset"] == GRAPH  # and not debian, the default
    assert hagmeta.run(config, dataset=GRAPH, seeds=2, cache=False).seeds == [0, 1]


def test_a_run_config_with_a_graph_returns_a_result(pyg_data: Data) -> None:
    data = hagmeta.Dataset.from_pyg(pyg_data, name="mine")
    config = hagmeta.RunConfig.of(method="sgc-ncm", dataset="mine", **PLAIN)
    found = hagmeta.run(config, data, seeds=[3])
    assert isinstance(found, hagmeta.Result) and found.seeds == [3]
    assert found.config.dataset == data.identity


def test_a_run_config_of_another_graph_is_refused() -> None:
    config = hagmeta.RunConfig.of(dataset="foldoc")
    assert "names the dataset foldoc" in refused(config, hagmeta.load(GRAPH))


def test_the_cache_may_be_a_text_or_a_path(tmp_path: Path, home: Path) -> None:
    for cache in (str(tmp_path / "one"), tmp_path / "two", True):
        hagmeta.run("frozen", GRAPH, seeds=1, cache=cache, **QUICK_FROZEN)
    for folder in (tmp_path / "one", tmp_path / "two", home / "pretrained"):
        assert any(folder.rglob("*"))
    one, two = (
        hagmeta.run("frozen", GRAPH, seeds=1, cache=c, **QUICK_FROZEN) for c in (tmp_path / "one", False)
    )
    assert one.records[0]["accuracy"] == two.records[0]["accuracy"]


@pytest.mark.parametrize(
    ("arguments", "keywords", "named"),
    [
        (("nope", GRAPH), {}, "unknown method 'nope'"),
        (("sgc-ncm", GRAPH), {"n_ways": 3}, "Did you mean 'n_way'?"),
        (("sgc-ncm", GRAPH), {"seed": 3}, "Did you mean 'seeds'?"),
        (("sgc-ncm", GRAPH), {"featuers": "propagated"}, "Did you mean 'features'?"),
        (("sgc-ncm", GRAPH), {"seeds": 0}, "seeds is 0"),
        (("sgc-ncm", GRAPH), {"seeds": [1, 1]}, "seeds is [1, 1]"),
        (("sgc-ncm", GRAPH), {"seeds": "ten"}, "seeds is 'ten'"),
        (("sgc-ncm", [0, 1]), {}, "To choose seeds, use seeds=[0, 1]"),
        (("sgc-ncm", object()), {}, "data is of type object; expected a hagmeta.Dataset"),
        (("sgc-ncm", "no-such-graph"), {}, "unknown dataset 'no-such-graph'"),
        (("sgc-ncm", GRAPH), {"dataset": "debian"}, "the graph is given twice"),
        (("sgc-ncm", Path("no-such.npz")), {}, "no-such.npz"),
        (("sgc-ncm", GRAPH), {"device": "gpu"}, "unknown device 'gpu'"),
        (("sgc-ncm", GRAPH), {"device": 0}, "device is 0"),
        (("sgc-ncm", GRAPH), {"classes": (4, 2)}, "classes is (4, 2)"),
        (("sgc-ncm", GRAPH), {"n_way": "many"}, "n_way is 'many'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[Any, ...], keywords: dict[str, Any], named: str) -> None:
    assert named in refused(*arguments, **keywords)


def test_settings_next_to_a_run_config_are_refused() -> None:
    found = refused(hagmeta.RunConfig.of(), GRAPH, episodes=3)
    assert "episodes cannot be combined with a RunConfig" in found


def test_progress_reports_to_a_function_and_a_short_run_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    phases = []
    hagmeta.run("hag-meta", GRAPH, seeds=1, progress=lambda phase, *_: phases.append(phase), **QUICK)
    assert list(dict.fromkeys(phases)) == ["pre-train", "meta-train", "test"]
    for progress in (True, False):
        hagmeta.run("hag-meta", GRAPH, seeds=1, progress=progress, **QUICK)
    assert not capsys.readouterr().err


def test_episodes_are_expected_of_methods_that_are_meta_trained() -> None:
    def episodes(**settings: Any) -> int:
        return api.training_steps(hagmeta.resolve(hagmeta.RunConfig.of(**settings)))["meta-train"]

    assert episodes(method="hag-meta", episodes=70) == 70
    assert episodes(method="hag-meta", gpil=False) == episodes(method="frozen") == 0


def test_a_frame_has_a_row_per_seed_and_session(ncm: hagmeta.Result) -> None:
    frame = ncm.frame()
    assert list(frame.columns[:7]) == list(result.IDENTITY)
    assert len(frame) == 6 * 3 and not frame.duplicated(["seed", "session"]).any()
    assert list(frame["macro_accuracy"][:3]) == ncm.records[0]["macro_accuracy"]


def test_the_table_escapes_names(ncm: hagmeta.Result) -> None:
    records = [{**record, "config": {**record["config"], "dataset": "<b>[red]x&"}} for record in ncm.records]
    odd = hagmeta.Result(records, ncm.config, ncm.predictions)
    assert "&lt;b&gt;[red]x&amp;" in odd._repr_html_()
    assert "<b>[red]x&" in repr(odd)


def test_a_saved_result_is_a_study_with_predictions(ncm: hagmeta.Result, tmp_path: Path) -> None:
    folder = StudyFolder(ncm.save(str(tmp_path / "mine")))
    records = [read_record(path) for path in folder.record_files()]
    assert records == json.loads(json.dumps(ncm.records))
    key = (records[2]["config_hash"], 2)
    kept, own = read_predictions(folder.predictions_of(key)), ncm.predictions[2]
    for asked, answered, session in zip(kept.queries, kept.predicted, range(3), strict=True):
        assert dict(zip(own.queries[session], own.predicted[session], strict=True)) == dict(
            zip(asked, answered, strict=True)
        )
    ncm.save(folder.folder)  # again: the same files
    assert len(list(folder.record_files())) == 6


def test_a_folder_does_not_mix_graphs_of_one_name(ncm: hagmeta.Result, tmp_path: Path) -> None:
    ncm.save(tmp_path)
    other = hagmeta.Result(
        [{**record, "data": "0" * 64} for record in ncm.records], ncm.config, ncm.predictions
    )
    with pytest.raises(hagmeta.UserError, match="runs of a different graph named synthetic"):
        other.save(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(ncm: hagmeta.Result, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(hagmeta.UserError, match="file cannot be written"):
        ncm.save(tmp_path / "file")


@pytest.mark.slow
def test_a_comparison_says_what_the_report_says(
    ncm: hagmeta.Result, ridge: hagmeta.Result, tmp_path: Path
) -> None:
    comparison = hagmeta.compare(ridge, ncm)
    ncm.save(tmp_path)
    page = hagmeta.report(ridge.save(tmp_path), baseline="sgc-ncm")
    (path,) = page.parent.glob("tables/summary-*.csv")
    told = pd.read_csv(path).dropna(subset="verdict").iloc[0]
    (pair,) = comparison.pairs
    assert (pair.one, pair.other) == ("SGC-Ridge", "SGC-NCM")
    assert (pair.one, pair.last.verdict) == (told["configuration"], told["verdict"])
    assert (pair.last.low, pair.last.corrected) == pytest.approx((told["low"], told["corrected_p"]))
    differences = [
        b["macro_accuracy"][-1] - a["macro_accuracy"][-1]
        for a, b in zip(ncm.records, ridge.records, strict=True)
    ]
    assert pair.last.mean == pytest.approx(np.mean(differences), abs=1e-9)
    turned = hagmeta.compare(ncm, ridge).pairs[0]
    assert (turned.one, turned.other, turned.last.mean) == (
        pair.other,
        pair.one,
        pytest.approx(-pair.last.mean),
    )


def test_results_of_different_tasks_are_not_compared(ncm: hagmeta.Result) -> None:
    other = hagmeta.run("sgc-ridge", GRAPH, seeds=1, cache=False, **{**PLAIN, "k_shot": 2})
    with pytest.raises(hagmeta.UserError, match="k_shot is 3 and 2") as error:
        hagmeta.compare(ncm, other)
    assert "\n" not in str(error.value)
    for results, named in (
        ((ncm,), "compare got 1 result; expected two or more"),
        ((ncm, ncm), "same configuration"),
        ((ncm, 3), "a value of type int; expected a hagmeta.Result"),
    ):
        with pytest.raises(hagmeta.UserError, match=named):
            hagmeta.compare(*results)  # type: ignore[arg-type]


def test_only_common_seeds_count(ncm: hagmeta.Result, ridge: hagmeta.Result) -> None:
    few = hagmeta.Result(ridge.records[3:], ridge.config, ridge.predictions[3:])
    comparison = hagmeta.compare(ncm, few)
    assert comparison.pairs[0].last.seeds == 3
    assert comparison.badge == "3 seeds: too few to test, at least 6 needed"


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({}, "either a space or methods"),
        ({"space": "ablation", "methods": ["sgc-ncm"]}, "either a space or methods"),
        ({"methods": ["sgc-ncm"], "retrys": 3}, "Did you mean 'retries'?"),
        ({"space": "abblation"}, "Did you mean 'ablation'?"),
        ({"methods": ["cec"], "datasets": ["debian"], "n_way": 2}, "pass settings={'n_way'"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused_in_one_line(keywords: dict[str, Any], named: str) -> None:
    with pytest.raises(hagmeta.UserError) as error:
        hagmeta.study(**keywords)
    assert named in str(error.value) and "\n" not in str(error.value)
