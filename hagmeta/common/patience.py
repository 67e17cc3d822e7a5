"""Wait for an answer, but not for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar, cast

Answer = TypeVar("Answer")


def within(seconds: float, ask: Callable[[], Answer], advice: str = "") -> Answer:
    """Return the result of `ask`, or raise a TimeoutError: many clients of networks retry for minutes.

    Args:
        seconds: The time to wait.
        ask: The call, which runs in a thread. Its errors are raised again here.
        advice: The end of the message of the TimeoutError.
    """
    outcome: SimpleQueue[tuple[Answer | None, Exception | None]] = SimpleQueue()

    def attempt() -> None:
        try:
            outcome.put((ask(), None))
        except Exception as error:  # raised again in the caller
            outcome.put((None, error))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        answer, error = outcome.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:.0f} seconds{advice}") from None
    if error is not None:
        raise error
    return cast(Answer, answer)
