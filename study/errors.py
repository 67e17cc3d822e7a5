"""The errors of a launch that are not the user's to mend."""

from __future__ import annotations


class LaunchBroken(Exception):
    """What a launch runs on has failed; shown as a single line, exit status 1."""
