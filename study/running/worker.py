"""Prepare a Ray worker."""

from __future__ import annotations

from importlib import import_module

PACKAGES = ("hagmeta", "study", "analysis")


def import_packages() -> None:
    """Import our packages before Ray puts the launch's folder first on ``sys.path``.

    The user's project may have packages with the same names in that folder. Python finds the modules of a
    package that is already imported in the package's folder.
    """
    for name in PACKAGES:
        import_module(name)
