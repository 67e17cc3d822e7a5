"""Measure how long the sentences of a Markdown file are: `python -m tests.prose README.md docs`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

NOT_PROSE = re.compile(
    r"""
    \A---\n.*?\n---\n  # front matter
    | ^[ ]*(?P<fence>`{3,}|:{3,}|~{3,}).*?^[ ]*(?P=fence)[`:~]*[ ]*$  # fenced blocks and directives
    | <!--.*?-->
    | ^[ \t]*\|[^\n]*$  # rows of tables
    | ^\#+\s[^\n]*$  # headings
    | (?<=\n\n)(?:[ ]{4}|\t)[^\n]*(?:\n(?:[ ]{4}|\t)[^\n]*)*  # indented code
    | ^!\[[^\n]*$  # images
    | \$\$.*?\$\$
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.)\s)")  # a list item is a paragraph
SENTENCE = re.compile(r"(?<=[.!?])[\"')*_\]]*\s+(?=[\"'(*_\[`]*[A-Z0-9`])")
WORD = re.compile(r"[\w'%+-]*\w[\w'%+-]*")


@dataclass(frozen=True)
class Lengths:
    """Words per sentence of one text."""

    words: int
    sentences: int
    median: float
    ninetieth: float
    longest: list[str]


def sentences_of(markdown: str) -> list[str]:
    """Return the sentences of a Markdown text, without code, tables, headings and images."""
    text = NOT_PROSE.sub("\n\n", markdown)
    text = re.sub(r"\]\([^)]*\)", "]", text)  # the target of a link is not read
    text = re.sub(r"\$[^$\n]+\$", "x", text)  # a formula is one word
    text = re.sub(r"`[^`]+`", "Code", text)  # so is code
    found = []
    for paragraph in PARAGRAPH.split(text):
        line = re.sub(r"^\s*(?:[-*+]|\d+\.)\s+", "", " ".join(paragraph.split()))
        found += [part for part in SENTENCE.split(line) if len(WORD.findall(part)) > 1]
    return found


def lengths_of(markdown: str, *, show: int = 3) -> Lengths:
    """Return the number of words per sentence of `markdown`, and its `show` longest sentences."""
    sentences = sentences_of(markdown)
    counts = [len(WORD.findall(sentence)) for sentence in sentences]
    if not counts:
        return Lengths(0, 0, 0.0, 0.0, [])
    longest = sorted(zip(counts, sentences, strict=True), reverse=True)[:show]
    return Lengths(
        words=len(markdown.split()),
        sentences=len(sentences),
        median=float(np.median(counts)),
        ninetieth=float(np.percentile(counts, 90)),
        longest=[f"{count}: {sentence}" for count, sentence in longest],
    )


def pages(paths: list[Path]) -> list[Path]:
    """Return the Markdown files among `paths` and in the folders among them."""
    found = [sorted(path.rglob("*.md")) if path.is_dir() else [path] for path in paths]
    return [page for group in found for page in group if "_build" not in page.parts]


def main() -> None:
    """Print words, sentences, median and 90th percentile of words per sentence for each file."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--longest"]
    for page in pages([Path(argument) for argument in arguments]):
        found = lengths_of(page.read_text())
        print(f"{page}: {found.words} words, median {found.median:.0f}, 90 % {found.ninetieth:.0f}")
        if "--longest" in sys.argv:
            print("\n".join(f"    {line}" for line in found.longest))


if __name__ == "__main__":
    main()
