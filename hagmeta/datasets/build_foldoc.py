"""Build the embedded FOLDOC dataset from Debian's package ``dict-foldoc``.

    python -m hagmeta.datasets.build_foldoc foldoc.npz [--deb FILE]

Without --deb the package is fetched from Debian's archive; versions other than the one in
hagmeta/datasets/sources.py are refused. What becomes a node, a class, an edge and a feature is told in
hagmeta/datasets/foldoc.py.
"""

from __future__ import annotations

import re
import string
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hagmeta.datasets import building, package, sources
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.word_features import presence

DICTIONARY = ("usr/share/dictd/foldoc.dict.dz", "usr/share/dictd/foldoc.index")
LEFT_OUT = ("tlas",)  # a list of all acronyms of three letters, whatever they mean
MIN_ARTICLES_PER_TAG = 40
MIN_ARTICLES_PER_WORD = 3

_DIGITS = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
# A sense begins so; Debian's own articles, under another licence, are indented further.
_SENSE = re.compile(r"(?:\A|\n\n) {3}(?:\d+\.\s+)?<([\w\s,/-]+)>")
_SOURCE = re.compile(r"\[\{[^{}]*\}\]")  # where the text was taken from, as [{Jargon File}]
_LINK = re.compile(r"\{([^{}]*)\}")
# Tags wherever they stand, addresses, and when the article was last changed.
_NO_WORDS = re.compile(r"<[\w\s,/-]+>|\S*(?:://|@|news:)\S*|\(\d{4}-\d\d-\d\d\)")


@dataclass(frozen=True)
class Article:
    """What stands under one or several headwords."""

    name: str  # where it begins: headwords may be those of several articles
    tag: str
    links: set[str]  # in lower case, as headwords are in the index
    words: set[str]


def build(dictionary: str, index: str) -> Dataset:
    """Turn the dictionary and its index into the dataset."""
    places = _places(index)
    articles = {article.name: article for article in _articles(dictionary, places)}
    sizes = Counter(article.tag for article in articles.values())
    kept = building.in_no_order(
        name for name, article in articles.items() if sizes[article.tag] >= MIN_ARTICLES_PER_TAG
    )
    tags = sorted({articles[name].tag for name in kept})
    node = {name: number for number, name in enumerate(kept)}
    named = defaultdict(list)  # headword -> articles, those without a tag too
    for headword, start, _ in places:
        named[headword].append(str(start))
    edges = [
        (node[name], node[other])
        for name in kept
        for link in articles[name].links
        for other in named[link] or named[link.removesuffix("s")]  # or of its singular
        if other in node
    ]
    of_tags = building.words(" ".join(tags))
    return make_dataset(
        "foldoc",
        edges=np.array(edges).reshape(-1, 2),
        labels=np.array([tags.index(articles[name].tag) for name in kept], dtype=np.int64),
        features=presence([articles[name].words - of_tags for name in kept], minimum=MIN_ARTICLES_PER_WORD),
        class_names=tags,
        source="FOLDOC",
    )


def build_from(deb: Path) -> Dataset:
    """Build from a package."""
    return build(*package.read(deb, sources.FOLDOC, DICTIONARY))


def _places(index: str) -> list[tuple[str, int, int]]:
    """A line a headword: where its article begins, and how many bytes it has."""
    rows = (line.split("\t") for line in index.splitlines())
    return [(headword, _number(start), _number(size)) for headword, start, size in rows]


def _number(digits: str) -> int:
    number = 0
    for digit in digits:
        number = 64 * number + _DIGITS.index(digit)
    return number


def _articles(dictionary: str, places: list[tuple[str, int, int]]) -> Iterator[Article]:
    """Those with a tag, if their senses have no other."""
    content = dictionary.encode()
    left_out = {start for headword, start, _ in places if headword in LEFT_OUT}
    for start, size in {(start, size) for _, start, size in places if start not in left_out}:
        _, _, text = content[start : start + size].decode().partition("\n\n")  # headwords above, a line each
        senses = list(_SENSE.finditer(text))
        tags = {" ".join(sense[1].partition(",")[0].split()) for sense in senses}
        if len(tags) == 1 and senses[0].start() == 0:
            text = _SOURCE.sub(" ", text)
            links = {" ".join(link.lower().split()) for link in _LINK.findall(text)}
            yield Article(str(start), tags.pop(), links, building.words(_NO_WORDS.sub(" ", text)))


if __name__ == "__main__":
    building.from_package(sources.FOLDOC, build_from, __doc__, "hagmeta.datasets.build_foldoc")
