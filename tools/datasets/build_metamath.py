"""Build the embedded Metamath dataset from Debian's package ``metamath-databases``.

    python -m tools.datasets.build_metamath metamath.npz [--deb FILE]

The order of the nodes in set.mm is written next to it, to metamath_order.npz.
Without --deb, the script downloads the package from Debian's archive. It accepts only the version in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/metamath.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package, word_features
from hagmeta.datasets.formats.word_features import presence
from tools.datasets import building

DATABASE = "usr/share/metamath/databases/set.mm"
# Mathboxes have sections named after people; guides have examples and conventions of all subjects.
LEFT_OUT = ("SUPPLEMENTARY MATERIAL (USER'S MATHBOXES)", "GUIDES AND MISCELLANEA")
MIN_STATEMENTS_PER_SECTION = 40
MIN_STATEMENTS_PER_SYMBOL = 50
MAX_CITATIONS = 30

_COMMENT = re.compile(r"\$\(\s(.*?)\s\$\)", re.DOTALL)
_PART = re.compile(r"^#{4,}\s*\n(.+?)\n#{4,}", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^#\*#\*[#*]*\s*\n(.+?)\n#\*#\*", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """An axiom, definition or theorem."""

    label: str
    section: str
    symbols: set[str]  # constants, such as + and ->, without variables
    cited: set[str]  # labels in its proof


def build(database: str) -> Dataset:
    """Build the dataset from the text of ``set.mm``."""
    statements = {statement.label: statement for statement in _statements(database)}
    sizes = Counter(statement.section for statement in statements.values())
    kept = word_features.in_no_order(
        label
        for label, statement in statements.items()
        if sizes[statement.section] >= MIN_STATEMENTS_PER_SECTION
    )
    sections = sorted({statements[label].section for label in kept})
    node = {label: number for number, label in enumerate(kept)}
    citations = [(label, other) for label in kept for other in statements[label].cited if other in node]
    times = Counter(other for _, other in citations)
    edges = [(node[a], node[b]) for a, b in citations if times[b] <= MAX_CITATIONS]
    dataset = make_dataset(
        "metamath",
        edges=np.array(edges).reshape(-1, 2),
        labels=np.array([sections.index(statements[label].section) for label in kept], dtype=np.int64),
        features=presence([statements[label].symbols for label in kept], minimum=MIN_STATEMENTS_PER_SYMBOL),
        class_names=sections,
        source="set.mm",
    )
    position = {label: number for number, label in enumerate(each for each in statements if each in node)}
    return replace(dataset, node_order=np.array([position[label] for label in kept], dtype=np.int64))


def build_from(deb: Path) -> Dataset:
    """Build the dataset from the package file ``deb``."""
    [database] = package.read(deb, sources.METAMATH, [DATABASE])
    return build(database)


def _statements(database: str) -> Iterator[Statement]:
    """Yield the assertions of all sections, without syntax axioms, which only define formulas."""
    constants: set[str] = set()
    for section, tokens in _declarations(database):
        if tokens[0] == "$c":
            constants.update(tokens[1:])
        elif section and tokens[1] in ("$a", "$p") and tokens[2] == "|-":
            end = tokens.index("$=") if "$=" in tokens else len(tokens)
            yield Statement(
                tokens[0], section, constants.intersection(tokens[3:end]), _cited(tokens[end + 1 :])
            )


def _cited(proof: list[str]) -> set[str]:
    """Return the labels in a proof. Compressed proofs list them in parentheses at the start."""
    return set(proof[1 : proof.index(")")] if proof[:1] == ["("] else proof)


def _declarations(database: str) -> Iterator[tuple[str | None, list[str]]]:
    """Yield each declaration (up to ``$.``) as tokens, with its section."""
    section, left_out = None, False
    tokens: list[str] = []
    for number, piece in enumerate(_COMMENT.split(database)):
        if number % 2:  # a comment; some are titles, with lines above and below
            if part := _PART.search(piece):
                section, left_out = None, _title(part) in LEFT_OUT
            if title := _SECTION.search(piece):
                section = None if left_out else _title(title)
            continue
        for token in piece.split():
            if token == "$.":
                yield section, tokens
                tokens = []
            elif token not in ("${", "$}"):  # scopes matter only for hypotheses
                tokens.append(token)


def _title(ruled: re.Match[str]) -> str:
    return " ".join(ruled[1].split())


if __name__ == "__main__":
    building.from_package(sources.METAMATH, build_from, __doc__, "tools.datasets.build_metamath")
