"""Where downloads and pre-trained encoders are kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hagmeta.common.errors import UserError

DEFAULT_HOME = "~/.cache/hagmeta"


def home() -> Path:
    """``$HAGMETA_HOME``, or a folder in the user's cache."""
    given = os.environ.get("HAGMETA_HOME", DEFAULT_HOME)
    if not given.strip():
        raise UserError(f"HAGMETA_HOME is empty; give it a folder, or unset it for {DEFAULT_HOME}.")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:  # of a user that there is not
        raise UserError(f"HAGMETA_HOME is {given!r}: {error}") from None


def make_home() -> Path:
    """The same, there and writable; said now and not in every trial."""
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"HAGMETA_HOME {str(folder)[:200]} cannot be written: {reason}.") from None
    return folder
