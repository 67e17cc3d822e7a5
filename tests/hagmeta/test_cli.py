from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta import datasets
from hagmeta.__main__ import main
from tests.waiting import HANG, wait_for

GRAPH = "synthetic:nodes=400,edges=1500,features=40,classes=8,seed=1"
CLASSES = ["--classes", "3", "2", "3"]
TINY = ["--dataset", GRAPH, *CLASSES, "--n-way", "1", "--k-shot", "2", "--episodes", "4", "--device", "cpu"]
TINY += ["--set", "pretrain_epochs=5", "--set", "finetune_steps=2"]
SERIES = {"accuracy", "base_accuracy", "novel_accuracy", "new_accuracy", "harmonic", "matrix"}  # by session
OTHERS = {"config", "config_hash", "seed", "pd", "rpd", "validation", "seconds", "environment"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing is read from or left in the user's own cache."""
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_run_writes_a_record_a_seed_and_shows_a_table(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.json"
    assert main([*TINY, "--seeds", "1,4", "--set", "dropout=0.25", "--no-nla", "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "session" in shown and "PD" in shown
    assert "trained parameters" in " ".join(shown.split())
    records = json.loads(path.read_text())
    assert [record["seed"] for record in records] == [1, 4]
    for record in records:
        assert record.keys() >= SERIES | OTHERS
        assert (record["config"]["dropout"], record["config"]["nla"], record["config"]["tla"]) == (
            0.25,
            False,
            True,
        )
        assert record["config"]["classes"] == [3, 2, 3]
        assert {len(record[key]) for key in SERIES} == {4}, "session 0 and three sessions"
        assert [len(row) for row in record["matrix"]] == [1, 2, 3, 4]
        shares = [
            *record["accuracy"],
            *record["base_accuracy"],
            *(v for row in record["matrix"] for v in row),
        ]
        shares += [*record["novel_accuracy"][1:], *record["new_accuracy"][1:], *record["harmonic"][1:]]
        assert all(0 <= share <= 1 for share in shares)
        assert record["novel_accuracy"][0] is record["new_accuracy"][0] is record["harmonic"][0] is None
        assert record["pd"] == pytest.approx(record["accuracy"][0] - record["accuracy"][-1])
        assert all(seconds >= 0 for seconds in record["seconds"].values())
        assert record["environment"]["seeds_in_pack"] == 2
        assert record["trained_parameters"] == records[0]["trained_parameters"] > 0
    assert len({record["config_hash"] for record in records}) == 1
    # One pre-trained encoder a seed is kept for whoever needs it next.
    assert len(list((home / "pretrained").glob("*.pt"))) == 2


def test_the_help_fits_80_columns_and_groups_settings_by_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert max(map(len, shown.splitlines())) <= 80
    assert "\n\nsettings of er-gnn, icarl:\n  memory             nodes kept per class" in shown
    common = shown[shown.index("settings for --set") : shown.index("settings of hag-meta")]
    assert "\n  learning_rate " in common and "\n  inner_steps " not in common


def test_a_setting_that_does_not_apply_gets_a_note_and_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*TINY, "--seeds", "1", "--method", "frozen", "--no-nla"]) == 0
    shown = capsys.readouterr()
    why = {
        "nla": "it is a setting of other methods only",
        "episodes": "the method is not meta-trained",
        "finetune_steps": "the method takes no gradient steps in sessions",
    }
    told = " ".join(shown.err.split())
    for key, reason in why.items():
        assert f"note: `{key}` does not apply to frozen: {reason}" in told
    assert told.count("note:") == len(why)
    assert "NLA" not in shown.out


def test_an_oracle_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--seeds", "1", "--method", "joint"]) == 0
    shown = capsys.readouterr()
    assert "note: joint is an oracle" in shown.err and "(an oracle)" in " ".join(shown.out.split())


def test_smoothed_answers_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--seeds", "1", "--method", "frozen", "--set", "smoothing=0.5"]) == 0
    shown = capsys.readouterr()
    assert "note: smoothing makes predictions transductive" in " ".join(shown.err.split())
    assert "frozen, smoothed, on" in " ".join(shown.out.split())
    both = ["--set", "smoothing=0.5", "--set", "self_training=2"]
    assert main([*TINY, "--seeds", "1", "--method", "frozen", *both]) == 0
    assert "frozen, smoothed, self-trained, on" in " ".join(capsys.readouterr().out.split())


def test_datasets_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["datasets"]) == 0
    shown = capsys.readouterr().out
    for name in datasets.names():
        assert f" {name} " in shown
    assert "131,552" in shown and "12/12/27" in shown


def write_npz(path: Path, **changes: Any) -> str:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "edges": rng.integers(60, size=(100, 2)),
        "labels": np.arange(60) % 6,
        "features": rng.random((60, 4)),
    }
    np.savez(path, **(arrays | changes))
    return f"npz:{path}"


def npz_with_nan(folder: Path) -> str:
    features = np.ones((60, 4))
    features[7, 2] = np.nan
    return write_npz(folder / "graph.npz", features=features)


def npz_with_negative_label(folder: Path) -> str:
    return write_npz(folder / "graph.npz", labels=np.arange(60) % 6 - 2)


def corrupt_npz(folder: Path) -> str:
    write_npz(folder / "whole.npz")
    (folder / "graph.npz").write_bytes((folder / "whole.npz").read_bytes()[:700])
    return f"npz:{folder / 'graph.npz'}"


BAD: list[tuple[list[str], str]] = [
    (["--dataset", "debain"], "Did you mean 'debian'?"),
    (["--dataset", "npz:/no/such/file.npz"], "no such file"),
    (["--dataset", "synthetic:nodes=many"], "many"),
    (["--dataset", GRAPH, "--n-way", "4"], "4-way needs 10"),
    ([*TINY, "--method", "hag-mata"], "Did you mean 'hag-meta'?"),
    ([*TINY, "--set", "hiden=3"], "Did you mean 'hidden'?"),
    ([*TINY, "--set", "hidden"], "--set 'hidden' is not KEY=VALUE"),
    ([*TINY, "--set", "hidden=wide"], "hidden is 'wide'"),
    ([*TINY, "--set", "dropout=1"], "dropout is '1'; expected a number of at least 0 and below 1"),
    ([*TINY, "--set", "n_way=2"], "n_way is given twice"),
    ([*TINY, "--set", "hidden=8", "--set", "hidden=9"], "--set hidden is given twice: 8 and 9"),
    ([*TINY, "--set", "hidden=8", "dropout=0"], "Repeat --set for each setting: --set dropout=0"),
    ([*TINY, "--encoder", "gccn"], "Did you mean 'gcn'?"),
    ([*TINY, "--set", "inputs=tfidf"], "Did you mean 'tf-idf'?"),
    ([*TINY, "--set", "inputs=tf-idf", "--dataset", f"{GRAPH},dense=1"], "dense=1 are not counts"),
    ([*TINY, "--protocol", "loose"], "unknown protocol 'loose'"),
    ([*TINY, "--classes", "a", "b", "c"], "classes is ['a', 'b', 'c']"),
    ([*TINY, "--classes", "3", "2"], "expected 3 arguments"),
    ([*TINY, "--classes", "3", "2", "9"], "more than the 8 usable classes"),
    ([*TINY, "--n-way", "4"], "n_way is 4, but only 3 classes are novel-test"),
    ([*TINY, "--n-way", "0"], "n_way is '0'; expected a whole number of at least 1"),
    ([*TINY, "--k-shot", "100"], "--drop-small"),
    ([*TINY, "--k-shot", "-1"], "k_shot is '-1'"),
    ([*TINY, "--seeds", "many"], "seeds 'many'"),
    ([*TINY, "--seeds", "0"], "0-0 is one seed"),
    ([*TINY, "--seeds", "20", "21"], "unexpected '21'. A list of seeds is one word: --seeds 20-21 or"),
    ([*TINY, "--seeds", "20,", "21", "22"], "unexpected '22'. A list of seeds is one word"),
    ([*TINY, "--device", "gpu"], "--device"),
    ([*TINY, "--speed=11"], "unknown option '--speed'"),
    (["explain"], "explain"),
]


def assert_refused(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ") and expected in shown.err
    assert shown.err.count("\n") == 1 and shown.err.endswith("\n") and len(shown.err) < 1000


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[expected for _, expected in BAD])
def test_bad_input_is_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(arguments, expected, capsys)


@pytest.mark.parametrize(
    ("make", "expected"),
    [(corrupt_npz, "not a readable .npz"), (npz_with_nan, "nan"), (npz_with_negative_label, "-2")],
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Callable[[Path], str], expected: str
) -> None:
    assert_refused(["--dataset", make(tmp_path), *CLASSES], expected, capsys)


@pytest.mark.parametrize(
    "kind", ["missing folder", "a folder", "below a file", "a FIFO", "a long name", "NUL"]
)
def test_an_unwritable_json_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    places = {"missing folder": "no/records.json", "a folder": ".", "below a file": "file/records.json"}
    # While it is written a file has a longer name.
    places |= {"a FIFO": "pipe", "a long name": "a" * 250, "NUL": "a\0b"}
    assert_refused([*TINY, "--json", str(tmp_path / places[kind])], "cannot be written", capsys)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_cuda_device_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused([*TINY, "--device", "cuda"], "no CUDA device here", capsys)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--speed", "11"], "unknown option '--speed'"),
        (["dataset"], "Did you mean 'datasets'?"),
        ([*TINY, "--set", "hidden=1000000000000000"], "hidden is '1000000000000000'"),
        (["--dataset", "9" * 5000], "unknown dataset '999"),
        ([*TINY, "--seeds", "9" * 5000], "seeds '999"),
        ([*TINY, "--set", "encoder=" + "9" * 5000], "unknown encoder '999"),
        (["--dataset", "synthetic:nodes=" + "9" * 5000], "synthetic: nodes='999"),
        (["--dataset", "npz:/no\nsuch"], "/no such"),
        ([*TINY, "--json", "a" * 300], "cannot be written"),
    ],
)
def test_odd_input_is_one_line_too(
    arguments: list[str], named: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(arguments, named, capsys)


def test_plain_runs_without_packs(tmp_path: Path) -> None:
    assert main([*TINY, "--seeds", "2", "--plain", "--json", str(tmp_path / "records.json")]) == 0
    records = json.loads((tmp_path / "records.json").read_text())
    assert [record["environment"]["plain"] for record in records] == [True, True]


def test_ctrl_c_shows_and_writes_the_seeds_that_are_finished(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "records.json"
    command = [sys.executable, "-m", "hagmeta", *TINY, "--plain", "--seeds", "20", "--json", str(path)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        # The second seed has its pre-trained encoder, so the first seed is finished.
        wait_for(lambda: len(list((home / "pretrained").glob("*.pt"))) == 2, process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=HANG)
    assert process.returncode == 130, errors
    finished = [record["seed"] for record in json.loads(path.read_text())]
    assert finished == list(range(len(finished))) and 1 <= len(finished) < 20
    assert errors == f"stopped. {len(finished)} of 20 seeds are finished.\n"
    assert "hag-meta" in out and "PD" in out
