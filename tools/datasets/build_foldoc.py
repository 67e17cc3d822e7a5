"""Build the embedded FOLDOC dataset from Debian's package ``dict-foldoc``.

    python -m tools.datasets.build_foldoc foldoc.npz [--deb FILE]

Without --deb, the script downloads the package from Debian's archive. It accepts only the version in
hagmeta/datasets/downloads/sources.py. The definition of nodes, classes, edges and features is in
hagmeta/datasets/embedded/foldoc.py.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.downloads import sources
from hagmeta.datasets.formats import package, word_features
from hagmeta.datasets.formats.word_features import presence
from tools.datasets import building

DICTIONARY = ("usr/share/dictd/foldoc.dict.dz", "usr/share/dictd/foldoc.index")
LEFT_OUT = ("tlas",)  # a list of three-letter acronyms of all subjects
MIN_ARTICLES_PER_TAG = 40
MIN_ARTICLES_PER_WORD = 3

_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
# The start of a sense. Articles added by Debian, under another licence, have a larger indent.
_SENSE = re.compile(r"(?:\A|\n\n) {3}(?:\d+\.\s+)?<([\w\s,/-]+)>")
_SOURCE = re.compile(r"\[\{[^{}]*\}\]")  # the source of a text, as [{Jargon File}]
_LINK = re.compile(r"\{([^{}]*)\}")
# Tags, addresses and dates of the last change are not words.
_NO_WORDS = re.compile(r"<[\w\s,/-]+>|\S*(?:://|@|news:)\S*|\(\d{4}-\d\d-\d\d\)")


@dataclass(frozen=True)
class Article:
    """An article with one or more headwords."""

    name: str  # its offset, since several articles may share a headword
    tag: str
    links: set[str]  # in lower case, like the headwords in the index
    words: set[str]


def build(dictionary: str, index: str) -> Dataset:
    """Build the dataset from the dictionary and its index."""
    places = _places(index)
    articles = {article.name: article for article in _articles(dictionary, places)}
    sizes = Counter(article.tag for article in articles.values())
    kept = word_features.in_no_order(
        name for name, article in articles.items() if sizes[article.tag] >= MIN_ARTICLES_PER_TAG
    )
    tags = sorted({articles[name].tag for name in kept})
    node = {name: number for number, name in enumerate(kept)}
    named = defaultdict(list)  # headword -> articles, including those without a tag
    for headword, start, _ in places:
        named[headword].append(str(start))
    edges = [
        (node[name], node[other])
        for name in kept
        for link in articles[name].links
        for other in named[link] or named[link.removesuffix("s")]  # try the singular
        if other in node
    ]
    of_tags = word_features.words(" ".join(tags))
    return make_dataset(
        "foldoc",
        edges=np.array(edges).reshape(-1, 2),
        labels=np.array([tags.index(articles[name].tag) for name in kept], dtype=np.int64),
        features=presence([articles[name].words - of_tags for name in kept], minimum=MIN_ARTICLES_PER_WORD),
        class_names=tags,
        source="FOLDOC",
    )


def build_from(deb: Path) -> Dataset:
    """Build the dataset from the package file ``deb``."""
    return build(*package.read(deb, sources.FOLDOC, DICTIONARY))


def _places(index: str) -> list[tuple[str, int, int]]:
    """Parse the index: one line per headword, with the offset and size of its article."""
    rows = (line.split("\t") for line in index.splitlines())
    return [(headword, _number(start), _number(size)) for headword, start, size in rows]


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = 64 * number + _DIGITS.index(digit)
    return number


def _articles(dictionary: str, places: list[tuple[str, int, int]]) -> Iterator[Article]:
    """Yield the articles whose senses all have the same tag."""
    content = dictionary.encode()
    left_out = {start for headword, start, _ in places if headword in LEFT_OUT}
    for start, size in {(start, size) for _, start, size in places if start not in left_out}:
        _, _, text = content[start : start + size].decode().partition("\n\n")  # headwords come first
        senses = list(_SENSE.finditer(text))
        tags = {" ".join(sense[1].partition(",")[0].split()) for sense in senses}
        if len(tags) == 1 and senses[0].start() == 0:
            text = _SOURCE.sub(" ", text)
            links = {" ".join(link.lower().split()) for link in _LINK.findall(text)}
            yield Article(str(start), tags.pop(), links, word_features.words(_NO_WORDS.sub(" ", text)))


if __name__ == "__main__":
    building.from_package(sources.FOLDOC, build_from, __doc__, "tools.datasets.build_foldoc")
