"""The folder for downloads and pre-trained encoders."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hagmeta.common.errors import UserError

DEFAULT_HOME = "~/.cache/hagmeta"


def home() -> Path:
    """Return ``$HAGMETA_HOME``, or the default folder in the user's cache."""
    given = os.environ.get("HAGMETA_HOME", DEFAULT_HOME)
    if not given.strip():
        raise UserError(f"HAGMETA_HOME is empty; set it to a folder, or unset it to use {DEFAULT_HOME}.")
    try:
        return Path(given).expanduser()
    except RuntimeError as error:  # the home folder of an unknown user
        raise UserError(f"HAGMETA_HOME is {given!r}: {error}") from None


def make_home() -> Path:
    """Create the folder, check that it is writable, and return it. Errors appear before any trial starts."""
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"HAGMETA_HOME {str(folder)[:200]} cannot be written: {reason}.") from None
    return folder
