"""Run random records of a study again, and compare them with what is stored.

    python -m tools.rerun_records STUDY [--records 3] [--seed SEED] [--dataset NAME]

This verifies an entry that somebody submits. STUDY is the folder of a study, or an archive (.npz). The graph
and the configuration have to be the same, and accuracies at the last session have to agree within two points.
Other packs, processors and library versions round differently, which training amplifies in single runs. The
exit status is 1 if a record does not agree.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hagmeta
from analysis.data.reading import gather
from analysis.references.archives import SUFFIX, read_archive
from hagmeta.common.command import show_error
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig

TOLERANCE = 0.02
METRICS = ("macro_accuracy", "accuracy")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path, metavar="STUDY", help="folder of a study, or an archive (.npz)")
    parser.add_argument("--records", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--seed", type=int, help="which: seeds the choice (default: another one each time)")
    parser.add_argument("--dataset", metavar="NAME", help="choose among runs on this graph")
    options = parser.parse_args(arguments)
    seed = random.randrange(1000) if options.seed is None else options.seed
    try:
        found = _records(options.study, options.dataset)
        chosen = random.Random(seed).sample(found, min(options.records, len(found)))
        print(f"{len(chosen)} of {len(found)} records, chosen by --seed {seed}")
        return int(not all([_agrees(record) for record in chosen]))
    except UserError as error:
        show_error(error)
        return 2


def _records(study: Path, dataset: str | None) -> list[Any]:
    """Return the records of a study or an archive, in an order that does not depend on the machine."""
    if study.suffix == SUFFIX:
        found: list[Any] = read_archive(study).records
    else:
        gathered = gather([study])
        if gathered.damaged:
            raise UserError("; ".join(gathered.damaged))
        found = [record for _, _, record in gathered.records]
    chosen = [record for record in found if dataset in (None, record["config"]["dataset"])]
    if not chosen:
        raise UserError(f"{study}: no records{f' on {dataset}' if dataset else ''}.")
    return sorted(chosen, key=lambda record: (record["config_hash"], record["seed"]))


def _agrees(stored: dict[str, Any]) -> bool:
    """Run a record again, print both results, and return whether they agree."""
    config = RunConfig.of(stored["config"])
    (record,) = hagmeta.run(config, seeds=[stored["seed"]], progress=False).records
    again: dict[str, Any] = {**record}
    pairs = [(stored[name][-1], again[name][-1]) for name in METRICS]
    problems = [] if all(abs(then - now) <= TOLERANCE for then, now in pairs) else ["accuracies differ"]
    for key, what in (("config_hash", "another configuration or revision"), ("data", "another graph")):
        problems += [what] * (stored[key] != again[key])
    values = ", ".join(
        f"{name} {100 * then:.2f} stored, {100 * now:.2f} now"
        for name, (then, now) in zip(METRICS, pairs, strict=True)
    )
    verdict = "DIFFERS: " + ", ".join(problems) if problems else "agrees"
    print(f"{config.method} on {config.dataset}, seed {stored['seed']}: {values}; {verdict}", flush=True)
    return not problems


if __name__ == "__main__":
    raise SystemExit(main())
