"""Run reference results again, with the same settings and seeds. This also writes their predictions.

python -m study.rerun_references --dataset foldoc --methods sgc-lda,sgc-ridge
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from analysis.references import DEFAULTS, KINDS, References, read_references
from hagmeta.common.command import Parser, plain_console, show_error
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records import OpenRecord
from study.options import LaunchOptions

NAME = "references"  # of the folder of the study


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = Parser(
        prog="python -m study.rerun_references",
        description="Run reference results again, with the same settings and seeds, and save predictions.",
    )
    add = parser.add_argument
    add("--dataset", action="append", default=[], metavar="NAME", help="only this graph; can be repeated")
    add("--methods", metavar="A,B,...", help="only these methods")
    add("--references", choices=KINDS, default=DEFAULTS, help="tuned methods or defaults (default: defaults)")
    add("--results", default="results", metavar="DIR", help="folder of all studies (default: results)")
    add("--dry-run", action="store_true", help="print the plan and start nothing")
    try:
        options = parser.options(arguments)
        methods = options.methods.split(",") if options.methods else None
        space = space_of(read_references(), options.references, options.dataset or None, methods)
        from study.api import launch  # imports torch, which takes seconds

        chosen = LaunchOptions(
            name=NAME, results=options.results, dry_run=options.dry_run, command="repeat the command"
        )
        return launch(space, chosen, console=plain_console()).status
    except UserError as error:
        show_error(error)
        return 2


def space_of(
    references: References, kind: str, datasets: Iterable[str] | None, methods: Iterable[str] | None
) -> dict[str, Any]:
    """Return a search space with one case per reference, and their seeds.

    Raises:
        UserError: The references do not have such a graph or method.
    """
    records = references.of(kind)
    for key, names in (("dataset", datasets), ("method", methods)):
        known = {record["config"][key] for record in records}
        wanted = {choose(f"{key} of the references, kind {kind!r}:", name, known) for name in names or known}
        records = [record for record in records if record["config"][key] in wanted]
    return {
        "description": f"The references of the kind {kind!r} again",
        "cases": [_case(record) for record in _one_each(records)],
        "seeds": sorted({record["seed"] for record in records}),
    }


def _one_each(records: Iterable[OpenRecord]) -> Iterable[OpenRecord]:
    return {record["config_hash"]: record for record in records}.values()


def _case(record: Mapping[str, Any]) -> dict[str, Any]:
    keys = dict.fromkeys(["dataset", "method", "protocol", *record["given"]])
    return {key: record["config"][key] for key in keys}


if __name__ == "__main__":
    sys.exit(main())
