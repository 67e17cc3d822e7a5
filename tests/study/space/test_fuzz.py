"""What people mistype and disks spoil: whatever it is, one line, and never a traceback.

A few examples each; HAGMETA_FUZZ=1 takes 2,000 files, 500 command lines, 500 records and 100 real commands.
"""

from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.data import reading
from hagmeta.common.errors import UserError
from hagmeta.common.records import record_schema
from hagmeta.common.records.metrics import MetricDeclaration, to_record
from hagmeta.config.run_config import RunConfig, resolve
from study.launch import main
from study.store.store import Store
from study.terminal.table import study_table
from tests.study.store.test_store import record
from tests.study.test_launch import SPACE

CONFIG = resolve(RunConfig.of(sessions=1))
SCHEMA = jsonschema.Draft202012Validator(json.loads(record_schema.FILE.read_text()))
FULL = bool(os.environ.get("HAGMETA_FUZZ"))
SEARCH = """
datasets: [debian, "npz:missing.npz"]
fixed: {val_classes: half, n_way: 3}
cases: [{method: hag-meta, nla: false}, {method: cec, dataset: debian}]
search: {algorithm: optuna, samples: 4, objective: val_accuracy}
sample:
  learning_rate: {loguniform: [1e-3, 0.1]}
  hidden: {choice: [16, 32]}
  finetune_steps: {randint: [0, 9]}
seeds: [1, 4]
quick: {seeds: 1, fixed: {episodes: 3}}
"""
ONE_AT_A_TIME = """
description: "[bold]x[/]"
datasets: [debian]
one_at_a_time: {k_shot: [1, 3], protocol: [released], smoothing: [0.5], rehearsal: [none, 2]}
include: [ablation]
seeds: 2
"""
ODD: list[Any] = [None, True, -1, 0, 0.5, 1e308, 10**30, "", "x", "NaN", "9" * 400, "[/b]"]
ODD += [[], [[]], {}, {"a": 1}]
ODD_TEXTS = ["", " ", "-", "--", "=", "[", "]", "{", "}", ":", "&a", "*a", "<<: *a", "|", "\t", "\0", "~"]
ODD_TEXTS += ["null", "1e999", "-1", "[/x]", "é", "\N{PILE OF POO}", "nla", "../..", "0x10"]
ODD_TEXTS += ["!!python/object:os.system"]
OPTIONS = {
    "--space": ["ablation", "hyperparameters", "quickly", "", ".", "/", "tiny.yaml", "/etc/passwd", "\0"],
    "--dataset": [
        "debian",
        "npz:x",
        "mat:",
        "synthetic:nodes=4",
        "synthetic:nodes=99999999,edges=9",
        "~no/x",
        "",
    ],
    "--seeds": ["3", "0", "0-0", "5-2", "1,1", "x", "", "9" * 30, "1-99999"],
    "--seeds-per-trial": ["auto", "0", "2", "x", "1e3"],
    "--members-per-trial": ["auto", "0", "2", "x", "1e3"],
    "--set": [
        "nla=true",
        "nla",
        "=",
        "hidden=0",
        "hidden=" + "9" * 40,
        "classes=1,2",
        "x=1",
        "method=cec",
        "k_shot=nan",
    ],
    "--results": ["r", "", "/dev/null", "x" * 5000, "s4://x", "file:///proc/x", "a\0b", "~nobody-here/x"],
    "--address": ["auto", "ray://x", "x", "x:y", ":", "1:99999999"],
    "--cpus-per-trial": ["1", "-1", "nan", "inf", "1e9", ""],
    "--gpus-per-trial": ["auto", "0.5", "2.5", "nan", "-0"],
    "--max-concurrent": ["1", "0", "1.5"],
    "--retries": ["0", "-1", "x"],
    "--time-budget": ["2h", "0", "1e9", "h", "-3s"],
    "--save-embeddings": ["last", "0", "99", "x"],
    "--log": ["tensorboard", "mlflow", "x"],
}
FLAGS = ["--quick", "--mps", "--eager", "--no-report", "--open", "--sapce", "x", "--", "-h"]
if FULL:  # these read many configurations, which takes seconds
    OPTIONS["--space"].append("tune")
    FLAGS.append("--list")


def some(few: int, full: int) -> Any:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    number = full if FULL else few
    return settings(max_examples=number, deadline=None, suppress_health_check=checks, database=None)


@st.composite
def mutated_text(draw: st.DrawFn, text: str) -> str:
    """A text in which a few pieces were left out, doubled, moved or replaced."""
    for _ in range(draw(st.integers(1, 4))):
        pieces = re.findall(r"\w+|\s+|[^\w\s]", text) or [""]
        place = draw(st.integers(0, len(pieces) - 1))
        kind = draw(st.sampled_from(["drop", "double", "swap", "odd", "cut"]))
        if kind == "drop":
            del pieces[place]
        elif kind == "double":
            pieces.insert(place, pieces[place])
        elif kind == "swap":
            other = draw(st.integers(0, len(pieces) - 1))
            pieces[place], pieces[other] = pieces[other], pieces[place]
        elif kind == "odd":
            pieces[place] = draw(st.sampled_from(ODD_TEXTS))
        else:
            pieces = pieces[: place + 1]
        text = "".join(pieces)
    return text


yaml_files = st.sampled_from([SPACE, SEARCH, ONE_AT_A_TIME]).flatmap(mutated_text)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    words = []
    for name in draw(st.lists(st.sampled_from(sorted(OPTIONS)), max_size=4)):
        words += [name, draw(st.sampled_from(OPTIONS[name]))]
    words += draw(st.lists(st.sampled_from(FLAGS), max_size=2))
    return draw(st.permutations(words)) if draw(st.booleans()) else words


@st.composite
def mutated_records(draw: st.DrawFn) -> bytes:
    """A record in which something was replaced, left out or cut off."""
    content = whole_record()
    if draw(st.integers(0, 3)) == 0:
        return draw(mutated_text(json.dumps(content))).encode(errors="replace")
    for _ in range(draw(st.integers(1, 3))):
        place: Any = content
        while True:
            keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and draw(st.booleans()):
                place = place[key]
            elif isinstance(place, dict) and draw(st.booleans()):
                del place[key]
                break
            else:
                place[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
                break
    return json.dumps(content).encode()


def whole_record() -> dict[str, Any]:
    more = {
        "macro_accuracy": [0.8, 0.5],
        "environment": {"commit": None, "device": "CPU"},
        "nla_entropy": [None, 1.0],
        "traits": {"title": "HAG-Meta", "role": "studied", "transductive": ""},
        "worst": 0.5,
        "metrics": {"worst": to_record(MetricDeclaration("worst", "worst", by_session=False), "W@0123")},
    }
    return json.loads(json.dumps(record(0, config=CONFIG) | more))


def is_small(text: str) -> bool:
    """Whether what is generated for it takes no time: that is not what is tested."""
    return all(int(number) < 10**6 for number in re.findall(r"\d+", text) if len(number) < 9)


def check(code: int, output: str) -> None:
    assert code in (0, 2), output
    assert "Traceback" not in output
    if code == 2:
        assert output.splitlines()[-1].startswith("error: ") and output.count("error: ") == 1, output


def launched(capsys: pytest.CaptureFixture[str], *options: str) -> None:
    """In this process, dry, so that nothing starts."""
    try:
        code = main([*options, "--dry-run"])
    except SystemExit as end:  # argparse's, after --help
        code = int(end.code or 0)
    check(code, "".join(capsys.readouterr()))


@some(50, 2000)
@given(text=yaml_files.filter(is_small))
def test_any_space_file_is_read_or_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mutated.yaml"
    path.write_bytes(text.encode(errors="replace"))
    launched(capsys, "--space", str(path), "--results", str(tmp_path / "results"))


@some(50, 500)
@given(words=command_lines())
def test_any_command_line_is_taken_or_refused_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setenv("HAGMETA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(SPACE)
    launched(capsys, *words)


@some(50, 500)
@given(content=mutated_records())
def test_any_record_counts_or_is_set_aside(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path)
    name = Path(whole_record()["config_hash"], "0.json")
    path = store.runs / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    counted = len(store.scan(set_aside=False).done)
    try:
        assert len(reading.read([tmp_path]).runs) == counted
    except UserError:  # no run is left to report of
        assert not counted
    study_table(store.records() if counted else [whole_record()], 80)
    assert len(store.scan().aside) == 1 - counted


@some(100, 2000)
@given(content=mutated_records())
def test_a_glance_at_a_record_finds_what_jsonschema_finds(content: bytes) -> None:
    try:
        spoilt = json.loads(content)
    except ValueError:
        return
    if not isinstance(spoilt, dict):
        return
    right = SCHEMA.is_valid(spoilt)
    found = record_schema.problem_of(spoilt)
    beyond = (
        "sessions, but its accuracy",
        "not triangular",
        "config has no",
        "declared",
        ", given its",  # values that follow from others
    )  # what a schema cannot say
    assert (found is None or any(words in found for words in beyond)) == right, found
