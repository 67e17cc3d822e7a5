"""A study under fire: faults from a seeded list until it is done, its end beside that of an undisturbed one.

python benchmarks/soak.py [--faults 100] [--seed 0] [--folder FOLDER]

Needs faketime, and root: in namespaces of its own, nothing but the study's processes can be seen and killed.
Leaves a ledger (ledger.jsonl) and the log of every launch in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "HAGMETA_SOAK_INSIDE"
SEEDS = 50
SPACE = f"""
description: 200 runs of a second
datasets: ["synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"]
fixed: {{method: hag-meta, classes: [4, 5, 5], n_way: 2, k_shot: 3, hidden: 16, embedding: 8,
        pretrain_epochs: 10, episodes: 10, validate_every: 5, finetune_steps: 2}}
grid: {{nla: [false, true], tla: [false, true]}}
seeds: {SEEDS}
"""
RUNS = 4 * SEEDS
VOLATILE = ("seconds", "environment")  # how long a run took and where: no result
STUCK = 300  # seconds without a new record after which a launch is given up, and counted


class Ledger:
    """What happened, a line each."""

    def __init__(self, path: Path) -> None:
        self._file, self._began = path.open("w"), time.monotonic()
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, text: str, **more: Any) -> None:
        self.counts[kind] += 1
        line = {"seconds": round(time.monotonic() - self._began, 1), "kind": kind, "text": text, **more}
        print(json.dumps(line), file=self._file, flush=True)
        print(f"{line['seconds']:7.1f} s  {kind}: {text}", flush=True)


class Watch:
    """Every record's file as it was first seen: what is finished must stay as it is."""

    def __init__(self, results: Path, spoilt: set[Path], ledger: Ledger) -> None:
        self._results, self._spoilt, self._ledger = results, spoilt, ledger
        self._seen: dict[Path, tuple[int, int]] = {}

    def look(self) -> int:
        """Note what was lost or written again; returns how many records are there and sound."""
        there = {}
        for path in self._results.glob("*/runs/*/*.json"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            there[path] = status.st_ino, status.st_mtime_ns
        for path, version in there.items():
            if path in self._spoilt:
                if self._seen.get(path, version)[0] != version[0]:  # another file: the run's own, made again
                    self._spoilt.discard(path)
                    self._seen[path] = version
                continue
            if self._seen.setdefault(path, version) != version:
                self._ledger.note("repeated", f"{path.parent.name}/{path.name} was written again")
                self._seen[path] = version
        for path in set(self._seen) - set(there) - self._spoilt:
            self._ledger.note("lost", f"{path.parent.name}/{path.name} is gone")
            del self._seen[path]
        return len(set(there) - self._spoilt)


def main() -> int:
    options = _options()
    if os.environ.get(INSIDE) != "yes":
        return _enter(options)
    from soak_faults import Faults, Nodes, Study, seeded_list

    work: Path = options.folder
    results = work / "disturbed"
    _prepare(work, results)
    space = work / "soak.yaml"
    space.write_text(SPACE)
    ledger = Ledger(work / "ledger.jsonl")
    _undisturbed(space, work / "undisturbed")
    ledger.note("undisturbed", f"{RUNS} runs")

    rng = random.Random(options.seed)
    study, nodes = Study(space, results, work), Nodes()
    faults = Faults(study, nodes, options.stop_seconds, rng)
    watch = Watch(results, faults.spoilt, ledger)
    names = seeded_list(options.faults, rng)
    # The next comes when the study has got so far: all of them find it at work.
    due = [round(RUNS * 0.95 * (i + 1) / len(names)) for i in range(len(names))]
    last_fault = last_progress = time.monotonic()
    most, statuses = 0, Counter[int]()
    while True:
        for line in nodes.repair():
            ledger.note("repair", line)
        done = watch.look()
        now = time.monotonic()
        if done > most:
            most, last_progress = done, now
        if not study.running:
            if study.process is not None:
                statuses[study.process.returncode] += 1
                traced = "Traceback" in study.log.read_text(errors="replace")
                ledger.note("end", f"launch {study.launches}: {study.process.returncode}", traceback=traced)
                if study.process.returncode == 0 and done == RUNS and not names:
                    break
            study.start(nodes.address)
            ledger.note("launch", f"launch {study.launches}, {done} of {RUNS} done")
            last_progress = now
        elif now - last_progress > STUCK:
            ledger.note("stuck", f"launch {study.launches}: no record for {STUCK} s, killed by the soak")
            study.kill()
            last_progress = now
        if names and done >= due[-len(names)] - 1 and now - last_fault > rng.uniform(1, 3):
            told = faults.inject(names[0])
            if told:
                ledger.note("fault", told, fault=names.pop(0), done=done)
                last_fault = time.monotonic()
        time.sleep(0.2)
    nodes.stop()
    wrong = _compare(work / "undisturbed", results, ledger)
    counts = ledger.counts
    kinds = Counter(
        json.loads(line).get("fault") for line in (work / "ledger.jsonl").read_text().splitlines()
    )
    del kinds[None]
    summary = (
        f"{counts['fault']} faults ({', '.join(f'{n} {k}' for k, n in kinds.most_common())}), "
        f"{study.launches} launches (by exit status: {dict(statuses)}), {counts['stuck']} stuck: "
        f"{counts['lost']} records lost, {counts['repeated']} finished runs repeated, "
        f"{wrong} wrong, {RUNS - wrong} equal"
    )
    ledger.note("summary", summary)
    return 1 if wrong or counts["lost"] or counts["repeated"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the list of faults")
    parser.add_argument("--stop-seconds", type=float, default=60, help="how long a process is stopped")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/hagmeta-soak"))
    return parser.parse_args()


def _enter(options: argparse.Namespace) -> int:
    """Run this again in namespaces of its own."""
    if os.geteuid():
        sys.exit("the soak needs root: it makes namespaces, and a small disk to fill.")
    from soak_faults import FAKETIME

    if not FAKETIME.exists():
        sys.exit(f"the soak moves clocks with {FAKETIME}: apt-get install faketime")
    if options.folder.exists():
        sys.exit(f"{options.folder} is there already; give another --folder.")
    kinds = ["--pid", "--mount", "--net", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
    own = [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]]
    alive = ["setpriv", "--pdeathsig", "KILL"]  # all of it ends with this process
    return subprocess.run([*alive, "unshare", *kinds, *own], env={**os.environ, INSIDE: "yes"}).returncode


def _prepare(work: Path, results: Path) -> None:
    """A network, shared memory, a Ray folder and a home of its own, and results on a disk of 256 MB."""
    for folder in (work / "ray", results):
        folder.mkdir(parents=True)
    os.environ.update(HAGMETA_HOME=str(work / "home"), HOME=str(work), RAY_TMPDIR=str(work / "ray"))
    # Trials are not to wait for whatever else this machine does: by default Ray gives it precedence.
    os.environ.update(OMP_NUM_THREADS="1", RAY_worker_niceness="0")
    for command in (
        "ip link set lo up",
        "mount -t tmpfs tmpfs /dev/shm",
        f"mount -t tmpfs -o size=256m tmpfs {results}",
    ):
        subprocess.run(command.split(), check=True)


def _undisturbed(space: Path, results: Path) -> None:
    command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(space), "--no-report"]
    subprocess.run([*command, "--results", str(results)], check=True, stdout=subprocess.DEVNULL)


def _compare(undisturbed: Path, disturbed: Path, ledger: Ledger) -> int:
    """How many runs differ, in their record or in what they answered."""
    wrong = 0
    for path in sorted(undisturbed.glob("*/runs/*/*.json")):
        other = disturbed / path.relative_to(undisturbed)
        answers = Path(str(path).replace("/runs/", "/predictions/")).with_suffix(".npz")
        theirs = disturbed / answers.relative_to(undisturbed)
        if _result(path) != _result(other) or not _same_arrays(answers, theirs):
            wrong += 1
            ledger.note("wrong", f"{path.parent.name}/{path.name}")
    return wrong


def _result(path: Path) -> dict[str, Any]:
    return {key: value for key, value in json.loads(path.read_text()).items() if key not in VOLATILE}


def _same_arrays(one: Path, other: Path) -> bool:
    with np.load(one) as a, np.load(other) as b:
        return set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in a)


if __name__ == "__main__":
    sys.exit(main())
