"""Report the progress of a trial to Tune, which passes it to loggers, the dashboard and the terminal."""

from __future__ import annotations

import time
from typing import Any

from ray import tune

WAITS = "wait"  # the phase of a trial that waits for an encoder
SECONDS_BETWEEN = 1.0  # a report waits for the driver, so more of them would cost time


class LiveReports:
    """Reports the progress of phases, at most once per second.

    A report has the phase, the step, and the values found, with names such as `meta-train/val`.
    """

    def __init__(self, *, tells_test: bool = True) -> None:
        """Prepare the reports; without `tells_test`, as in a search, they have no values of test streams."""
        self._tells_test = tells_test
        self._last = time.monotonic()

    def waits(self) -> None:
        """Report at once that the trial waits for an encoder that another one trains."""
        tune.report({"phase": WAITS, "step": 0, "steps": 1})

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN:
            return
        found = values if phase != "test" or self._tells_test else {}
        report: dict[str, Any] = {"phase": phase, "step": done, "steps": total}
        tune.report(report | {f"{phase}/{name}": value for name, value in found.items()})
        self._last = time.monotonic()
