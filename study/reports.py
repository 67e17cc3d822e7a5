"""What a trial tells while it runs: to Tune, and through it to loggers, the dashboard and the terminal."""

from __future__ import annotations

import time
from typing import Any

from ray import tune

SECONDS_BETWEEN = 1.0  # a report waits for the driver: more of them would cost time


class LiveReports:
    """Progress of the phases as reports, at most one a second.

    A report has the phase, how far it is, and what was found in it, by names such as `meta-train/val`.
    """

    def __init__(self, *, tells_test: bool = True) -> None:
        """A search does not look at test streams: without ``tells_test`` it is not told how they go."""
        self._tells_test = tells_test
        self._last = time.monotonic()

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN:
            return
        found = values if phase != "test" or self._tells_test else {}
        report: dict[str, Any] = {"phase": phase, "step": done, "steps": total}
        tune.report(report | {f"{phase}/{name}": value for name, value in found.items()})
        self._last = time.monotonic()
