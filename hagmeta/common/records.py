"""Records: what names a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any


def config_hash(
    config: Mapping[str, Any], unhashed: Iterable[str] = (), revisions: Mapping[str, int] | None = None
) -> str:
    """The hash of a canonical configuration, as a record holds it."""
    left_out = set(unhashed)
    hashed: dict[str, Any] = {key: value for key, value in config.items() if key not in left_out}
    if revisions:
        hashed["revisions"] = dict(revisions)
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


Record = dict[str, Any]
