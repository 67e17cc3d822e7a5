"""Build the embedded Debian dataset from apt's package lists.

    apt-get update && python -m hagmeta.datasets.build_debian debian.npz

The same package lists give the same file. What becomes a node, a class, an edge and a feature is told in
:mod:`hagmeta.datasets.debian`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.datasets import npz
from hagmeta.datasets.base import NodeDataset
from hagmeta.datasets.clean import make_dataset
from hagmeta.datasets.words import bag_of_words

MIN_PACKAGES_PER_SECTION = 100
MAX_PACKAGES_PER_SECTION = 500
MIN_PACKAGES_PER_WORD = 3
RELATIONS = ("Depends", "Pre-Depends", "Recommends", "Suggests")

Package = dict[str, str]  # field -> value
Edge = tuple[str, str]


def build(dump: str) -> NodeDataset:
    """Turn the text of ``apt-cache dumpavail`` into the dataset."""
    packages = _of_large_sections(_packages_of_main(dump))
    edges = _edges(packages)
    kept = _best_connected(packages, edges)

    sections = sorted({packages[name]["Section"] for name in kept})
    node = {name: number for number, name in enumerate(kept)}
    return make_dataset(
        "debian",
        edges=np.array([(node[a], node[b]) for a, b in edges if a in node and b in node]).reshape(-1, 2),
        labels=np.array([sections.index(packages[name]["Section"]) for name in kept]),
        features=_bag_of_words([packages[name].get("Description", "") for name in kept]),
        class_names=sections,
        source="apt-cache dumpavail",
    )


def _packages_of_main(dump: str) -> dict[str, Package]:
    """The packages of the component main by name; of several versions the first, which apt ranks highest."""
    packages: dict[str, Package] = {}
    for package in _stanzas(dump):
        # Other components write their name before the section, as in "non-free/net".
        if "Package" in package and "Section" in package and "/" not in package["Section"]:
            packages.setdefault(package["Package"], package)
    return packages


def _stanzas(dump: str) -> Iterator[Package]:
    wanted = {"Package", "Section", "Description", *RELATIONS}
    for stanza in re.split(r"\n{2,}", dump):
        # A field that goes on over several lines indents them; only a description's first line is wanted.
        fields = (line.partition(":") for line in stanza.splitlines() if not line.startswith((" ", "\t")))
        yield {field: value.strip() for field, _, value in fields if field in wanted}


def _of_large_sections(packages: dict[str, Package]) -> dict[str, Package]:
    sizes = Counter(package["Section"] for package in packages.values())
    return {
        name: package
        for name, package in packages.items()
        if sizes[package["Section"]] >= MIN_PACKAGES_PER_SECTION
    }


def _edges(packages: dict[str, Package]) -> set[Edge]:
    """Every relation to another package, each alternative counted, without versions and architectures."""
    edges = set()
    for name, package in packages.items():
        for relation in RELATIONS:
            for alternative in re.split(r"[,|]", package.get(relation, "")):
                other = re.split(r"[\s:(\[<]", alternative.strip(), maxsplit=1)[0]
                if other in packages and other != name:
                    edges.add((min(name, other), max(name, other)))
    return edges


def _best_connected(packages: dict[str, Package], edges: set[Edge]) -> list[str]:
    degree = Counter(name for edge in edges for name in edge)
    by_section = defaultdict(list)
    for name in sorted(packages, key=lambda name: (-degree[name], name)):
        by_section[packages[name]["Section"]].append(name)
    return sorted(name for names in by_section.values() for name in names[:MAX_PACKAGES_PER_SECTION])


def _bag_of_words(texts: list[str]) -> scipy.sparse.csr_matrix:
    """A column a word that enough texts contain."""
    words_of = [set(re.findall(r"[a-z0-9]+", text.lower())) for text in texts]
    return bag_of_words(words_of, MIN_PACKAGES_PER_WORD)


def read_dump(path: Path | None) -> str:
    """Read a saved dump, or without one ask apt."""
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
        raise UserError(f"apt-cache dumpavail failed ({error}); --dump FILE reads a saved one.") from error


def main() -> None:
    """Run the command told above."""
    parser = argparse.ArgumentParser(prog="python -m hagmeta.datasets.build_debian", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT.npz", help="the file to write")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="read a saved `apt-cache dumpavail`")
    arguments = parser.parse_args()
    try:
        dataset = build(read_dump(arguments.dump))
        npz.save(arguments.out, dataset)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(
        f"{arguments.out}: {dataset.num_nodes:,} nodes, {len(dataset.edges):,} edges, "
        f"{dataset.num_features:,} features, {dataset.num_classes} classes"
    )


if __name__ == "__main__":
    main()
