from __future__ import annotations

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def signals_are_not_ignored() -> None:
    """As in a terminal, wherever the tests run: studies ignore what nohup or a background job does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
