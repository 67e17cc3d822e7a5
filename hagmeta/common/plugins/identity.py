"""Names that contain a hash: of the source code for plug-ins, of the content for graphs in memory."""

from __future__ import annotations

import re

DIGITS = 12  # of the hash
IDENTITY = re.compile(rf"(?P<name>.+)@(?P<hash>[0-9a-f]{{{DIGITS}}})")
FILES = ("npz", "mat")  # kinds of datasets whose name contains a path


def is_identity(name: str) -> bool:
    """Return whether ``name`` contains a hash, such as ``Mine@1a2b3c4d5e6f``."""
    return IDENTITY.fullmatch(name) is not None


def without_hash(name: str) -> str:
    """Return ``name`` without its hash. Names without a hash stay as they are."""
    found = IDENTITY.fullmatch(name)
    return found["name"] if found else name


def short_name(dataset: str) -> str:
    """Return the name of a dataset for titles: without a hash, and a file without its folder."""
    kind, _, path = dataset.partition(":")
    return path.rpartition("/")[2] if kind in FILES and path else without_hash(dataset)
