"""What every Ray worker does first."""

from __future__ import annotations

from importlib import import_module

PACKAGES = ("hagmeta", "study", "analysis")


def import_packages() -> None:
    """Import our packages before Ray puts the launch's folder first on ``sys.path``.

    A user's project may have packages of the same names there. Modules of a package that is imported are
    found in its own folder.
    """
    for name in PACKAGES:
        import_module(name)
