"""Methods that keep nodes of earlier classes."""
