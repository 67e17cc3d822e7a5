"""What a run without a terminal says while it runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hagmeta.api.display import ProgressLines, TimeLeft

STEPS = {"pre-train": 100, "meta-train": 100, "test": 50}
NONE: dict[str, float] = {}


def left_after(*updates: tuple[str, int, int, float], times: int = 1, wait: float = 0) -> float | None:
    """Return the seconds left after updates: phase, done, total and the time since the start."""
    left = TimeLeft(STEPS, times)
    for *update, seconds in updates:
        left.update(*update, left.started + seconds)
    return left.seconds(left.started + (updates[-1][-1] if updates else 0) + wait)


def test_time_left_counts_this_and_later_phases() -> None:
    assert left_after() is None
    warm = ("pre-train", 10, 100, 30.0)
    assert left_after(warm) == pytest.approx(3 * (90 + 150))
    # The time before the first report is not measured if there is a second one: 1 second per step.
    pretrained = (warm, ("pre-train", 20, 100, 40.0))
    assert left_after(*pretrained) == pytest.approx(80 + 150)
    assert left_after(*pretrained, wait=10) == pytest.approx(70 + 150)
    assert left_after(*pretrained, wait=1000) == 0
    # Pre-training stopped early. An episode takes 2 seconds.
    trained = (*pretrained, ("meta-train", 25, 100, 90.0))
    assert left_after(*trained) == pytest.approx(2 * (75 + 50))
    assert left_after(*trained, ("test", 0, 4, 100.0)) == pytest.approx(40)  # one of five sessions
    assert left_after(*trained, ("test", 0, 4, 100.0), ("test", 4, 4, 140.0)) == 0


def test_time_left_of_seeds_that_run_one_after_the_other() -> None:
    first = (("test", 0, 4, 10.0), ("test", 1, 4, 12.0))
    assert left_after(*first, times=3) == pytest.approx(6 + 2 * 18)
    second = (*first, ("test", 4, 4, 20.0), ("test", 0, 4, 24.0))
    assert left_after(*second, times=3) == pytest.approx(16 + 20)
    trained = (("pre-train", 99, 100, 10.0), ("pre-train", 10, 100, 20.0))
    assert left_after(*trained, times=2) == pytest.approx(240)


def printed(*updates: tuple[str, int, int, float], until: int) -> list[tuple[int, str]]:
    """Return the lines of a run with these updates, with the seconds at which they are printed."""
    lines = ProgressLines(Console(file=io.StringIO()), "a run", STEPS)
    found, waiting = [], list(updates)
    for second in range(until + 1):
        while waiting and waiting[0][-1] <= second:
            *update, seconds = waiting.pop(0)
            lines._left.update(*update, lines._left.started + seconds)
        if line := lines.line(lines._left.started + second):
            found.append((second, line))
    return found


def test_a_long_run_prints_its_time_first_and_a_line_every_30_seconds() -> None:
    updates = [("pre-train", done, 100, 2.0 * done) for done in (1, 10, 20, 30)]
    assert printed(*updates, ("test", 0, 4, 70.0), ("test", 1, 4, 80.0), until=100) == [
        (20, "a run: takes at most about 8 minutes"),
        (49, "a run: pre-train 20/100, at most about 8 minutes left"),
        (78, "a run: sessions 0/4, about 32 seconds left"),
    ]


def test_lines_are_printed_while_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hagmeta.api.display.BETWEEN", 0.0)
    file = io.StringIO()
    with ProgressLines(Console(file=file, width=20), "a run with a long title", STEPS) as lines:
        lines("pre-train", 10, 100, NONE)
        lines._thread.join(1.5)
    assert file.getvalue().startswith("a run with a long title: pre-train 10/100, at most about ")
    assert file.getvalue().count("\n") == 1 and not lines._thread.is_alive()
