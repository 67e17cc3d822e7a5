"""The faults of ``soak.py``: what is done to a study while it runs."""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parent.parent
FAKETIME = Path(f"/usr/lib/{platform.machine()}-linux-gnu/faketime/libfaketimeMT.so.1")


class Study:
    """The command of a study, started again and again until it has done everything."""

    def __init__(self, space: Path, results: Path, work: Path) -> None:
        self.results, self._work = results, work
        self._command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(space)]
        self._command += ["--results", str(results), "--seeds-per-trial", "1", "--no-report"]
        self.launches = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.clock = work / "clock"
        self.clock.write_text("+0")

    def start(self, address: str) -> None:
        """The driver's wall clock says what ``clock`` says; its monotonic clock is left alone."""
        faked = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.launches += 1
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*self._command, "--address", address], stdout=log, stderr=log, env={**os.environ, **faked}
            )

    @property
    def log(self) -> Path:
        return self._work / f"launch-{self.launches}.log"

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()


class Nodes:
    """A Ray cluster on this machine: a head, a second node, and at times a third; one CPU each."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        self.second = self._cluster.add_node(num_cpus=1)
        self.third = None
        self.address = self._cluster.address

    def stop(self) -> None:
        self._cluster.shutdown()

    def repair(self) -> list[str]:
        """Put back what faults have taken away; says what."""
        if not self._has_raylet(self._cluster.head_node):
            self.stop()
            self.start()
            return ["the cluster was started anew"]
        if self._has_raylet(self.second):
            return []
        self._cluster.remove_node(self.second, allow_graceful=False)
        self.second = self._cluster.add_node(num_cpus=1)
        return ["the second node was started anew"]

    def add_or_remove(self, graceful: bool) -> str:
        if self.third is None:
            self.third = self._cluster.add_node(num_cpus=1)
            return "a third node was added"
        self._cluster.remove_node(self.third, allow_graceful=graceful)
        self.third = None
        return "the third node was removed, " + ("after a word" if graceful else "without a word")

    def raylet(self, *, head: bool = False) -> psutil.Process:
        node = self._cluster.head_node if head else self.second
        return psutil.Process(node.all_processes["raylet"][0].process.pid)

    def _has_raylet(self, node: object) -> bool:
        return not any(kind == "raylet" for kind, _ in node.dead_processes())  # type: ignore[attr-defined]


def workers() -> list[psutil.Process]:
    """Processes that run a trial now; all that can be seen here are ours."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if line.startswith("ray::") and ("_trainable" in line or "ImplicitFunc" in line):
            found.append(process)
    return found


class Faults:
    """Each by its name; returns what was done, or None where there was nothing to do it to."""

    def __init__(self, study: Study, nodes: Nodes, stop_seconds: float, rng: random.Random) -> None:
        self._study, self._nodes, self._rng, self._stop_seconds = study, nodes, rng, stop_seconds
        self.spoilt: set[Path] = set()

    def inject(self, name: str) -> str | None:
        action: Callable[[], str | None] = getattr(self, name)
        try:
            return action()
        except psutil.NoSuchProcess:  # gone between being found and being hit
            return None

    def kill_driver(self) -> str | None:
        if not self._study.running:
            return None
        self._study.kill()
        return f"launch {self._study.launches} was killed"

    def kill_worker(self) -> str | None:
        found = workers()
        if not found:
            return None
        process = self._rng.choice(found)
        process.kill()
        return f"worker {process.pid} was killed"

    def kill_raylet(self) -> str:
        self._nodes.raylet().kill()
        return "the second node's raylet was killed"

    def kill_head_raylet(self) -> str:
        self._nodes.raylet(head=True).kill()
        return "the head's raylet was killed"

    def stop_a_while(self) -> str | None:
        assert self._study.process
        choices = [*workers()[:1], self._nodes.raylet()]
        if self._study.running:
            choices.append(psutil.Process(self._study.process.pid))
        process = self._rng.choice(choices)
        name = process.name()
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._stop_seconds)
        process.send_signal(signal.SIGCONT)
        return f"{name} ({process.pid}) was stopped for {self._stop_seconds:.0f} s"

    def fill_disk(self) -> str:
        ballast = self._study.results / "ballast"
        space = os.statvfs(self._study.results)
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(space.f_bsize))
        time.sleep(8)
        ballast.unlink()
        return f"the disk was full for 8 s ({space.f_bavail * space.f_bsize >> 20} MB were free)"

    def spoil_records(self) -> str | None:
        every = sorted(self._study.results.glob("*/runs/*/*.json"))
        finished = [path for path in every if path not in self.spoilt]
        if len(finished) < 2:
            return None
        path, other = self._rng.sample(finished, 2)
        content = path.read_bytes()
        robbed = {key: value for key, value in json.loads(content).items() if key != "accuracy"}
        ways = {
            "cut in half": content[: len(content) // 2],
            "emptied": b"",
            "overwritten with noise": self._rng.randbytes(500),
            "replaced by another run's": other.read_bytes(),
            "robbed of a key": json.dumps(robbed).encode(),
        }
        way = self._rng.choice(sorted(ways))
        self.spoilt.add(path)
        path.write_bytes(ways[way])
        return f"{path.parent.name}/{path.name} was {way}"

    def add_or_remove_node(self) -> str:
        return self._nodes.add_or_remove(graceful=self._rng.random() < 0.5)

    def move_clock(self) -> str:
        seconds = self._rng.choice([-86400, -3600, -5, 5, 3600, 86400, 30 * 86400])
        self._study.clock.write_text(f"{seconds:+d}")
        return f"the driver's clock was set {seconds:+d} s off"


# How often each comes, in a list of a hundred.
SHARES = {
    "kill_worker": 26,
    "spoil_records": 22,
    "move_clock": 14,
    "add_or_remove_node": 11,
    "kill_driver": 10,
    "kill_raylet": 9,
    "fill_disk": 4,
    "kill_head_raylet": 2,
    "stop_a_while": 2,
}


def seeded_list(number: int, rng: random.Random) -> list[str]:
    """The names of so many faults, each kind by its share, in an order of chance."""
    names = [name for name, share in SHARES.items() for _ in range(max(1, round(share * number / 100)))]
    rng.shuffle(names)
    while len(names) < number:
        names.append(rng.choice(list(SHARES)))
    return names[:number]
