"""WordNet, from the files of Debian's package ``wordnet-base``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package
from hagmeta.datasets.formats.word_features import best_connected, in_no_order, presence, words

DATABASES = tuple(f"usr/share/wordnet/data.{part}" for part in ("noun", "verb", "adj", "adv"))
MAX_SYNSETS_PER_FILE = 800
MIN_SYNSETS_PER_WORD = 3
# In the order of lexnames(5WN).
# fmt: off
LEXICOGRAPHER_FILES = (
    "adj.all", "adj.pert", "adv.all", "noun.Tops", "noun.act", "noun.animal", "noun.artifact",
    "noun.attribute", "noun.body", "noun.cognition", "noun.communication", "noun.event",
    "noun.feeling", "noun.food", "noun.group", "noun.location", "noun.motive", "noun.object",
    "noun.person", "noun.phenomenon", "noun.plant", "noun.possession", "noun.process",
    "noun.quantity", "noun.relation", "noun.shape", "noun.state", "noun.substance", "noun.time",
    "verb.body", "verb.change", "verb.cognition", "verb.communication", "verb.competition",
    "verb.consumption", "verb.contact", "verb.creation", "verb.emotion", "verb.motion",
    "verb.perception", "verb.possession", "verb.social", "verb.stative", "verb.weather", "adj.ppl",
)
# fmt: on


@dataclass(frozen=True)
class Synset:
    """A set of words with the same meaning."""

    name: str
    file: str  # lexicographer file
    pointers: tuple[str, ...]
    gloss: str


def build(databases: Iterable[str], name: str = "wordnet", most: int | None = None) -> Dataset:
    """Build a dataset from the texts of ``data.noun``, ``data.verb`` and others.

    Args:
        databases: The texts.
        name: The name of the dataset.
        most: The maximum number of synsets per lexicographer file; None keeps all.
    """
    synsets = {synset.name: synset for database in databases for synset in _synsets(database)}
    pointers = ((name, other) for name, synset in synsets.items() for other in synset.pointers)
    edges = {(min(a, b), max(a, b)) for a, b in pointers if b in synsets and a != b}
    file_of = {name: synset.file for name, synset in synsets.items()}
    kept = in_no_order(best_connected(file_of, edges, most=most or len(synsets)))
    files = sorted(set(file_of.values()))
    node = {name: number for number, name in enumerate(kept)}
    return make_dataset(
        name,
        edges=np.array([(node[a], node[b]) for a, b in edges if a in node and b in node]).reshape(-1, 2),
        labels=np.array([files.index(file_of[name]) for name in kept], dtype=np.int64),
        features=presence([_words(synsets[name].gloss) for name in kept], minimum=MIN_SYNSETS_PER_WORD),
        class_names=files,
        source="WordNet",
    )


def build_from(deb: Path, name: str = "wordnet", most: int | None = MAX_SYNSETS_PER_FILE) -> Dataset:
    """Build the dataset from the package file ``deb``."""
    return build(package.read(deb, sources.WORDNET, DATABASES), name, most)


def _synsets(database: str) -> Iterator[Synset]:
    """Parse one synset per line, as in wndb(5WN): offset, file, kind, words, pointers | gloss."""
    for line in database.splitlines():
        if line.startswith("  "):  # the licence
            continue
        data, _, gloss = line.partition(" | ")
        fields = data.split()
        after_words = 4 + 2 * int(fields[3], 16)
        targets = fields[after_words + 1 : after_words + 1 + 4 * int(fields[after_words])]
        yield Synset(
            name=_name(fields[2], fields[0]),
            file=LEXICOGRAPHER_FILES[int(fields[1])],
            pointers=tuple(_name(targets[i + 2], targets[i + 1]) for i in range(0, len(targets), 4)),
            gloss=gloss,
        )


def _name(kind: str, offset: str) -> str:
    # Pointers treat satellite adjectives as adjectives; both are in one database.
    return f"{kind.replace('s', 'a')}{offset}"


def _words(gloss: str) -> set[str]:
    """Return the words of the definition. Examples are in quotes; the last quote may be unclosed."""
    return words(re.sub(r'"[^"]*("|$)', " ", gloss))
