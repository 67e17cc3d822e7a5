"""Compare the numbers of two commits on this machine.

    python benchmarks/same_numbers.py BASE [HEAD] [--only METHOD|analysis,...]

HEAD is the working tree by default, with its uncommitted changes. Digests of these are compared: records and
predictions of small runs, hashes of configurations, proposals of searches, answers of learners, and the
comparisons and tables of reports on invented records. The exit status is 1 if one differs or is missing.

Each checkout computes its digests with its own `same_numbers_side.py`, so the Python interface may change
between the commits. A checkout without this file uses the one next to this script.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIDE = Path("benchmarks/same_numbers_side.py")
SECONDS = 20  # between lines of progress
EQUAL, DIFFERENT, ERROR = 0, 1, 2  # exit status


class Failure(Exception):
    """A message for the user: the comparison is not possible."""


class Side:
    """The process that computes the digests of one checkout."""

    def __init__(self, checkout: Path, methods: list[str], home: Path) -> None:
        script = checkout / SIDE if (checkout / SIDE).exists() else ROOT / SIDE
        own = {"PYTHONPATH": str(checkout), "HAGMETA_HOME": str(home / "hagmeta")}
        self._errors = (home / "errors.txt").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script), *methods],
            cwd=checkout,
            env=os.environ | own | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.cases = 0
        self.digests: dict[str, str] = {}
        self.failed: set[str] = set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for text in self._process.stdout:
            line = json.loads(text)
            self.cases = line.get("cases", self.cases)
            if "failed" in line:
                self.failed.add(line["name"])
            if "name" in line:
                self.digests[line["name"]] = line.get("failed") or line["digest"]

    @property
    def running(self) -> bool:
        return self._reader.is_alive()

    @property
    def progress(self) -> str:
        return f"{len(self.digests)} of {self.cases or '?'}"

    def check(self) -> None:
        """Raise a Failure if the process did not compute all its digests."""
        status = self._process.wait()
        if status or len(self.digests) != self.cases:
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()[-1:]
            raise Failure(f"stopped after {self.progress} digests: {' '.join(last) or f'status {status}'}")

    def stop(self) -> None:
        """End the process if it is still running."""
        self._process.kill()
        self._reader.join()
        self._errors.close()


def git(*arguments: str) -> str:
    """Return what a git command prints about this checkout."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip().splitlines()[-1])
    return done.stdout.strip()


def resolved(commit: str) -> str:
    """Return the full hash of a commit."""
    try:
        return git("rev-parse", "--verify", f"{commit}^{{commit}}")
    except Failure:
        raise Failure(f"{commit} is not a commit of this repository") from None


def title_of(commit: str | None) -> str:
    """Return the short hash and the subject of a commit; None is the working tree."""
    title = git("log", "-1", "--format=%h %s", commit or "HEAD")
    if commit:
        return title
    changed = len(git("status", "--porcelain").splitlines())
    return f"working tree: {title}, with {changed} changed files"


@contextmanager
def checkout_of(commit: str | None, folder: Path) -> Iterator[Path]:
    """Yield a folder with the files of a commit; None is the working tree."""
    if commit is None:
        yield ROOT
        return
    git("worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        git("worktree", "remove", "--force", str(folder))


def computed(commits: dict[str, str | None], methods: list[str]) -> dict[str, Side]:
    """Compute the digests of both commits at the same time."""
    sides: dict[str, Side] = {}
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, commit in commits.items():
            checkout = stack.enter_context(checkout_of(commit, temporary / f"{name}-checkout"))
            (temporary / name).mkdir()
            sides[name] = Side(checkout, methods, temporary / name)
            stack.callback(sides[name].stop)
        printed = time.monotonic()
        while any(side.running for side in sides.values()):
            time.sleep(0.1)
            if time.monotonic() - printed > SECONDS:
                printed = time.monotonic()
                print(", ".join(f"{name} {side.progress}" for name, side in sides.items()), file=sys.stderr)
        for name, side in sides.items():
            try:
                side.check()
            except Failure as error:
                raise Failure(f"{name} {error}") from None
    return sides


def compare(base: Side, head: Side) -> int:
    """Print which digests differ, and return the exit status."""
    different = [name for name, digest in base.digests.items() if head.digests.get(name) != digest]
    new = [name for name in head.digests if name not in base.digests]
    for kind, count in Counter(name.split()[0] for name in base.digests).items():
        differ = sum(name.split()[0] == kind for name in different)
        print(f"{kind:10} {count:4} digests, {f'{differ} differ' if differ else 'equal'}")
    for name in different:
        print(f"  {name}: {base.digests[name]} -> {head.digests.get(name, 'missing')}")
    for words, names in (
        ("fail at both commits", base.failed & head.failed),
        ("are new at head and not compared", new),
    ):
        if names:
            print(f"cases that {words}: {len(names)} ({', '.join(sorted(names)[:3])})")
    if different:
        print(f"{len(different)} of {len(base.digests)} digests differ")
    else:
        print(f"equal: {len(base.digests)} digests")
    return DIFFERENT if different else EQUAL


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", help="a commit")
    parser.add_argument("head", nargs="?", help="another commit (default: the working tree)")
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        help='only runs and learners of these methods; "analysis": only reports',
    )
    options = parser.parse_args()
    started = time.monotonic()
    try:
        commits = {"base": resolved(options.base), "head": options.head and resolved(options.head)}
        for name, commit in commits.items():
            print(f"{name} {title_of(commit)}", flush=True)
        sides = computed(commits, options.only.split(",") if options.only else [])
    except Failure as error:
        print(f"error: {error}", file=sys.stderr)
        return ERROR
    status = compare(sides["base"], sides["head"])
    print(f"{time.monotonic() - started:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())
