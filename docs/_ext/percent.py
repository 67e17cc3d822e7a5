"""Keep a number and its percent sign on one line: "20 %" gets a no-break space."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

BEFORE_PERCENT = re.compile(r"(?<=\d) (?=%)")
VERBATIM = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)


class NoBreakBeforePercent(SphinxPostTransform):
    """Replace the space between a number and its percent sign in all text except code and formulas."""

    default_priority = 500

    def run(self, **kwargs: Any) -> None:
        """Change the text nodes of one page."""
        for node in list(self.document.findall(nodes.Text)):
            if not isinstance(node.parent, VERBATIM) and BEFORE_PERCENT.search(node):
                node.parent.replace(node, nodes.Text(BEFORE_PERCENT.sub("\N{NO-BREAK SPACE}", node)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform with Sphinx."""
    app.add_post_transform(NoBreakBeforePercent)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
