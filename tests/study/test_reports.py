"""What trials tell while they run, and where it is seen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from hagmeta.common.errors import UserError
from hagmeta.config import RunConfig
from study import loggers, reports
from study.plan import Trial
from study.progress import StudyProgress
from study.reports import LiveReports
from tests.study.test_launch import SPACE, folder, launch  # noqa: F401


def test_a_trial_reports_at_most_once_a_second_and_a_sample_nothing_of_test_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, told = 0.0, []
    monkeypatch.setattr(reports.time, "monotonic", lambda: now)
    monkeypatch.setattr(reports.tune, "report", told.append)
    study, sample = LiveReports(), LiveReports(tells_test=False)
    for tenth in range(100):
        now = tenth / 10
        study("meta-train", tenth, 100, {"val": 0.5})
    assert [each["step"] for each in told] == list(range(10, 100, 10))
    assert told[0] == {"phase": "meta-train", "step": 10, "steps": 100, "meta-train/val": 0.5}
    told.clear()
    now = 60.0
    study("test", 1, 9, {"accuracy": 0.7})
    sample("test", 1, 9, {"accuracy": 0.7})
    assert [each.get("test/accuracy") for each in told] == [0.7, None]


def test_the_terminal_shows_what_runs_and_how_far_it_is() -> None:
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, markup=False)
    trial = Trial(RunConfig(dataset="npz:[x].npz", classes=(2, 2, 2), n_way=1), (0, 1))
    with StudyProgress(console, [trial], 0) as progress:
        progress.started("a", trial)
        progress.goes_on("a", "meta-train", 25, 1000, {"meta-train/val": 0.512})
        progress.goes_on("of no trial that runs", "test", 1, 2, {})
        console.print(progress._panel())
    shown = output.getvalue()
    assert "hag-meta on npz:[x].npz, seeds 0-1" in shown and "meta-train 25/1000, 51.2 %" in shown


def test_tensorboard_has_the_curves_of_a_trial_and_not_its_records(folder: Path) -> None:  # noqa: F811
    (folder / "tiny.yaml").write_text(SPACE.replace("nla: [false, true], tla: [false, true]", "nla: [true]"))
    options = ("--set", "episodes=250", "--set", "patience=250", "--log", "tensorboard", "--no-report")
    code, output = launch(folder, *options)
    assert code == 0, output
    assert f"tensorboard --logdir {folder / 'results' / 'tiny' / 'tensorboard'}" in output
    files = list((folder / "results" / "tiny" / "tensorboard").glob("*/events.out.tfevents.*"))
    tags = [value.tag for file in files for event in events_in(file) for value in event.summary.value]
    assert tags.count("ray/tune/meta-train/val") >= 2 and "ray/tune/accuracy" in tags
    # Nothing of Tune's own is large: records are in our files alone.
    others = [path for path in (folder / "results").rglob("tune/**/*") if path.is_file()]
    assert all(path.stat().st_size < 100_000 and path.name != "result.json" for path in others)


def events_in(file: Path) -> list[Any]:
    """Length, its checksum, content, its checksum: again and again."""
    content, events = file.read_bytes(), []
    while content:
        length = int.from_bytes(content[:8], "little")
        assert int.from_bytes(content[8:12], "little") == masked_crc32c(content[:8])
        events.append(Event.FromString(content[12 : 12 + length]))
        content = content[16 + length :]
    return events


def test_a_logger_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="--log mlflow needs the package mlflow: pip install mlflow"):
        loggers.check_loggers(["mlflow"])
