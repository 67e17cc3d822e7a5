"""The Python interface: calls and results."""
