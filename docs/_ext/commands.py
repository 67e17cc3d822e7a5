"""Break long commands of console blocks before an option, so that a page shows them without scrolling.

Pages keep each command on one line, as tests read it and as a terminal shows it.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

PROMPT = "$ "
WIDTH = 98  # columns that fit the text of a page on a screen of 1280 pixels


def broken(line: str) -> str:
    """Return a line of a console block; a long command continues on indented lines, after backslashes."""
    if not line.startswith(PROMPT) or len(line) <= WIDTH or "  #" in line:
        return line
    first, *options = line.split(" --")
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) + len(" -- \\") > WIDTH:
            lines.append(f"    --{option}")
        else:
            lines[-1] += f" --{option}"
    return " \\\n".join(lines)


class BreakLongCommands(SphinxTransform):
    """Break the long commands of all console blocks of a page."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Change the console blocks of one page."""
        for block in self.document.findall(nodes.literal_block):
            if block.get("language") == "console":
                text = "\n".join(map(broken, block.astext().split("\n")))
                block.rawsource, block.children = text, []
                block += nodes.Text(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform with Sphinx."""
    app.add_transform(BreakLongCommands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
