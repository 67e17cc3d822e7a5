"""Where downloads and pre-trained encoders are kept."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_HOME = "~/.cache/hagmeta"


def home() -> Path:
    """``$HAGMETA_HOME``, or a folder in the user's cache."""
    return Path(os.environ.get("HAGMETA_HOME", DEFAULT_HOME)).expanduser()
