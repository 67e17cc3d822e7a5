"""What is seen of a study while it runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from datetime import timedelta

from rich.console import Console
from rich.live import Live

from study.plan import Plan


class StudyProgress:
    """Runs done, running and failed, time left, and the mean accuracy so far."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._done_before = plan.total - plan.missing
        self._missing = plan.missing
        self._start = time.monotonic()
        self._last: list[float] = []
        self.done = self.running = self.failed = 0
        self._live = Live(console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, seeds: int) -> None:
        self.running += seeds
        self._show(line=False)

    def stopped(self, seeds: int) -> None:
        """Interrupted: they will be started again."""
        self.running = max(0, self.running - seeds)
        self._show(line=False)

    def finished(self, accuracies: list[float]) -> None:
        """Some runs are in the store; their accuracies at the last session."""
        self.running = max(0, self.running - len(accuracies))
        self.done += len(accuracies)
        self._last += accuracies
        self._show(line=True)

    def has_failed(self, seeds: int) -> None:
        self.running = max(0, self.running - seeds)
        self.failed += seeds
        self._show(line=True)

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False)

    def _show(self, *, line: bool) -> None:
        if self._console.is_terminal:
            self._live.update(self._text())
        elif line:
            self._console.print(self._text())

    def _text(self) -> str:
        elapsed = time.monotonic() - self._start
        parts = [f"{self._done_before + self.done}/{self._done_before + self._missing} runs"]
        parts.append(f"{self.running} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self._last:
            parts.append(f"last session {100 * sum(self._last) / len(self._last):.1f} % on average")
        left = self._missing - self.done - self.failed
        if self.done and left:
            parts.append(f"{timedelta(seconds=round(elapsed / self.done * left))} left")
        return ", ".join(parts) + f" ({timedelta(seconds=round(elapsed))})"
