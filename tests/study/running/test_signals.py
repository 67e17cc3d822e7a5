from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from study.launch import main
from study.running.signals import Stopped, stopped_by_signals
from tests.study.test_launch import folder, records_in, results, workers  # noqa: F401
from tests.waiting import wait_for


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_has_the_status_of_convention_and_handlers_are_as_before(number: str, status: int) -> None:
    before = signal.getsignal(signal.Signals[number])
    with pytest.raises(Stopped, match=number) as stopped, stopped_by_signals():
        os.kill(os.getpid(), signal.Signals[number])
        raise AssertionError("not reached")
    assert stopped.value.status == status
    assert signal.getsignal(signal.Signals[number]) == before


def test_what_is_ignored_as_by_nohup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_study_that_is_told_to_end_says_so_in_a_line_and_keeps_what_it_has(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    shared_ray: None,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def end_after_a_record() -> None:
        wait_for(lambda: records_in(folder))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.chdir(folder)
    monkeypatch.setenv("HAGMETA_HOME", str(folder / "home"))
    options = ("--seeds-per-trial", "1", "--max-concurrent", "1", "--set", "episodes=100", "--no-report")
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # a signal after the study ends nothing
    thread = threading.Thread(target=end_after_a_record, daemon=True)
    thread.start()
    try:
        status = main(["--space", "tiny.yaml", *options])
        thread.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    output = "".join(capfd.readouterr())
    assert status == 143, output
    assert output.splitlines()[-1].startswith("Stopped by SIGTERM. Finished runs are kept")
    assert "Traceback" not in output and "***" not in output
    assert results(folder)
    wait_for(lambda: not workers(os.getpid(), "train"))  # and it leaves none behind in a Ray of the user
