"""The version, in one place: the build and ``hagmeta.__version__`` read it here."""

__version__ = "0.1.0"
