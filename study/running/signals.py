"""End a launch on a signal with one line, the conventional exit status, and no lost runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """Raised by the first signal; a second signal ends the process at once."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise `Stopped` on a signal inside the context; signals that are ignored, as by nohup, stay ignored."""
    if threading.current_thread() is not threading.main_thread():  # only that thread receives signals
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
    except KeyboardInterrupt:  # Ray may replace ours by another one
        raise Stopped(*received[:1] or [signal.SIGINT]) from None
    finally:
        for each in ours:
            signal.signal(each, before[each])
