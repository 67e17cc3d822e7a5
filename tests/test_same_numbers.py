"""The tool that compares two commits finds a changed number and only that."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from analysis.statistics import inference
from benchmarks import same_numbers_side as side
from hagmeta.methods.prototypes import tap
from study.search import history

ROOT = Path(__file__).resolve().parents[1]
# Prints the digests in a file, as the adapter of a checkout prints those that it computes.
ADAPTER = """
import json, pathlib
lines = json.loads(pathlib.Path("digests.json").read_text())
print(json.dumps({"cases": len(lines)}))
for line in lines:
    print(json.dumps(line))
"""
ONE, TWO = {"name": "run one", "digest": "1a"}, {"name": "hash two", "digest": "2a"}
FAILS = {"name": "run bad", "failed": "ValueError: no"}


class Repository:
    """A repository with the tool and an adapter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "benchmarks").mkdir()
        shutil.copy(ROOT / "benchmarks/same_numbers.py", folder / "benchmarks")
        (folder / "benchmarks/same_numbers_side.py").write_text(ADAPTER)
        self.git("init", "-q")

    def git(self, *arguments: str) -> str:
        user = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(["git", *user, *arguments], cwd=self.folder, check=True, capture_output=True)
        return done.stdout.decode()

    def write(self, *lines: dict[str, str]) -> None:
        (self.folder / "digests.json").write_text(json.dumps(lines))

    def commit(self, *lines: dict[str, str]) -> None:
        self.write(*lines)
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "Change")

    def compare(self, *arguments: str) -> tuple[int, str]:
        tool = [sys.executable, str(self.folder / "benchmarks/same_numbers.py"), *arguments]
        done = subprocess.run(tool, capture_output=True, text=True, cwd=self.folder)
        assert len(self.git("worktree", "list").splitlines()) == 1, "a checkout is left behind"
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_equal_commits(repository: Repository) -> None:
    repository.commit(ONE, TWO, FAILS)
    repository.commit(ONE, TWO, FAILS)
    repository.write()  # uncommitted changes do not count if HEAD is given
    status, text = repository.compare("HEAD~1", "HEAD")
    assert status == 0 and "equal: 3 digests" in text
    assert "cases that fail at both commits: 1 (run bad)" in text


def test_uncommitted_change(repository: Repository) -> None:
    repository.commit(ONE, TWO)
    repository.write(ONE | {"digest": "1b"}, TWO, FAILS)
    status, text = repository.compare("HEAD")
    assert status == 1 and "run one: 1a -> 1b" in text and "1 of 2 digests differ" in text
    assert "hash two: " not in text and "cases that are new at head and not compared: 1 (run bad)" in text
    assert "with 1 changed files" in text


def test_a_missing_digest_is_a_difference(repository: Repository) -> None:
    repository.commit(ONE, TWO)
    repository.commit(ONE)
    status, text = repository.compare("HEAD~1", "HEAD")
    assert status == 1 and "hash two: 2a -> missing" in text


def test_a_commit_that_cannot_be_compared(repository: Repository) -> None:
    repository.commit(ONE)
    assert repository.compare("nowhere") == (2, "error: nowhere is not a commit of this repository\n")
    (repository.folder / "digests.json").write_text("[1")
    status, text = repository.compare("HEAD")
    assert status == 2 and "error: head stopped after 0 of ? digests: json" in text


def digests(cases: Iterable[side.Case], *names: str) -> dict[str, str]:
    return {name: side.digest(compute()) for name, compute in cases if name in names}


def test_a_constant_of_a_method_changes_its_digests_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = (f'run {method} {{"protocol": "strict"}}' for method in ("tap", "sgc-ncm"))
    cases = list(side.cases(("tap", "sgc-ncm")))
    before = digests(cases, ours, other, "run tap plain", "learner tap")
    monkeypatch.setattr(tap, "TEMPERATURE", 0.2)
    after = digests(cases, *before)
    assert len(before) == 4 and {name for name in before if before[name] == after[name]} == {other}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cases", "module", "constant", "value"),
    [
        (side.proposal_cases(["hyperparameters"]), history, "STARTUP", 12),
        (side.analysis_cases(["protocol"]), inference, "LEVEL", 0.2),
    ],
    ids=["search", "report"],
)
def test_a_constant_of_searches_and_reports_changes_their_digests(
    cases: Iterator[side.Case], module: object, constant: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, compute = next(cases)
    before = side.digest(compute())
    assert side.digest(compute()) == before
    monkeypatch.setattr(module, constant, value)
    assert side.digest(compute()) != before
