"""Build the embedded Debian dataset from apt's package lists.

    apt-get update && python -m tools.datasets.build_debian debian.npz

The same package lists give the same file. The definition of nodes, classes, edges and features is in
:mod:`hagmeta.datasets.embedded.debian`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.formats.word_features import best_connected, presence, words
from tools.datasets.building import write

MIN_PACKAGES_PER_SECTION = 100
MAX_PACKAGES_PER_SECTION = 500
MIN_PACKAGES_PER_WORD = 3
RELATIONS = ("Depends", "Pre-Depends", "Recommends", "Suggests")

Package = dict[str, str]  # field -> value


def build(dump: str) -> Dataset:
    """Build the dataset from the output of ``apt-cache dumpavail``."""
    packages = _of_large_sections(_packages_of_main(dump))
    edges = _edges(packages)
    section_of = {name: package["Section"] for name, package in packages.items()}
    kept = sorted(best_connected(section_of, edges, most=MAX_PACKAGES_PER_SECTION))

    sections = sorted({packages[name]["Section"] for name in kept})
    node = {name: number for number, name in enumerate(kept)}
    words_of = [words(packages[name].get("Description", "")) for name in kept]
    return make_dataset(
        "debian",
        edges=np.array([(node[a], node[b]) for a, b in edges if a in node and b in node]).reshape(-1, 2),
        labels=np.array([sections.index(packages[name]["Section"]) for name in kept]),
        features=presence(words_of, minimum=MIN_PACKAGES_PER_WORD),
        class_names=sections,
        source="apt-cache dumpavail",
    )


def _packages_of_main(dump: str) -> dict[str, Package]:
    """Return the packages of main by name. Of several versions, take the first, which apt ranks highest."""
    packages: dict[str, Package] = {}
    for package in _stanzas(dump):
        # Sections of other components begin with the component, as in "non-free/net".
        if "Package" in package and "Section" in package and "/" not in package["Section"]:
            packages.setdefault(package["Package"], package)
    return packages


def _stanzas(dump: str) -> Iterator[Package]:
    wanted = {"Package", "Section", "Description", *RELATIONS}
    for stanza in re.split(r"\n{2,}", dump):
        # Continuation lines are indented. Of a description, only the first line is needed.
        fields = (line.partition(":") for line in stanza.splitlines() if not line.startswith((" ", "\t")))
        yield {field: value.strip() for field, _, value in fields if field in wanted}


def _of_large_sections(packages: dict[str, Package]) -> dict[str, Package]:
    sizes = Counter(package["Section"] for package in packages.values())
    return {
        name: package
        for name, package in packages.items()
        if sizes[package["Section"]] >= MIN_PACKAGES_PER_SECTION
    }


def _edges(packages: dict[str, Package]) -> set[tuple[str, str]]:
    """Return all relations to other packages. Alternatives count; versions and architectures do not."""
    edges = set()
    for name, package in packages.items():
        for relation in RELATIONS:
            for alternative in re.split(r"[,|]", package.get(relation, "")):
                other = re.split(r"[\s:(\[<]", alternative.strip(), maxsplit=1)[0]
                if other in packages and other != name:
                    edges.add((min(name, other), max(name, other)))
    return edges


def read_dump(path: Path | None) -> str:
    """Read a saved dump, or run apt if ``path`` is None."""
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({error}).") from error
    try:
        return subprocess.run(
            ["apt-cache", "dumpavail"], check=True, stdout=subprocess.PIPE, encoding="utf-8"
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"apt-cache dumpavail failed ({error}); use --dump FILE for a saved output."
        ) from error


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.datasets.build_debian", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.npz", help="file to write")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="saved output of `apt-cache dumpavail`")
    arguments = parser.parse_args()
    write(arguments.out, lambda: build(read_dump(arguments.dump)))


if __name__ == "__main__":
    main()
