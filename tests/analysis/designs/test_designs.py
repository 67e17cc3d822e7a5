"""Designs that launches write down, and designs that are found in results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.data.reading import read
from analysis.data.results import Results
from analysis.designs.design import EVERY, FACTORIAL, N_AND_K, Design, designs_of
from analysis.report import Report
from benchmarks.same_numbers_side import invent
from study.space import spaces
from tests.analysis.conftest import Write

QUICK = ("smoke",)
SPACES = [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in spaces.names()]


def launched(folder: Path, configs: Sequence[str], **more: Any) -> Path:
    """Write the record of a launch."""
    launch = {"space": "x", "description": "", "command": "", "time": "2026-01-01", "seeds": [0]}
    (folder / "launches").mkdir(exist_ok=True)
    path = folder / "launches" / f"{len(list((folder / 'launches').iterdir()))}.json"
    path.write_text(json.dumps(launch | {"configs": {name: {} for name in configs}} | more))
    return folder


@pytest.mark.parametrize("name", SPACES)
def test_written_designs_agree_with_the_results(name: str, tmp_path: Path) -> None:
    invent(name, tmp_path)
    results = read([tmp_path])
    written_down = [design.record() for design in spaces.read(name).designs]
    found = launched(tmp_path, list(set(results.runs["config_hash"])), designs=written_down)
    written, guessed = Report(read([found])), Report(results, EVERY)
    assert written.designs != EVERY and guessed.designs == EVERY
    assert [table.name for table in written.tables] == [table.name for table in guessed.tables]
    for one, other in zip(written.comparisons.families, guessed.comparisons.families, strict=True):
        assert one.comparisons.keys() == other.comparisons.keys()
        assert all(str(one[key]) == str(other[key]) for key in one.comparisons)


def factorial_of(write: Write) -> Results:
    for nla in (True, False):
        folder = write({seed: [0.8, 0.6] for seed in range(6)}, nla=nla)
    return read([folder])


def test_what_a_launch_does_not_ask_is_not_tested(write: Write) -> None:
    results = factorial_of(write)
    assert Report(results).comparisons.effects
    assert not Report(results, (Design(N_AND_K, ("n_way",)),)).comparisons.effects
    assert Report(results, (Design(FACTORIAL, ("nla",)),)).comparisons.effects


def test_designs_are_looked_for_if_a_launch_has_none(write: Write, tmp_path: Path) -> None:
    results = factorial_of(write)
    (folder,), hashes = results.folders, sorted(set(results.runs["config_hash"]))
    assert designs_of(results) == EVERY  # no launch
    launched(folder, hashes, designs=[{"kind": "factorial", "factors": ["nla"]}])
    assert designs_of(read([folder])) == (Design(FACTORIAL, ("nla",)),)
    launched(folder, hashes[:1])
    assert designs_of(read([folder])) == EVERY  # an old launch


def test_runs_of_no_launch_are_looked_at(write: Write) -> None:
    results = factorial_of(write)
    launched(results.folders[0], list(results.runs["config_hash"])[:1], designs=[{"kind": "free"}])
    assert designs_of(read(results.folders)) == EVERY
