"""Names with a hash of what they stand for: plug-ins by their source, graphs in memory by their content."""

from __future__ import annotations

import re

DIGITS = 12  # of the hash
IDENTITY = re.compile(rf"(?P<name>.+)@(?P<hash>[0-9a-f]{{{DIGITS}}})")


def is_identity(name: str) -> bool:
    """Tell whether a name is that of a plug-in or of a graph in memory, such as ``Mine@1a2b3c4d5e6f``."""
    return IDENTITY.fullmatch(name) is not None


def without_hash(name: str) -> str:
    """Return the name in an identity; other names are whole."""
    found = IDENTITY.fullmatch(name)
    return found["name"] if found else name
