"""Run random records of a study again, and compare them with what is stored.

    python -m tools.rerun_records STUDY [--records 3] [--seed 0]

This verifies an entry that somebody submits. Accuracies at the last session have to agree within two points.
Other packs, processors and library versions round differently, which training amplifies in single runs. The
exit status is 1 if a record does not agree.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import hagmeta
from hagmeta.common.records.records import StudyFolder
from hagmeta.config.run_config import RunConfig

TOLERANCE = 0.02
METRICS = ("macro_accuracy", "accuracy")


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, metavar="STUDY", help="folder of a study")
    parser.add_argument("--records", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--seed", type=int, default=0, help="which: seeds the choice (default: 0)")
    options = parser.parse_args()
    files = list(StudyFolder(options.study).record_files())
    if not files:
        parser.error(f"{options.study}: no records.")
    chosen = random.Random(options.seed).sample(files, min(options.records, len(files)))
    return int(not all([_agrees(json.loads(path.read_text())) for path in chosen]))


def _agrees(stored: dict[str, Any]) -> bool:
    """Run a record again, print both results, and return whether they agree."""
    config = RunConfig.of(stored["config"])
    (record,) = hagmeta.run(config, seeds=[stored["seed"]], progress=False).records
    again: dict[str, Any] = {**record}
    pairs = [(stored[name][-1], again[name][-1]) for name in METRICS]
    agree = all(abs(then - now) <= TOLERANCE for then, now in pairs)
    values = ", ".join(
        f"{name} {100 * then:.2f} stored, {100 * now:.2f} now"
        for name, (then, now) in zip(METRICS, pairs, strict=True)
    )
    print(f"{config.method} on {config.dataset}, seed {stored['seed']}: {values}", "" if agree else "DIFFERS")
    return agree


if __name__ == "__main__":
    raise SystemExit(main())
