"""Signals that end a launch: in one line, with the exit status of convention, and nothing lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """By the first of them; a second one ends the process at once."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Inside, each of the signals ends in `Stopped`; those that are ignored, as by nohup, stay so."""
    if threading.current_thread() is not threading.main_thread():  # Python hands signals to that one alone
        yield
        return
    before = {each: signal.getsignal(each) for each in SIGNALS}
    ours = [each for each in SIGNALS if before[each] is not signal.SIG_IGN]
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    for each in ours:
        signal.signal(each, stop)
    try:
        yield
    except KeyboardInterrupt:  # Ray raises one of its own in place of ours
        raise Stopped(*received[:1] or [signal.SIGINT]) from None
    finally:
        for each in ours:
            signal.signal(each, before[each])
