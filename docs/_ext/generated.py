"""Replace `<!-- generate: NAME ARGUMENT -->` in a page by Markdown that is made from the code."""

from __future__ import annotations

import re
from typing import Any

import cards
import reference
import stored_results
import summaries
from sphinx.application import Sphinx

MARK = re.compile(r"^<!-- generate: (?P<name>[\w-]+)(?: (?P<argument>.+?))? -->$", re.MULTILINE)


def expanded(page: str) -> str:
    """Return the text of a page with every mark replaced by what it names."""
    made = MARK.sub(lambda mark: GENERATORS[mark["name"]](*filter(None, [mark["argument"]])), page)
    return stored_results.VALUE.sub(lambda mark: stored_results.value(mark["argument"]), made)


GENERATORS = {
    **{**reference.GENERATORS, **summaries.GENERATORS, **cards.GENERATORS},
    **{"results": stored_results.results, "archives": stored_results.archives},
}


def _on_source_read(app: Sphinx, name: str, source: list[str]) -> None:
    if MARK.search(source[0]) or stored_results.VALUE.search(source[0]):
        app.env.metadata[name]["generated"] = True
    source[0] = expanded(source[0])


def _always_read(app: Sphinx, env: Any, added: set, changed: set, removed: set) -> list[str]:
    """Read generated pages in every build: the code may have changed since."""
    return [name for name in env.found_docs if env.metadata[name].get("generated")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the marks with Sphinx."""
    app.connect("source-read", _on_source_read)
    app.connect("env-get-outdated", _always_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
