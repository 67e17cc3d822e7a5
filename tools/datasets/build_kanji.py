"""Build the embedded kanji dataset from Debian's packages ``kanjidic`` and ``edict``.

    python -m tools.datasets.build_kanji kanji.npz [--packages KANJIDIC EDICT]

Without --packages, the script downloads the packages from Debian's archive. It accepts only the versions in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/kanji.py.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package, word_features
from hagmeta.datasets.formats.word_features import presence
from tools.datasets import building

CHARACTERS = "usr/share/edict/kanjidic"
WORDS = "usr/share/edict/edict"
ENCODING = "euc_jp"
MIN_CHARACTERS_PER_RADICAL = 40
MIN_CHARACTERS_PER_FEATURE = 3

_MEANING = re.compile(r"\{([^}]*)\}")
_KATAKANA = re.compile(r"[ァ-ヶー]+")  # Chinese readings; Japanese ones are in hiragana


@dataclass(frozen=True)
class Character:
    """A kanji."""

    radical: int
    features: set[str]


def build(characters: str, words: str) -> Dataset:
    """Build the dataset from the texts of ``kanjidic`` and ``edict``."""
    found = dict(_characters(characters))
    pairs = {(a, b) for a, b in _neighbours(words) if a in found and b in found}
    used = {name for pair in pairs for name in pair}
    sizes = Counter(found[name].radical for name in used)
    kept = word_features.in_no_order(
        name for name in used if sizes[found[name].radical] >= MIN_CHARACTERS_PER_RADICAL
    )
    radicals = sorted({found[name].radical for name in kept})
    node = {name: number for number, name in enumerate(kept)}
    edges = [(node[a], node[b]) for a, b in sorted(pairs) if a in node and b in node]
    return make_dataset(
        "kanji",
        edges=np.array(edges).reshape(-1, 2),
        labels=np.array([radicals.index(found[name].radical) for name in kept], dtype=np.int64),
        features=presence([found[name].features for name in kept], minimum=MIN_CHARACTERS_PER_FEATURE),
        class_names=[f"{number} {_shape(number)}" for number in radicals],
        source="KANJIDIC and EDICT",
    )


def build_from(characters: Path, words: Path) -> Dataset:
    """Build the dataset from the two package files."""
    [kanjidic] = package.read(characters, sources.KANJIDIC, [CHARACTERS], ENCODING)
    [edict] = package.read(words, sources.EDICT, [WORDS], ENCODING)
    return build(kanjidic, edict)


def _characters(text: str) -> Iterator[tuple[str, Character]]:
    """Parse one kanji per line: the kanji, fields with a letter in front, readings, {meanings}."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        fields = line.partition("{")[0].split()
        # B is the radical of one dictionary; C is the classical radical, if it differs.
        radical = _field(fields, "C") or _field(fields, "B")
        if radical is not None:
            yield fields[0], Character(int(radical), set(_features(fields, " ".join(_MEANING.findall(line)))))


def _features(fields: list[str], meanings: str) -> Iterator[str]:
    """Yield four-corner digits as ``corner 2: 7``, the number of strokes, readings and words."""
    for place, digit in enumerate((_field(fields, "Q", r"\d{4}\.\d") or "").replace(".", ""), start=1):
        yield f"corner {place}: {digit}"
    if strokes := _field(fields, "S"):
        yield f"strokes: {strokes}"
    for field in fields[2:]:
        if field == "T1":  # readings in names follow
            break
        if _KATAKANA.fullmatch(field):
            yield field
    yield from word_features.words(meanings)


def _field(fields: list[str], letter: str, value: str = r"\d+") -> str | None:
    """Return the first value of a field such as ``S7``."""
    return next((field[1:] for field in fields[2:] if re.fullmatch(letter + value, field)), None)


def _neighbours(text: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of characters that are next to each other in a headword."""
    for line in text.splitlines():
        headword = line.partition(" ")[0]
        for a, b in itertools.pairwise(headword):
            if a != b:
                yield min(a, b), max(a, b)


def _shape(radical: int) -> str:
    """Return the character of a radical of the 214 classical ones."""
    return unicodedata.normalize("NFKC", chr(0x2F00 + radical - 1))


if __name__ == "__main__":
    building.from_packages(
        (sources.KANJIDIC, sources.EDICT), build_from, __doc__, "tools.datasets.build_kanji"
    )
