"""Errors of a launch that are not caused by its input."""

from __future__ import annotations


class LaunchBroken(Exception):
    """Ray has failed; the command line prints one line and exits with status 1."""
