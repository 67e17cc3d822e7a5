"""The version. The build and ``hagmeta.__version__`` read it from here."""

__version__ = "0.1.0"
