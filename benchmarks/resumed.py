"""A trial killed at random moments: does it end as an undisturbed one, and what do its checkpoints save?

python benchmarks/resumed.py --kills 20     a line a kill; then whether records are equal, and what is saved
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).resolve().parent.parent
SPACE = """
datasets: [debian]
fixed: {episodes: 300, patience: 1000, pretrain_epochs: 100, finetune_steps: 20}
seeds: 2
"""


def start(folder: Path, results: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "study" / "launch.py"), "--space", str(folder / "one.yaml")]
    options = [
        "--results",
        str(folder / results),
        "--seeds-per-trial",
        "2",
        "--retries",
        "1000",
        "--no-report",
    ]
    return subprocess.Popen(
        [*command, *options], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def worker_of(driver: subprocess.Popen[str]) -> psutil.Process | None:
    """The one that runs the trial."""
    with suppress(psutil.Error):
        for child in psutil.Process(driver.pid).children(recursive=True):
            with suppress(psutil.Error):
                if child.name().startswith("ray::") and "train" in "".join(child.cmdline()):
                    return child
    return None


def kept(folder: Path) -> float:
    """Seconds of work that the checkpoint has, if there is one."""
    for path in (folder / "checkpointed" / "one" / "checkpoints").glob("[!.]*.pt"):
        with suppress(Exception):
            return 2 * sum(torch.load(path, weights_only=True)["spent"].values())
    return 0.0


def found(folder: Path) -> dict[str, Any]:
    """What the records say, without time and place."""
    records = {}
    for path in (folder / "one" / "runs").glob("*/*.json"):
        record = json.loads(path.read_text())
        del record["seconds"], record["environment"]
        records[path.name] = record
    return records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="how often the worker is killed (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HAGMETA_HOME"] = str(folder / "home")
        (folder / "one.yaml").write_text(SPACE)
        begin = time.monotonic()
        whole = start(folder, "undisturbed")
        whole.communicate()
        print(f"undisturbed: {time.monotonic() - begin:.0f} s with Ray's start", flush=True)
        begin, saved, kills = time.monotonic(), 0.0, 0
        driver = start(folder, "checkpointed")
        while kills < options.kills and driver.poll() is None:
            while driver.poll() is None and (worker := worker_of(driver)) is None:
                time.sleep(0.1)
            wait = moments.uniform(2, 25)
            time.sleep(wait)
            with suppress(psutil.Error):
                assert worker is not None
                worker.kill()
                worker.wait()
            kills += 1
            saved += kept(folder)
            print(f"kill {kills} after {wait:.0f} s; kept: {kept(folder):.0f} s of work", flush=True)
        output, _ = driver.communicate()
        print(output[-600:])
        print(f"killed {kills} times: {time.monotonic() - begin:.0f} s; {saved:.0f} s of work not done again")
        one, other = found(folder / "undisturbed"), found(folder / "checkpointed")
        print(f"{len(one)} records, equal: {bool(one) and one == other}")


if __name__ == "__main__":
    main()
